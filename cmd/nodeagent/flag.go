package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/freeslot/freeslot/internal/config"
)

// errHelp and errVersion are returned by parse for --help and --version.
var (
	errHelp    = errors.New("help was asked for")
	errVersion = errors.New("the version was asked for")
)

// flag is one of the command line. The parser is our own because those that find methods by
// their names keep the linker from leaving out what is not called: that is half of the
// program, in the memory of every node.
type flag struct {
	name, short string
	// placeholder stands for the value; empty for a flag without one.
	placeholder string
	help        string
	// set takes the value in.
	set func(value string) error
}

func text(to *string) func(string) error {
	return func(value string) error { *to = value; return nil }
}

// flags are those of c.
func (c *runCmd) flags() []flag {
	return []flag{
		{name: "help", short: "h", help: "Show this.", set: func(string) error { return errHelp }},
		{
			name: "config", short: "c", placeholder: "FILE", set: c.setConfig,
			help: "YAML file; docs/nodeagent.md has every key, deploy/nodeagent.example.yaml is one ($FREESLOT_CONFIG).",
		},
		{name: "redis-url", placeholder: "URL", help: "Where Redis is (redis.url). Default: redis://127.0.0.1:6379.", set: text(&c.RedisURL)},
		{name: "node-id", placeholder: "NAME", help: "Name of this node in the fleet (node.id). Default: the host's name.", set: text(&c.NodeID)},
		{name: "max-concurrency", placeholder: "N", help: "Slots of the node (node.max_concurrency). Default: 1.", set: text(&c.MaxConcurrency)},
		{name: "metrics-listen", placeholder: "HOST:PORT", help: "Serve /metrics and /healthz there (metrics_listen). Off unless set.", set: text(&c.MetricsListen)},
		{name: "log-level", placeholder: "LEVEL", help: "debug, info, warn or error (log.level).", set: text(&c.LogLevel)},
		{name: "log-format", placeholder: "FORMAT", help: "json or console (log.format).", set: text(&c.LogFormat)},
		{
			name: "set", placeholder: "KEY=VALUE", help: "Any other key, such as --set stop_timeout=5m. Can be repeated.",
			set: func(value string) error { c.Set = append(c.Set, value); return nil },
		},
		{name: "check", help: "Check the configuration and exit.", set: func(string) error { c.Check = true; return nil }},
		{name: "version", help: "Print the version and exit, as nodeagent version does.", set: func(string) error { return errVersion }},
	}
}

// setConfig makes the path absolute: messages name the file.
func (c *runCmd) setConfig(path string) error {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			path = filepath.Join(home, rest)
		}
	}
	var err error
	c.Config, err = filepath.Abs(path)
	return err
}

// parse reads the command line. The configuration may be named by the environment.
func (c *runCmd) parse(args, environ []string) error {
	if len(args) == 1 && args[0] == "version" {
		return errVersion
	}
	flags := c.flags()
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		f, value, has, err := find(flags, arg)
		if err != nil {
			return err
		}
		switch {
		case f.placeholder == "" && has:
			return fmt.Errorf("--%s has a value, expected none", f.name)
		case f.placeholder != "" && !has:
			if len(args) == 0 || strings.HasPrefix(args[0], "--") {
				return fmt.Errorf("--%s has no value, expected --%s=%s", f.name, f.name, f.placeholder)
			}
			value, args = args[0], args[1:]
		}
		if err := f.set(value); err != nil {
			return err
		}
	}
	for _, variable := range environ {
		if path, ok := strings.CutPrefix(variable, "FREESLOT_CONFIG="); ok && path != "" && c.Config == "" {
			return c.setConfig(path)
		}
	}
	return nil
}

// find takes an argument apart: --name, --name=value, -n or -nvalue.
func find(flags []flag, arg string) (f flag, value string, has bool, err error) {
	if name, ok := strings.CutPrefix(arg, "--"); ok && name != "" {
		name, value, has = strings.Cut(name, "=")
		known := make([]string, 0, len(flags))
		for _, f := range flags {
			if f.name == name {
				return f, value, has, nil
			}
			known = append(known, "--"+f.name)
		}
		return flag{}, "", false, fmt.Errorf("unknown flag --%s%s", name, config.Suggest("--"+name, known))
	}
	if short, ok := strings.CutPrefix(arg, "-"); ok && short != "" && short != "-" {
		for _, f := range flags {
			if f.short == short[:1] {
				return f, strings.TrimPrefix(short[1:], "="), len(short) > 1, nil
			}
		}
		return flag{}, "", false, fmt.Errorf("unknown flag -%s", short[:1])
	}
	return flag{}, "", false, fmt.Errorf("unexpected argument %s", arg)
}

func (c *runCmd) usage(out io.Writer) {
	fmt.Fprintf(out, "Usage: nodeagent [flags]\n\n%s\n\nFlags:\n", description)
	for _, f := range c.flags() {
		left := "      --" + f.name
		if f.short != "" {
			left = "  -" + f.short + ", --" + f.name
		}
		if f.placeholder != "" {
			left += "=" + f.placeholder
		}
		fmt.Fprintf(out, "%-34s %s\n", left, f.help)
	}
}
