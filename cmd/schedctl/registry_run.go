package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/registry/centre"
	"github.com/freeslot/freeslot/registry/config"
)

const (
	// registryCall bounds one try to reach Redis, and registryRetry is the pause before the next.
	registryCall  = 3 * time.Second
	registryRetry = time.Second
)

type registryRunCmd struct {
	Service   string            `arg:"" help:"Name of the service."`
	Command   []string          `arg:"" name:"command" help:"Command with its arguments, behind --."`
	Port      int               `required:"" placeholder:"N" help:"Port on which the command serves."`
	Host      string            `placeholder:"HOST" help:"Where clients reach it (default: the address by which Redis is reached)."`
	ID        string            `placeholder:"ID" help:"Id of the instance (default: host:port)."`
	Protocol  string            `default:"HTTP" help:"What it speaks (default ${default})."`
	Weight    float64           `default:"1" help:"How much of the traffic it gets beside others (default ${default})."`
	Label     map[string]string `placeholder:"KEY=VALUE" help:"A label; may be repeated."`
	Check     string            `placeholder:"CHECK" help:"How schedulers check it: a path such as /healthz, or tcp, grpc."`
	Interval  time.Duration     `default:"10s" placeholder:"TIME" help:"Pause between heartbeats (default ${default})."`
	Drain     time.Duration     `default:"5s" least:"0s" placeholder:"TIME" help:"How long clients have to turn away, after the first SIGTERM, before the command gets that signal (default ${default})."`
	Config    string            `placeholder:"FILE" help:"YAML file with the keys of docs/registry.md#a-file-of-options. What it sets wins over flags."`
	Namespace string            `env:"FREESLOT_REGISTRY__NAMESPACE" placeholder:"NAME" help:"Namespace, as in registry.namespace of schedulers."`
	KeyPrefix string            `default:"scheduler" env:"FREESLOT_REDIS__KEY_PREFIX" placeholder:"PREFIX" help:"First part of the keys (default ${default})."`
	redisFlags
}

// Help is shown below the flags.
func (registryRunCmd) Help() string {
	return `Examples:
  schedctl registry run shop --port 8080 --check /healthz -- ./shop
  schedctl registry run translator --port 50051 --protocol GRPC --check grpc -- python3 serve.py

The command is an instance of the service while it runs. It runs in a process group of its own. On the first SIGTERM or
SIGINT the instance is marked as draining, and the group gets the signal after --drain. The group gets a second signal,
from a second after the first, at once. If Redis is away, the command runs, and is registered when Redis is back. If
another process registers the same id at the same host and port, as after a restart, this one is registered no more; the
command goes on.

Ends with the code of the command, 128 + N where signal N ended it. Without a scheduler: it talks to Redis, the first
of several.`
}

// registration returns the instance that the flags describe.
func (c *registryRunCmd) registration() registry.Registration {
	r := registry.Registration{
		Service: c.Service, ID: c.ID, Host: c.Host, Port: c.Port, Protocol: c.Protocol, Weight: &c.Weight,
		Interval: c.Interval, Metadata: c.Label,
	}
	switch {
	case strings.HasPrefix(c.Check, "/"):
		r.Check = &registry.Check{Kind: "http", Path: c.Check}
	case c.Check != "":
		r.Check = &registry.Check{Kind: c.Check}
	}
	return r
}

// Run runs the command as an instance.
func (c *registryRunCmd) Run(a *app) error {
	if len(c.RedisURL) == 0 {
		return usage("--redis-url is missing")
	}
	if err := checkWeight(&c.Weight, setEnabled); err != nil {
		return err
	}
	path, err := exec.LookPath(c.Command[0])
	if err != nil {
		return exitError{exitNotFound, err}
	}
	opts, err := c.options(a)
	if err != nil {
		return err
	}
	c.Interval = cmp.Or(opts.Heartbeat.HeartbeatInterval, c.Interval)
	p, err := registry.NewProvider(opts)
	if err != nil {
		return usageError{err}
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), registryCall)
		defer cancel()
		_ = p.Stop(ctx) // an instance that Redis did not hear about expires
	}()
	err = p.Register(a.ctx, c.registration()) // before the provider's start it only validates
	if freeslot.CodeOf(err) == freeslot.CodeInvalidArgument {
		return usageError{err}
	}
	if kind := c.Check; kind != "" && !strings.HasPrefix(kind, "/") && !slices.Contains(centre.Kinds, kind) {
		a.warn("--check %s is none of %s; for a path write --check /%s", kind, strings.Join(centre.Kinds, ", "), kind)
	}
	cmd := exec.Command(path, c.Command[1:]...)
	cmd.Args[0] = c.Command[0]
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Environ(), a.in, file(a.out), a.err
	return runRegistered(a, cmd, p, c.registration(), c.Drain)
}

// options reads the options from the file; the flags set what the file does not.
func (c *registryRunCmd) options(a *app) (registry.Options, error) {
	var opts registry.NamingOptions
	if c.Config != "" {
		yaml, err := os.ReadFile(c.Config)
		if err != nil {
			return opts.Options, fmt.Errorf("read --config: %w", err)
		}
		if opts, err = config.Read(yaml); err != nil {
			return opts.Options, usageError{explain(err)}
		}
		var useless freeslot.FieldErrors
		if opts.StopPause != 0 {
			useless.Addf("registry.stop-pause", "has no effect here; use --drain")
		}
		if opts.Timeout != 0 {
			useless.Addf("registry.timeout", "has no effect here: it is for programs that follow services")
		}
		if opts.SnapshotDir != "" {
			useless.Addf("registry.snapshot-dir", "has no effect here: it is for programs that follow services")
		}
		if err := useless.Err(); err != nil {
			return opts.Options, usageError{explain(err)}
		}
	}
	opts.RedisURL, opts.KeyPrefix = cmp.Or(opts.RedisURL, c.RedisURL[0]), cmp.Or(opts.KeyPrefix, c.KeyPrefix)
	opts.Access, opts.Namespace = cmp.Or(opts.Access, c.redisFlags.config().Access), cmp.Or(opts.Namespace, c.Namespace)
	opts.StopPause, opts.Logger = -1, a.warnings()
	return opts.Options, nil
}
