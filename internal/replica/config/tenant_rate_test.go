package config_test

import (
	"testing"

	"github.com/freeslot/freeslot/internal/replica/config"
)

func TestAcknowledgeAndRatesRefused(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		"acknowledge: all":                                         `acknowledge is "all", expected local or replicated`,
		"acknowledge_replicas: 0":                                  `acknowledge_replicas is 0, expected 1 to 16`,
		"acknowledge_replicas: 17":                                 `acknowledge_replicas is 17, expected 1 to 16`,
		"acknowledge_timeout: 4s":                                  `acknowledge_timeout is 4s, expected 10ms to 3s`,
		"tenants: {acme: {submit_rate: -1}}":                       `tenants.acme.submit_rate is -1, expected 0 for no limit, or 0.001 to 1000000 jobs a second`,
		"tenants: {acme: {submit_rate: .nan}}":                     `tenants.acme.submit_rate is NaN, expected a number`,
		"tenants: {acme: {submit_rate: 0.0001}}":                   `tenants.acme.submit_rate is 0.0001, expected 0 for no limit, or 0.001 to 1000000 jobs a second`,
		"tenants: {acme: {submit_rate: fast}}":                     `tenants.acme.submit_rate is "fast", expected a number`,
		"tenants: {acme: {submit_burst: 5}}":                       `tenants.acme.submit_burst is set without submit_rate, expected both or neither`,
		"tenants: {acme: {submit_rate: 1, submit_burst: -5}}":      `tenants.acme.submit_burst is -5, expected 1 to 10000000`,
		"tenants: {acme: {submit_rate: 1, submit_burst: 1.5}}":     `tenants.acme.submit_burst is 1.5, expected a whole number`,
		"tenants: {acme: {submit_rate: -1, submit_burst: 5}}":      `tenants.acme.submit_rate is -1, expected 0 for no limit, or 0.001 to 1000000 jobs a second`,
		"tenants: {acme: {submit_rate: 2000000, submit_burst: 5}}": `tenants.acme.submit_rate is 2e+06, expected 0 for no limit, or 0.001 to 1000000 jobs a second`,
	} {
		_, problems := loadYAML(t, document)
		if len(problems) != 1 || problems[0] != want {
			t.Errorf("%s: %v\nexpected %s", document, problems, want)
		}
	}
}

func TestTenantRate(t *testing.T) {
	t.Parallel()
	cfg, problems := loadYAML(t, "tenants: {a: {submit_rate: 2.5}, b: {submit_rate: 0.5}, c: {submit_rate: 10, submit_burst: 3}, d: {}, e: {submit_rate: 0}}")
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	type rate struct {
		rate  float64
		burst int
		ok    bool
	}
	for name, want := range map[string]rate{"a": {2.5, 3, true}, "b": {0.5, 1, true}, "c": {10, 3, true}, "d": {}, "e": {}, "unknown": {}} {
		var got rate
		got.rate, got.burst, got.ok = cfg.Tenants[name].Rate()
		if got != want {
			t.Errorf("%s: %+v, expected %+v", name, got, want)
		}
	}
	if cfg.Acknowledge != config.AcknowledgeLocal {
		t.Error(cfg.Acknowledge)
	}
}
