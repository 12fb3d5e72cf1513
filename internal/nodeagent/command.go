//go:build unix

package nodeagent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/node/cgroup"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/process/procgroup"
	"github.com/freeslot/freeslot/worker"
)

const (
	// stderrBytes is the size of the end of standard error that goes into the job's error.
	stderrBytes = 4 << 10
	// pipeDelay is how long a process that left the group may hold the command's output open after
	// the command has ended.
	pipeDelay = time.Second
	// exitTempFail is EX_TEMPFAIL of sysexits.h: try again later.
	exitTempFail = 75
)

// errTooLarge is the cause of a context that ended because of too much output.
var errTooLarge = errors.New("too much output")

// commandExecutor runs jobs by processes. It is safe for concurrent use.
type commandExecutor struct {
	cfg      Command
	path     string
	args     *template
	limit    int
	fixedEnv []string
	as       *account // nil for the agent's user
	log      *zap.Logger
	// groups makes the group of each job; nil for a command without limits. contain sets it once:
	// before the first job, or at a later reload if the limits could not be set before. Jobs may
	// read it meanwhile.
	groups atomic.Pointer[groups]
}

// newCommand makes an executor of a valid configuration. If it has limits, call contain too. The
// error continues a sentence that begins with the key of argv.
func newCommand(cfg Command, limit int, log *zap.Logger) (*commandExecutor, error) {
	path, err := cfg.program()
	if err != nil {
		return nil, err
	}
	as, err := cfg.account()
	if err != nil {
		return nil, fmt.Errorf("cannot run, because user %w", err)
	}
	args, _ := parseArgv(cfg.Argv) // valid by now
	return &commandExecutor{
		cfg: cfg, path: path, args: args, limit: limit, fixedEnv: fixedEnviron(cfg, as), as: as, log: log,
	}, nil
}

// run is the handler.
func (c *commandExecutor) run(ctx context.Context, job *worker.Job) (any, error) {
	stdin, err := c.cfg.Input.bytes(payload(job))
	if err != nil {
		return nil, err
	}
	args, err := c.args.expand(job)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, errTimeout)
	defer cancel()
	group, err := c.group(job)
	if err != nil {
		return nil, err
	}
	if group != nil {
		defer c.remove(group, job)
	}
	progress, err := newProgressPipe(&progressReporter{job: job, log: c.log})
	if err != nil {
		return nil, startFailed(err)
	}
	defer progress.close()

	cmd := c.command(args, c.environ(ctx, job))
	cmd.Stdin, cmd.ExtraFiles = bytes.NewReader(stdin), []*os.File{progress.write}
	done, err := c.execute(ctx, cmd, group, progress.read)
	switch {
	case err != nil:
		return nil, err
	case done.stdout.over:
		return nil, jobError(freeslot.JobErrorResultTooLarge, fmt.Sprintf("the command wrote more than %d bytes", c.limit))
	case done.terminated && errors.Is(context.Cause(ctx), errTimeout):
		return nil, jobError(CodeTimeout, done.withStderr(fmt.Sprintf("the command took longer than %s", c.cfg.Timeout)))
	case done.terminated:
		return nil, context.Cause(ctx)
	case done.err != nil && group != nil && group.OutOfMemory():
		return nil, jobError(
			CodeOutOfMemory,
			done.withStderr(fmt.Sprintf(
				"the command needed more than its limit of %d bytes of memory", c.cfg.Limits.MemoryBytes,
			)),
		)
	case done.err != nil:
		return nil, done.failure()
	}
	return c.result(done.stdout.data)
}

func (c *commandExecutor) command(args, env []string) *exec.Cmd {
	cmd := exec.Command(c.path, args...)
	cmd.Args[0] = c.cfg.Argv[0]
	cmd.Dir, cmd.Env, cmd.WaitDelay = c.cfg.Dir, env, pipeDelay
	return cmd
}

// execution tells how a command ended.
type execution struct {
	stdout *capped
	stderr *tail
	// terminated is true if the command ended because its context did, or because it wrote too
	// much.
	terminated bool
	err        error // from exec.Cmd.Wait
}

// execute runs cmd, in group unless that is nil, and waits until it has ended. It calls started
// when the command runs. The error is the reason that the command did not run.
func (c *commandExecutor) execute(
	ctx context.Context, cmd *exec.Cmd, group *cgroup.Group, started func(),
) (execution, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if ctx.Err() != nil {
		return execution{}, context.Cause(ctx)
	}
	done := execution{
		stdout: &capped{limit: c.limit, exceeded: func() { stop(errTooLarge) }}, stderr: &tail{limit: stderrBytes},
	}
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = done.stdout, done.stderr, procgroup.Attr()
	if group != nil {
		group.Attach(cmd.SysProcAttr)
	}
	// The parent-death signal belongs to the thread that forks, and idle threads of a Go process
	// may end. So this goroutine keeps its thread until Wait has returned. A group needs the thread
	// too.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.as.switchTo(cmd.SysProcAttr); err != nil {
		return execution{}, startFailed(err)
	}
	if err := cmd.Start(); err != nil {
		return execution{}, startFailed(err)
	}
	if group != nil {
		if err := group.Started(cmd.Process.Pid); err != nil {
			_ = cmd.Wait() // it was killed
			return execution{}, limitsFailed(err)
		}
	}
	started()
	done.terminated, done.err = c.await(ctx, cmd, group)
	return done, nil
}

func (c *commandExecutor) result(data []byte) (any, error) {
	output := c.cfg.Output
	if output == OutputAuto {
		output = OutputText
		if json.Valid(withoutMark(data)) && utf8.Valid(data) {
			output = OutputJSON
		}
	}
	return output.result(data)
}

// await waits until the command has ended, and terminates it when ctx ends. terminated is then
// true: a command that exits with 0 after that has left its work unfinished.
//
// await signals the process group only between Start and Wait. All that time its leader exists, if
// only as a zombie, so no other group can have its id.
func (c *commandExecutor) await(
	ctx context.Context, cmd *exec.Cmd, limited *cgroup.Group,
) (terminated bool, err error) {
	group := cmd.Process.Pid
	ended := make(chan struct{})
	var terminator sync.WaitGroup
	terminator.Go(func() { terminated = c.terminate(ctx, group, limited, ended) })
	procgroup.AwaitExit(group)
	close(ended)
	terminator.Wait()
	procgroup.Signal(group, syscall.SIGKILL) // processes that the command left behind
	if limited != nil {
		_ = limited.Kill() // also those outside the process group; remove logs failures
	}
	return terminated, cmd.Wait()
}

// killDoubt is how long a command may live after SIGKILL before that is logged.
const killDoubt = 10 * time.Second

// terminate ends the group when ctx ends, unless its leader has ended before. A command that cannot
// be killed, such as one under sudo, keeps its slot until it ends.
func (c *commandExecutor) terminate(ctx context.Context, group int, limited *cgroup.Group, ended <-chan struct{}) bool {
	select {
	case <-ended:
		return false
	case <-ctx.Done():
	}
	procgroup.Signal(group, syscall.SIGTERM)
	select {
	case <-ended:
		return true
	case <-time.After(c.cfg.KillGrace):
	}
	procgroup.Signal(group, syscall.SIGKILL)
	if limited != nil {
		_ = limited.Kill() // remove logs failures
	}
	select {
	case <-ended:
	case <-time.After(killDoubt):
		c.log.Error(
			"command.not_killed", zap.Int("pid", group), zap.String("program", c.path),
			zap.String(logging.FieldReason, "it lives on after SIGKILL: another user's, or stuck in the kernel"),
		)
	}
	return true
}

// startFailed returns a retryable error if the node is short of something: such a node must not
// fail every job that it gets.
func startFailed(err error) error {
	failure := jobError(CodeStartFailed, "the command could not be started: "+err.Error())
	for _, short := range []syscall.Errno{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, short) {
			return worker.Retryable(failure)
		}
	}
	return failure
}

// failure returns the error that tells how the command ended; nil for success.
func (e *execution) failure() error {
	exit, ok := errors.AsType[*exec.ExitError](e.err)
	if !ok {
		if errors.Is(e.err, exec.ErrWaitDelay) {
			return jobError(CodeBadOutput, "a process that the command left behind holds its output open")
		}
		return jobError(CodeStartFailed, "the command could not be run: "+e.err.Error())
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		// Most often the kernel, because it is short of memory: another node may have more.
		return worker.Retryable(jobError(
			CodeSignalled,
			e.withStderr(
				"the command was ended by signal "+strconv.Itoa(int(status.Signal()))+" ("+status.Signal().String()+")",
			),
		))
	}
	failure := jobError(
		"exit_"+strconv.Itoa(exit.ExitCode()), e.withStderr("the command exited with "+strconv.Itoa(exit.ExitCode())),
	)
	if exit.ExitCode() == exitTempFail {
		return worker.Retryable(failure)
	}
	return failure
}

func (e *execution) withStderr(message string) string {
	if text := e.stderr.String(); text != "" {
		return message + ": " + text
	}
	return message
}

// bytes returns the standard input for a payload.
func (i Input) bytes(payload json.RawMessage) ([]byte, error) {
	if i != InputText {
		return payload, nil
	}
	var text *string
	if err := json.Unmarshal(payload, &text); err != nil || text == nil {
		return nil, jobError(CodeBadPayload, "the payload is not a JSON string")
	}
	return []byte(*text), nil
}
