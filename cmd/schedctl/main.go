// Command schedctl submits jobs to a freeslot scheduler, shows their results, and operates the
// scheduler: nodes, pools, schedules and users of Redis.
//
// Exit codes: 0 done, 1 the job failed or something went wrong, 2 the command line is wrong; config
// diff --exit-code: 0 no differences, 1 differences, 2 anything else; status: 0 all is well, 1
// warnings, 2 something is critical or no replica answers; lock run: the command's code,
// 75 the lock was not acquired, 76 it was lost; nodes drain --wait: 75 jobs still run.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/loopback"
	"github.com/freeslot/freeslot/internal/process/interrupt"
	"github.com/freeslot/freeslot/internal/process/procgroup"
	"github.com/freeslot/freeslot/internal/process/terminal"
)

const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	// exitTrouble is diff(1)'s code for trouble, where exitFailure means that there are
	// differences.
	exitTrouble = 2
)

const description = `Submits jobs to a freeslot scheduler and shows their results.

  schedctl submit echo '{"hello":"world"}' --wait       run a job, print its result
  schedctl submit tts --file speech.json --target de    print the job's id
  schedctl get 0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z
  schedctl list --state dead
  schedctl requeue 0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z          submit a job again that did not succeed
  schedctl status                                       what is wrong now, and what to do next
  schedctl queues                                       what waits, and for what
  schedctl demand                                       how many slots the jobs of each pool need
  schedctl pause service tts                            no new jobs of it begin, until resume
  schedctl nodes
  schedctl nodes drain gpu-7 --wait                     no more jobs there, until undrain; wait for those that run
  schedctl config diff pools.yaml                       what a configuration of pools would change; apply does it
  schedctl schedules apply -f nightly.yaml              a job that runs again and again
  schedctl watch                                        nodes and jobs under way, live
  schedctl lock run nightly --wait 1m -- ./report.sh    a command that runs on one machine at a time

The scheduler is found by --server or FREESLOT_SERVER. Where it asks for a token, set FREESLOT_TOKEN,
FREESLOT_TOKEN_FILE or --token-file, or FREESLOT_TOKEN_COMMAND for a program that prints one, such as for single
sign-on; --token can be seen by other users of the machine.

Exit codes: 0 done; 1 the job failed, or something went wrong; 2 the command line is wrong.
"status" ends with 0: all is well; 1: warnings; 2: something is critical, or no replica answers.
"config diff --exit-code" ends as diff does: 0 no differences; 1 differences; 2 the comparison failed.
"lock run" ends with the code of its command; 69: Redis is away; 75: the lock was not acquired; 76: it was lost.
"nodes drain --wait" ends with 75 where jobs still run after --wait-timeout.`

type commands struct {
	Server       string `default:"http://127.0.0.1:7480" env:"FREESLOT_SERVER" placeholder:"URL" help:"Address of a replica (default ${default}). Several are separated by commas; when one cannot be reached the next is tried."`
	Token        string `env:"FREESLOT_TOKEN" placeholder:"TOKEN" help:"Token to send."`
	TokenFile    string `env:"FREESLOT_TOKEN_FILE" placeholder:"FILE" help:"File that holds the token."`
	CAFile       string `env:"FREESLOT_CA_FILE" placeholder:"FILE" help:"Certificates (PEM) that may sign the certificates of https:// servers, instead of the system's."`
	CertFile     string `env:"FREESLOT_CERT_FILE" placeholder:"FILE" help:"Our certificate (PEM), for servers that ask for one."`
	KeyFile      string `env:"FREESLOT_KEY_FILE" placeholder:"FILE" help:"Its key (PEM)."`
	ServerName   string `env:"FREESLOT_SERVER_NAME" placeholder:"NAME" help:"Name in the servers' certificates, if it is not the URL's host."`
	Reason       string `placeholder:"TEXT" help:"Why you change something, for the audit."`
	TokenCommand string `env:"FREESLOT_TOKEN_COMMAND" placeholder:"COMMAND" help:"Command that prints the token, with its arguments; no shell runs it."`

	Output string `short:"o" enum:"table,json" default:"table" placeholder:"FORMAT" help:"table or json."`

	Submit      submitCmd      `cmd:"" help:"Submit a job."`
	Get         getCmd         `cmd:"" help:"Show a job."`
	List        listCmd        `cmd:"" help:"List jobs: those that wait, running ones by node, then ended ones, the newest first."`
	Cancel      cancelCmd      `cmd:"" help:"Ask for a job to be stopped."`
	Requeue     requeueCmd     `cmd:"" help:"Submit jobs again that are dead, failed or expired."`
	Drop        dropCmd        `cmd:"" help:"Forget jobs that have ended."`
	Bulk        bulkCmd        `cmd:"" help:"Submit again, cancel or drop many jobs, drain or undrain many nodes."`
	DeadLetters deadLettersCmd `cmd:"" name:"dead-letters" help:"Count dead jobs by service, error code, node or tenant."`
	Status      statusCmd      `cmd:"" help:"Show what is wrong now, and what to do next."`
	Doctor      doctorCmd      `cmd:"" help:"Check Redis, replicas, certificates and tokens closely, and show what to do."`
	History     historyCmd     `cmd:"" help:"Show the figures of the system over time."`
	Queues      queuesCmd      `cmd:"" help:"Show which jobs wait, and for what."`
	Demand      demandCmd      `cmd:"" help:"Show how many slots jobs need, by pool and service."`
	Pause       pauseCmd       `cmd:"" help:"Begin no new jobs of a pool, a service or a class."`
	Resume      resumeCmd      `cmd:"" help:"End a pause."`
	Nodes       nodesGroup     `cmd:"" help:"List nodes, show, drain or remove one, or import a list of them."`
	Config      configCmd      `cmd:"" help:"Show and change the configuration of pools."`
	Explain     explainCmd     `cmd:"" help:"Show which nodes could run a job, and why the others could not."`
	Watch       watchCmd       `cmd:"" help:"Follow nodes and jobs under way, or wait for one job's result."`
	Replicas    replicasCmd    `cmd:"" help:"Show the running replicas."`
	Tenants     tenantsCmd     `cmd:"" help:"Show tenants, their limits and what they use of them."`

	Schedules schedulesCmd `cmd:"" help:"Jobs that run again and again: list, show, make, pause them."`

	Lock lockCmd `cmd:"" help:"Run a command while a lock is held; list, show and revoke locks."`

	Registry registryCmd `cmd:"" help:"Services of the registry: list, show, watch and change them."`

	Lists listsCmd `cmd:"" help:"Name lists: create, import, edit, switch and ask them."`

	Tokens tokensCmd `cmd:"" help:"Tokens of callers: make one, check the schedulers' file of them, or list them."`
	Whoami whoamiCmd `cmd:"" help:"Show who you are for the schedulers, and what you may do."`

	Audit auditCmd `cmd:"" help:"Show who changed what."`

	Backup  backupCmd  `cmd:"" help:"Write what operators have set up to a file, while the system serves."`
	Restore restoreCmd `cmd:"" help:"Put a backup into an empty system."`

	ACL aclCmd `cmd:"" name:"acl" help:"Print or set users of Redis with the rights of agents, schedulers and operators."`

	Version versionCmd `cmd:"" help:"Print the version, as --version does."`
}

// environment holds the inputs and outputs of commands.
type environment struct {
	// ctx ends with the first SIGINT or SIGTERM.
	ctx      context.Context
	in       io.Reader
	out, err io.Writer
	// terminal is true if out is a terminal that can be redrawn, as watch does. errTerminal is true
	// if err is one, for progress.
	terminal, errTerminal bool
	// grace is the grace of lock run, for tests on a busy machine; 0 is mostGrace.
	grace time.Duration
}

// repeated names the global flags that a follow-up command needs, too.
var repeated = []string{"server", "token-file", "token-command", "ca-file", "cert-file", "key-file", "server-name"}

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }

// exitError ends schedctl with this code; err is the reason, unless it is nil.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string { return fmt.Sprintf("exit code %d: %v", e.code, e.err) }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	interrupt.SurvivePipes()
	env := &environment{
		ctx: interrupted(), in: os.Stdin, out: stdout{os.Stdout}, err: os.Stderr, terminal: terminal.Is(os.Stdout),
		errTerminal: terminal.Is(os.Stderr),
	}
	os.Exit(procgroup.Main(func() int { return run(os.Args[1:], env) }))
}

// interrupted returns a context that ends with the first signal. The next one that counts ends the
// process, unless the command receives signals itself.
func interrupted() context.Context {
	signals := make(chan os.Signal, 1)
	interrupt.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-signals
		cancel()
		time.Sleep(interrupt.Gap)
		signal.Stop(signals)
	}()
	return ctx
}

// stdout is standard output. When it has no reader any more, the process ends by SIGPIPE, as every
// program does that only exists for its output. A command that schedctl runs gets the file.
type stdout struct{ file *os.File }

func (s stdout) Write(p []byte) (int, error) {
	n, err := s.file.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		signal.Reset(syscall.SIGPIPE)
		_, err = s.file.Write(p[n:]) // does not return
	}
	return n, err
}

// file returns the output for a command that schedctl runs: the file itself, so that the command
// gets SIGPIPE and sees a terminal.
func file(w io.Writer) io.Writer {
	if s, ok := w.(stdout); ok {
		return s.file
	}
	return w
}

// run parses and runs one command and returns the exit code.
func run(args []string, env *environment) (code int) {
	// For --help the parser calls its exit function, which must not return.
	type exit int
	defer func() {
		switch v := recover().(type) {
		case nil:
		case exit:
			code = int(v)
		default:
			panic(v)
		}
	}()
	if len(args) == 1 && args[0] == "--version" { // not a flag of all commands, because some have a flag of this name
		args = []string{"version"}
	}
	newParser := func(cmds *commands, options ...kong.Option) *kong.Kong {
		parser, err := kong.New(cmds, append(options,
			kong.Name("schedctl"), kong.Description(description), kong.Writers(env.out, env.err),
			kong.Exit(func(code int) { panic(exit(code)) }), kong.Vars{"states": stateNames()},
			kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
			kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(decodeDuration)),
		)...)
		if err != nil {
			panic(err) // the commands struct is wrong
		}
		return parser
	}
	named := onlyNamed(args...)
	// A parser is for one line.
	if err := checkDashes(newParser(&commands{}, named), args); err != nil {
		return report(env, err)
	}
	var cmds commands
	parser := newParser(&cmds, named)
	ctx, err := parser.Parse(args)
	if err != nil { // hints are for all commands
		cmds = commands{}
		parser = newParser(&cmds)
		ctx, err = parser.Parse(args)
	}
	if err != nil {
		// A flag that is not given has the empty value.
		text := strings.Replace(err.Error(), `must be one of "",`, "must be one of ", 1)
		_, _ = fmt.Fprintf(
			env.err, "schedctl: %s%s\nRun \"schedctl --help\" for usage.\n", text, hintDashes(parser.Model, args),
		)
		return exitUsage
	}
	a, err := cmds.app(env)
	if err == nil {
		err = checkDurations(ctx)
	}
	if err == nil {
		for _, p := range ctx.Path {
			if f := p.Flag; f != nil && slices.Contains(repeated, f.Name) {
				a.flags += fmt.Sprintf("--%s %s ", f.Name, quoted(f.Target.String()))
			}
		}
		err = ctx.Run(a)
		a.api.close()
	}
	code = report(env, err)
	if cmds.Config.Diff.ExitCode && code == exitFailure && !errors.Is(err, errDiffers) {
		code = exitTrouble
	}
	return code
}

// hintDashes finds a long flag with one dash, as other tools write it. The parser reads that as
// several short flags.
func hintDashes(model *kong.Application, args []string) (hint string) {
	for _, arg := range args {
		if arg == "--" { // the rest is a command's
			break
		}
		name, one := strings.CutPrefix(arg, "-")
		name, _, _ = strings.Cut(name, "=")
		if !one || len(name) < 2 {
			continue
		}
		_ = kong.Visit(model, func(node kong.Visitable, next kong.Next) error {
			if flag, ok := node.(*kong.Flag); ok && flag.Name == name {
				hint = fmt.Sprintf(" (with two dashes it is --%s)", name)
			}
			return next(nil)
		})
	}
	return hint
}

// report writes the error and returns the exit code.
func report(env *environment, err error) int {
	var own exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &own):
		if own.err != nil {
			_, _ = fmt.Fprintf(env.err, "schedctl: %v\n", clean(own.err.Error()))
		}
		return own.code
	case errors.As(err, new(usageError)):
		_, _ = fmt.Fprintf(env.err, "schedctl: %v\n", err)
		return exitUsage
	case env.ctx.Err() != nil:
		var waited goesOn
		if errors.As(err, &waited) {
			_, _ = fmt.Fprintf(env.err, "schedctl: interrupted; job %s goes on: schedctl watch %s\n", waited.job, waited.job)
		} else {
			_, _ = fmt.Fprintln(env.err, "schedctl: interrupted; jobs that were accepted go on")
		}
		return exitFailure
	default:
		_, _ = fmt.Fprintf(env.err, "schedctl: %v\n", err)
		return exitFailure
	}
}

// app has the global flags; Run methods get it.
type app struct {
	*environment
	api   *apiClient
	json  bool
	token string
	// nextToken returns the token as its flag, file or command says now.
	nextToken func() (string, error)
	tls       client.TLS
	reason    string // of --reason
	// flags holds the global flags of the command line that a follow-up command needs, too.
	flags string
	// awaited is the id of the job that the command waits for.
	awaited atomic.Pointer[string]
}

// token returns the token of the flags or the environment, as it is now.
func (c *commands) token(env *environment) (string, error) {
	switch {
	case c.Token != "":
		return c.Token, nil
	case c.TokenFile != "":
		data, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return "", fmt.Errorf("read the token: %w", err)
		}
		token := strings.TrimSpace(strings.TrimPrefix(string(data), "\ufeff"))
		if token == "" {
			return "", fmt.Errorf("read the token: %s is empty", c.TokenFile)
		}
		return token, nil
	case c.TokenCommand != "":
		return tokenOf(env, c.TokenCommand)
	}
	return "", nil
}

func (c *commands) app(env *environment) (*app, error) {
	token, err := c.token(env)
	if err != nil {
		return nil, err
	}
	if err := audit.CheckReason("--reason", c.Reason); err != nil {
		return nil, usageError{err}
	}
	tls := client.TLS{CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile, ServerName: c.ServerName}
	api, err := newAPIClient(c.Server, token, tls)
	if err != nil {
		return nil, usageError{err}
	}
	a := &app{environment: env, api: api, json: c.Output == "json", token: token, tls: tls, reason: c.Reason}
	a.nextToken = func() (string, error) { return c.token(env) }
	api.reason = c.Reason
	api.warnLost = func() { a.warn("it is done, but Redis could not record it in the audit; the replica's log has it") }
	// The URLs of WebSockets stand for the URLs of the API.
	if plain := strings.ReplaceAll(loopback.Plain(api.webSocketURL()), "ws://", "http://"); plain != "" {
		api.warnPlain = sync.OnceFunc(func() { a.warn("the token goes to %s in the clear; use https://", plain) })
	}
	return a, nil
}

// call sends a request to a replica, with body as JSON unless it is nil, and decodes the answer
// into out.
func (a *app) call(method, path string, query url.Values, body, out any) error {
	return a.callFor(0, method, path, query, body, out)
}

// callFor does what call does, with more time for the answer.
func (a *app) callFor(wait time.Duration, method, path string, query url.Values, body, out any) error {
	var content []byte
	if body != nil {
		var err error
		if content, err = encode(body); err != nil {
			return err
		}
	}
	return explain(a.api.call(a.ctx, method, path, query, content, wait, out))
}

// encode returns the JSON of v.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // a "<" would take six bytes, and a payload could grow beyond its bound
	err := enc.Encode(v)
	return bytes.TrimSpace(out.Bytes()), err
}

// warn writes a line to standard error: standard output is for other programs, too.
func (a *app) warn(format string, args ...any) {
	_, _ = fmt.Fprintf(a.err, "schedctl: "+format+"\n", args...)
}

// println writes a line to standard output, without control characters.
func (a *app) println(format string, args ...any) error {
	_, err := fmt.Fprintln(a.out, clean(fmt.Sprintf(format, args...)))
	return err
}

// readInput reads a file, or standard input if file is "-". name is for messages.
func (a *app) readInput(file, what string) (data []byte, name string, err error) {
	if name = file; file == "-" {
		name = "standard input"
		data, err = io.ReadAll(a.in)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, name, fmt.Errorf("read %s: %w", what, err)
	}
	return data, name, nil
}
