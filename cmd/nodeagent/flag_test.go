package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]runCmd{
		"":                                {},
		"--config=/a.yaml --node-id n1":   {Config: "/a.yaml", NodeID: "n1"},
		"-c /a.yaml --check":              {Config: "/a.yaml", Check: true},
		"-c/a.yaml":                       {Config: "/a.yaml"},
		"-c=/a.yaml":                      {Config: "/a.yaml"},
		"--set a=b=c --set=d=e,f":         {Set: []string{"a=b=c", "d=e,f"}},
		"--max-concurrency -1":            {MaxConcurrency: "-1"},
		"--log-level x --log-format y":    {LogLevel: "x", LogFormat: "y"},
		"--redis-url u --metrics-listen=": {RedisURL: "u"},
	} {
		var c runCmd
		if err := c.parse(strings.Fields(line), nil); err != nil || !reflect.DeepEqual(c, want) {
			t.Errorf("%q: %+v, %v, expected %+v", line, c, err, want)
		}
	}
	for line, want := range map[string]string{
		"--nothing=1": "unknown flag --nothing", "--confg=x": "unknown flag --confg, did you mean --config?", "--redis_url=x": "unknown flag --redis_url, did you mean --redis-url?", "-x": "unknown flag -x", "a": "unexpected argument a", "--": "unexpected argument --", "-": "unexpected argument -",
		"--config": "--config has no value, expected --config=FILE", "--config --check": "--config has no value, expected --config=FILE",
		"--check=yes": "--check has a value, expected none",
	} {
		var c runCmd
		if err := c.parse(strings.Fields(line), nil); err == nil || err.Error() != want {
			t.Errorf("%q: %v, expected %s", line, err, want)
		}
	}
	var c runCmd
	environ := []string{"OTHER=1", "FREESLOT_CONFIG=/env.yaml"}
	if err := c.parse(nil, environ); err != nil || c.Config != "/env.yaml" {
		t.Errorf("%+v, %v", c, err)
	}
	if err := c.parse([]string{"--config=/flag.yaml"}, environ); err != nil || c.Config != "/flag.yaml" {
		t.Errorf("%+v, %v: the flag wins", c, err)
	}
}

// No two flags have one name, and each is in the help.
func TestUsage(t *testing.T) {
	t.Parallel()
	_, help, _ := command(t, "-h")
	var names []string
	for _, f := range (&runCmd{}).flags() {
		names = append(names, f.name)
		if !strings.Contains(help, "--"+f.name) || f.help == "" {
			t.Errorf("--%s is not explained in\n%s", f.name, help)
		}
	}
	slices.Sort(names)
	if n := len(names); len(slices.Compact(names)) != n {
		t.Error("a flag is there twice")
	}
}
