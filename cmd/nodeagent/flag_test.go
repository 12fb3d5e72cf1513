package main

import (
	"errors"
	"flag"
	"reflect"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/nodeagent"
	"github.com/freeslot/freeslot/internal/process/metrics"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/reference"
)

func TestParse(t *testing.T) {
	t.Parallel()
	set := func(path, value string) config.Flag {
		return config.Flag{Name: "--set " + path, Path: path, Value: value}
	}
	for line, want := range map[string]runCmd{
		"":                                {},
		"--config=/a.yaml --node-id n1":   {Config: "/a.yaml", Flags: []config.Flag{{Name: "--node-id", Path: "node.id", Value: "n1"}}},
		"-c /a.yaml --check":              {Config: "/a.yaml", Check: true},
		"-c=/a.yaml":                      {Config: "/a.yaml"},
		"--set a=b=c --set=d=e,f":         {Set: []config.Flag{set("a", "b=c"), set("d", "e,f")}},
		"--max-concurrency -1":            {Flags: []config.Flag{{Name: "--max-concurrency", Path: "node.max_concurrency", Value: "-1"}}},
		"--log-level x --log-format y":    {Flags: []config.Flag{{Name: "--log-level", Path: "log.level", Value: "x"}, {Name: "--log-format", Path: "log.format", Value: "y"}}},
		"--redis-url u --metrics-listen=": {Flags: []config.Flag{{Name: "--redis-url", Path: "redis.url", Value: "u"}}},
		"version":                         {Version: true},
		"--version":                       {Version: true},
	} {
		var c runCmd
		if err := c.parse(strings.Fields(line), nil); err != nil || !reflect.DeepEqual(c, want) {
			t.Errorf("%q: %+v, %v, expected %+v", line, c, err, want)
		}
	}
	for line, names := range map[string]string{
		"--nothing=1": "-nothing", "--confg=x": "-confg", "--redis_url=x": "-redis_url", "-x": "-x", "a": "unexpected argument a",
		"-- a": "unexpected argument a", "-": "unexpected argument -", "--config": "-config", "--check=yes": "-check", "--check version": "unexpected argument version",
	} {
		var c runCmd
		if err := c.parse(strings.Fields(line), nil); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("%q: %v, expected an error with %s", line, err, names)
		}
	}
	var c runCmd
	environ := []string{"OTHER=1", "FREESLOT_CONFIG=/env.yaml"}
	if err := c.parse(nil, environ); err != nil || c.Config != "/env.yaml" {
		t.Errorf(`%+v, %v; want no error, c.Config == "/env.yaml"`, c, err)
	}
	if err := c.parse([]string{"--config=/flag.yaml"}, environ); err != nil || c.Config != "/flag.yaml" {
		t.Errorf("%+v, %v: the flag wins", c, err)
	}
}

// The help has each flag.
func TestUsage(t *testing.T) {
	t.Parallel()
	_, help, _ := command(t, "-h")
	(&runCmd{}).flags().VisitAll(func(f *flag.Flag) {
		if !strings.Contains(help, "--"+f.Name) || f.Usage == "" {
			t.Errorf("--%s is not explained in\n%s", f.Name, help)
		}
	})
}

func TestFlagReference(t *testing.T) {
	t.Parallel()
	reference.Check(t, "flags.md", "nodeagent", reference.FlagSet((&runCmd{}).flags()))
}

func TestMetricsReference(t *testing.T) {
	t.Parallel()
	_, _, args := prepare(t, "services=[{name: a, command: {argv: [cat]}, check: {tcp: {address: 'a:1'}}}]")
	var c runCmd
	if err := c.parse(args, nil); err != nil {
		t.Fatal(err)
	}
	cfg, err := c.load([]string{})
	if err != nil {
		t.Fatal(err)
	}
	reg := metrics.NewRegistry()
	a, err := nodeagent.New(cfg, zap.NewNop(), reg, noop.NewTracerProvider())
	if err != nil {
		t.Fatal(err)
	}
	// Metrics have the node as a label, so that two agents can share a registry.
	cfg.Node.ID, cfg.Redis, cfg.Gateway, cfg.TokenFile = "node-2", nodeagent.Redis{}, "ws://127.0.0.1:1", "token"
	if _, err := nodeagent.New(cfg, zap.NewNop(), reg, noop.NewTracerProvider()); err != nil {
		t.Fatal(err)
	}
	// The start registers some of them.
	if err := errors.Join(a.Start(t.Context()), a.Stop(t.Context())); err != nil {
		t.Fatal(err)
	}
	reference.Check(t, "metrics.md", "nodeagent", reference.Metrics(t, reg))
}
