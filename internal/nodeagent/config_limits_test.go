package nodeagent

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/node/cgroup"
)

func TestLimitsConfiguration(t *testing.T) {
	t.Parallel()
	const command = "services: [{name: a, command: {argv: [cat], "
	for yaml, want := range map[string]string{
		command + "limits: {}}}]":                                           "services[0].command.limits is empty, expected memory_bytes, cpus or pids",
		command + "limits: {memory_bytes: 1000}}}]":                         "services[0].command.limits.memory_bytes is 1000, expected 1048576 to 1125899906842624",
		command + "limits: {memory_bytes: -1}}}]":                           "services[0].command.limits.memory_bytes is -1, expected 1048576 to 1125899906842624",
		command + "limits: {memory_bytes: 1G}}}]":                           `services[0].command.limits.memory_bytes is "1G", expected a whole number`,
		command + "limits: {cpus: 0.001}}}]":                                "services[0].command.limits.cpus is 0.001, expected 0.01 to 4096",
		command + "limits: {cpus: .nan}}}]":                                 "services[0].command.limits.cpus is NaN, expected a number",
		command + "limits: {pids: -1}}}]":                                   "services[0].command.limits.pids is -1, expected 1 to 4194304",
		command + "limits: {swap: 1}}}]":                                    "services[0].command.limits.swap is not a key of the configuration",
		command + "limits_required: true}}]":                                "services[0].command.limits_required is set without limits, expected both or neither",
		"services: [{name: a, http: {url: 'http://x', idle_timeout: -1s}}]": "services[0].http.idle_timeout is -1s, expected 1ms to 24h",
	} {
		_, err := load(t, yaml, "FREESLOT_NODE__ID=n1")
		if !cgroup.Supported && strings.Contains(yaml, "limits:") {
			want = "services[0].command.limits is set, but limits are not supported on this system"
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s:\n got %v\nwant %s", yaml, err, want)
		}
	}
	if !cgroup.Supported {
		return
	}
	cfg, err := load(t, command+"limits: {memory_bytes: 1048576, cpus: 0.5, pids: 7}, limits_required: true}}, {name: b, http: {url: 'http://x', idle_timeout: 5s}}]", "FREESLOT_NODE__ID=n1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Limits{MemoryBytes: 1 << 20, CPUs: 0.5, PIDs: 7}, cfg.Services[0].Command.Limits); diff != "" || !cfg.Services[0].Command.LimitsRequired || cfg.Services[1].HTTP.IdleTimeout != 5*time.Second {
		t.Errorf(`%s %+v; want diff == "", cfg.Services[0].Command.LimitsRequired, cfg.Services[1].HTTP.IdleTimeout == 5*time.Second`, diff, cfg.Services)
	}
}
