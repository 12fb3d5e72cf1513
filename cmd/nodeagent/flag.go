package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/freeslot/freeslot/internal/replica/config"
)

// flags defines the flags, which set c. With kong the linker could not drop methods that are never
// called: that is half of the program, in the memory of every node.
func (c *runCmd) flags() *flag.FlagSet {
	set := flag.NewFlagSet("nodeagent", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Func(
		"config",
		"YAML `FILE`, or TOML if it ends in .toml; docs/reference/nodeagent-config.md has every key, "+
			"deploy/nodeagent.example.yaml is one ($FREESLOT_CONFIG).",
		c.setConfig,
	)
	set.Func("c", "Short for --config=`FILE`.", c.setConfig)
	for _, f := range []struct{ name, path, usage string }{
		{"redis-url", "redis.url", "`URL` of Redis (redis.url). Default: redis://127.0.0.1:6379."},
		{"node-id", "node.id", "`NAME` of this node in the fleet (node.id). Default: the host's name."},
		{"max-concurrency", "node.max_concurrency", "Slots of the node, `N` (node.max_concurrency). Default: 1."},
		{"metrics-listen", "metrics_listen", "Serve /metrics and /healthz at `HOST:PORT` (metrics_listen). Off unless set."},
		{"log-level", "log.level", "`LEVEL` of the log: debug, info, warn or error (log.level)."},
		{"log-format", "log.format", "`FORMAT` of the log: json or console (log.format)."},
	} {
		set.Func(f.name, f.usage, func(value string) error {
			if value != "" {
				c.Flags = append(c.Flags, config.Flag{Name: "--" + f.name, Path: f.path, Value: value})
			}
			return nil
		})
	}
	set.Func("set", "Any other key: `KEY=VALUE` such as --set stop_timeout=5m. Can be repeated.", func(s string) error {
		path, value, ok := strings.Cut(s, "=")
		if !ok || path == "" {
			return errors.New("expected KEY=VALUE such as --set stop_timeout=5m")
		}
		c.Set = append(c.Set, config.Flag{Name: "--set " + path, Path: path, Value: value})
		return nil
	})
	set.BoolVar(
		&c.Check, "check", false,
		"Check the configuration and exit. With a gateway, also ask it what the node's token may do.",
	)
	set.BoolVar(
		&c.ExitUnreachable, "exit-unreachable", false,
		"End with code 1 when Redis or the gateway cannot be reached at the start. "+
			"By default the agent waits and tries again.",
	)
	set.BoolVar(&c.Version, "version", false, "Print the version and exit, as nodeagent version does.")
	return set
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

// parse reads the command line. The environment may name the configuration file.
func (c *runCmd) parse(args, environ []string) error {
	if len(args) == 1 && args[0] == "version" {
		c.Version = true
		return nil
	}
	set := c.flags()
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("unexpected argument %s", set.Arg(0))
	}
	for _, variable := range environ {
		if path, ok := strings.CutPrefix(variable, "FREESLOT_CONFIG="); ok && path != "" && c.Config == "" {
			return c.setConfig(path)
		}
	}
	return nil
}

func (c *runCmd) usage(out io.Writer) {
	fmt.Fprintf(out, "Usage: nodeagent [flags]\n\n%s\n\nFlags:\n", description)
	c.flags().VisitAll(func(f *flag.Flag) {
		left := "--" + f.Name
		if len(f.Name) == 1 {
			left = left[1:]
		}
		placeholder, help := flag.UnquoteUsage(f)
		if placeholder != "" {
			left += "=" + placeholder
		}
		fmt.Fprintf(out, "  %-28s %s\n", left, help)
	})
}
