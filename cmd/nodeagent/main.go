// Command nodeagent makes a machine a node of a freeslot fleet. It runs the jobs that schedulers
// place there, by HTTP requests to local services or by commands.
//
// Exit codes: 0 after an orderly end, 1 for a failure, such as a file that cannot be read, 2 if the
// command line is wrong, 3 if another process has taken over the node, 78 if the configuration is
// not valid.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"syscall"

	"github.com/freeslot/freeslot/internal/process/interrupt"
	"github.com/freeslot/freeslot/internal/process/procgroup"
	"github.com/freeslot/freeslot/internal/process/terminal"
	"github.com/freeslot/freeslot/internal/process/version"
	"github.com/freeslot/freeslot/worker"
)

const (
	exitOK         = 0
	exitFailure    = 1
	exitUsage      = 2
	exitSuperseded = 3
	// exitConfig is EX_CONFIG of sysexits.h. It is not 2, the code of a Go process that crashes. A
	// service manager must restart a crashed process, but not one with an invalid configuration.
	exitConfig = 78
)

const description = `Runs on a node the jobs that freeslot's schedulers place there.

  nodeagent --config nodeagent.yaml              the services are in the file
  nodeagent --config nodeagent.yaml --node-id node-7 --max-concurrency 8
  nodeagent --check --config nodeagent.yaml

Flags win over the environment (FREESLOT_REDIS__URL for redis.url), that over the file, that over the defaults.

SIGHUP reads the configuration again, and puts it in force if it is valid and only says what can change at run time.
The first SIGINT or SIGTERM drains: the node takes no new jobs, running ones go on for up to stop_timeout. With the
second one they are interrupted and handed back. The third one ends the process where it stands. Signals that come
within a second of one belong to it. SIGHUP and SIGINT do nothing where they are ignored at the start, as by nohup.`

// environment holds the inputs of the command in addition to its flags.
type environment struct {
	// ctx ends with the first SIGINT or SIGTERM, hurry with the second.
	ctx, hurry context.Context
	// reload has a value after SIGHUP.
	reload   <-chan os.Signal
	out, err io.Writer
	// errTerminal is true if err is a terminal that shows colours.
	errTerminal bool
	// asRoot is true if the agent runs as root.
	asRoot bool
	// environ is the environment in the form of os.Environ.
	environ []string
}

// configError is an error that only a change of the configuration can mend, not another start.
type configError struct{ err error }

func (e configError) Error() string { return e.err.Error() }
func (e configError) Unwrap() error { return e.err }

func main() {
	if os.Getenv("GOGC") == "" {
		// An agent needs little memory, and the machine is for its services: the garbage collector
		// runs at half of the usual 4 MiB.
		debug.SetGCPercent(50)
	}
	env := &environment{
		out: os.Stdout, err: os.Stderr, errTerminal: terminal.Is(os.Stderr), asRoot: os.Geteuid() == 0,
		environ: os.Environ(), reload: hangups(),
	}
	env.ctx, env.hurry = interrupted()
	interrupt.SurvivePipes()
	os.Exit(procgroup.Main(func() int { return run(os.Args[1:], env) }))
}

// interrupted returns contexts that end with the first and the second signal. The third one ends
// the process at once, and leaves running commands behind.
func interrupted() (ctx, hurry context.Context) {
	signals := make(chan os.Signal, 3)
	interrupt.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, first := context.WithCancel(context.Background())
	hurry, second := context.WithCancel(context.Background())
	go interrupt.Steps(signals, first, second, func() {
		_, _ = fmt.Fprintln(os.Stderr, "nodeagent: third signal, exiting at once")
		os.Exit(exitFailure)
	})
	return ctx, hurry
}

// hangups receives SIGHUP from the first moment on: an unhandled one would end the process. Several
// that come during one reload count as one.
func hangups() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	interrupt.Notify(signals, syscall.SIGHUP)
	return signals
}

// run parses the command line, runs the agent and returns the exit code.
func run(args []string, env *environment) int {
	var c runCmd
	switch err := c.parse(args, env.environ); {
	case errors.Is(err, flag.ErrHelp):
		c.usage(env.out)
		return exitOK
	case err != nil:
		_, _ = fmt.Fprintf(env.err, "nodeagent: %v\nRun \"nodeagent --help\" for usage.\n", err)
		return exitUsage
	case c.Version:
		_, _ = fmt.Fprintln(env.out, version.Line("nodeagent"))
		return exitOK
	}
	switch err := c.Run(env); {
	case err == nil:
		return exitOK
	case errors.As(err, new(configError)):
		_, _ = fmt.Fprintln(env.err, err)
		return exitConfig
	case errors.Is(err, worker.ErrSuperseded):
		_, _ = fmt.Fprintf(env.err, "nodeagent: %v\n", err)
		return exitSuperseded
	default:
		_, _ = fmt.Fprintf(env.err, "nodeagent: %v\n", err)
		return exitFailure
	}
}
