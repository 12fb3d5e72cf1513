//go:build unix

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	// stderrBytes is how much of the end of standard error goes into the job's error.
	stderrBytes = 4 << 10
	// pipeDelay is how long a process that left the group may hold the command's
	// output open after the command has ended.
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
	log      *zap.Logger
	// groups makes the groups of commands with limits; nil for those without. contain sets it, once: before the
	// first job or, where the limits could not be had then, at a later reload, beside jobs that look for it.
	groups atomic.Pointer[groups]
}

// newCommand makes an executor of a valid configuration; those with limits need contain too. The
// error continues a sentence that begins with the key of argv.
func newCommand(cfg Command, limit int, log *zap.Logger) (*commandExecutor, error) {
	path, err := cfg.program()
	if err != nil {
		return nil, err
	}
	args, _ := parseArgv(cfg.Argv) // valid
	return &commandExecutor{cfg: cfg, path: path, args: args, limit: limit, fixedEnv: fixedEnviron(cfg), log: log}, nil
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
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, errTimeout)
	defer cancel()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}

	group, err := c.group(job)
	if err != nil {
		return nil, err
	}
	if group != nil {
		defer c.remove(group, job)
	}
	progress, err := newProgressPipe(&teller{job: job, log: c.log})
	if err != nil {
		return nil, startFailed(err)
	}
	defer progress.close()

	stdout := &capped{limit: c.limit, exceeded: func() { stop(errTooLarge) }}
	stderr := &tail{limit: stderrBytes}
	cmd := exec.Command(c.path, args...)
	cmd.Args[0] = c.cfg.Argv[0]
	cmd.Dir, cmd.Env = c.cfg.Dir, c.environ(ctx, job)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), stdout, stderr
	cmd.ExtraFiles = progress.files()
	cmd.WaitDelay = pipeDelay
	cmd.SysProcAttr = procgroup.Attr()
	if group != nil {
		group.Attach(cmd.SysProcAttr)
	}
	// The parent-death signal belongs to the thread that forks, and idle threads of a
	// Go process may end: this goroutine keeps its thread until Wait has returned. A group
	// needs the thread too.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return nil, startFailed(err)
	}
	if group != nil {
		if err := group.Started(cmd.Process.Pid); err != nil {
			_ = cmd.Wait() // it was killed
			return nil, limitsFailed(err)
		}
	}
	progress.read()
	terminated, err := c.await(ctx, cmd, group)
	switch {
	case stdout.over:
		return nil, jobError(freeslot.JobErrorResultTooLarge, fmt.Sprintf("the command wrote more than %d bytes", c.limit))
	case terminated && errors.Is(context.Cause(ctx), errTimeout):
		return nil, jobError(CodeTimeout, withStderr(fmt.Sprintf("the command took longer than %s", c.cfg.Timeout), stderr))
	case terminated:
		return nil, context.Cause(ctx)
	case err != nil && group != nil && group.OutOfMemory():
		return nil, jobError(CodeOutOfMemory, withStderr(fmt.Sprintf("the command needed more than its limit of %d bytes of memory", c.cfg.Limits.MemoryBytes), stderr))
	case err != nil:
		return nil, exitError(err, stderr)
	}
	return c.result(stdout.data)
}

func (c *commandExecutor) result(data []byte) (any, error) {
	output := c.cfg.Output
	if output == OutputAuto {
		output = OutputText
		if json.Valid(data) && utf8.Valid(data) {
			output = OutputJSON
		}
	}
	return output.result(data)
}

// await waits until the command has ended, and ends it when ctx does. It reports
// whether the end was of its doing: a command that then exits with 0 has not done
// its work.
//
// The group is signalled only between Start and Wait. All that time its leader
// exists, if only as a zombie, so that its id cannot have become another group's.
func (c *commandExecutor) await(ctx context.Context, cmd *exec.Cmd, limited *cgroup.Group) (terminated bool, err error) {
	group := cmd.Process.Pid
	ended := make(chan struct{})
	var terminator sync.WaitGroup
	terminator.Go(func() { terminated = c.terminate(ctx, group, limited, ended) })
	procgroup.AwaitExit(group)
	close(ended)
	terminator.Wait()
	procgroup.Signal(group, syscall.SIGKILL) // what the command left behind
	if limited != nil {
		_ = limited.Kill() // also what left the process group; remove tells of failures
	}
	return terminated, cmd.Wait()
}

// killDoubt is how long a command may live after it was killed before the log says so.
const killDoubt = 10 * time.Second

// terminate ends the group when ctx does, unless its leader has ended before. What cannot be killed, as a program of
// another user cannot, keeps its slot until it ends.
func (c *commandExecutor) terminate(ctx context.Context, group int, limited *cgroup.Group, ended <-chan struct{}) bool {
	select {
	case <-ended:
		return false
	case <-ctx.Done():
	}
	procgroup.Signal(group, syscall.SIGTERM)
	timer := time.NewTimer(c.cfg.KillGrace)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
	}
	procgroup.Signal(group, syscall.SIGKILL)
	if limited != nil {
		_ = limited.Kill() // remove tells of failures
	}
	timer.Reset(killDoubt)
	select {
	case <-ended:
	case <-timer.C:
		c.log.Error("command.not_killed", zap.Int("pid", group), zap.String("program", c.path), zap.String(logging.FieldReason, "it lives on after SIGKILL: another user's, or stuck in the kernel"))
	}
	return true
}

// startFailed is of the moment where the node is short of something: it must not end every job that it gets.
func startFailed(err error) error {
	failure := jobError(CodeStartFailed, "the command could not be started: "+err.Error())
	for _, short := range []syscall.Errno{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, short) {
			return worker.Retryable(failure)
		}
	}
	return failure
}

// exitError says how the command ended.
func exitError(err error, stderr *tail) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		if errors.Is(err, exec.ErrWaitDelay) {
			return jobError(CodeBadOutput, "a process that the command left behind holds its output open")
		}
		return jobError(CodeStartFailed, "the command could not be run: "+err.Error())
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		// Most often the kernel, short of memory: another node may have more.
		return worker.Retryable(jobError(CodeSignalled, withStderr("the command was ended by signal "+strconv.Itoa(int(status.Signal()))+" ("+status.Signal().String()+")", stderr)))
	}
	failure := jobError("exit_"+strconv.Itoa(exit.ExitCode()), withStderr("the command exited with "+strconv.Itoa(exit.ExitCode()), stderr))
	if exit.ExitCode() == exitTempFail {
		return worker.Retryable(failure)
	}
	return failure
}

func withStderr(message string, stderr *tail) string {
	if text := stderr.String(); text != "" {
		return message + ": " + text
	}
	return message
}

// bytes is what goes to standard input.
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
