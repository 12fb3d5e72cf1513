//go:build unix

package nodeagent

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/worker"
)

// command is an executor of a shell script.
func command(t *testing.T, script string, change ...func(*Command)) *commandExecutor {
	t.Helper()
	cfg := Command{
		Argv: []string{"sh", "-c", script}, Timeout: time.Minute, KillGrace: time.Minute,
		PassEnv: []string{"PATH"}, Input: InputJSON, Output: OutputAuto,
	}
	for _, c := range change {
		c(&cfg)
	}
	e, err := newCommand(cfg, 100_000, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestCommandResults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script     string
		input      Input
		payload    string
		output     Output
		want       string
		code, says string
	}{
		"payload on stdin":         {script: "cat", want: `{"text":"hello"}`},
		"json":                     {script: "echo '[1, 2]'", want: `[1,2]`},
		"json, byte order mark":    {script: `printf '\357\273\277[1]'`, want: `[1]`},
		"forced json, marked":      {script: `printf '\357\273\277[1]'`, output: OutputJSON, want: `[1]`},
		"text, byte order mark":    {script: `printf '\357\273\277hi'`, want: "\"\ufeffhi\""},
		"text":                     {script: "echo hi", want: `"hi\n"`},
		"nothing":                  {script: "true", want: `""`},
		"forced text":              {script: "printf 42", output: OutputText, want: `"42"`},
		"json required":            {script: "echo hi", output: OutputJSON, code: CodeBadOutput, says: "not valid JSON"},
		"no output in base64":      {script: `true`, output: OutputBase64, want: `""`},
		"base64":                   {script: `printf '\377\376'`, output: OutputBase64, want: `"//4="`},
		"binary":                   {script: `printf '\377\376'`, code: CodeBadOutput, says: "output: base64"},
		"json not UTF-8":           {script: `printf '"\377"'`, code: CodeBadOutput, says: "output: base64"},
		"json required, not UTF-8": {script: `printf '"\377"'`, output: OutputJSON, code: CodeBadOutput, says: "output: base64"},
		"text on stdin":            {script: "cat", input: InputText, payload: `"zwei Wörter"`, want: `"zwei Wörter"`},
		"text required":            {script: "cat", input: InputText, code: CodeBadPayload, says: "not a JSON string"},
		"null is no text":          {script: "cat", input: InputText, payload: `null`, code: CodeBadPayload},
		"stdin not read":           {script: "exec <&-; echo 1", payload: `"` + strings.Repeat("x", 1<<20) + `"`, want: `1`},
		"exit code":                {script: "echo why >&2; exit 3", code: "exit_3", says: "exited with 3: why"},
		"quiet failure":            {script: "exit 1", code: "exit_1", says: "exited with 1"},
		"temporary failure":        {script: "echo busy >&2; exit 75", code: "exit_75", says: "exited with 75: busy"},
		"neighbouring exit code":   {script: "exit 74", code: "exit_74"},
		"signal":                   {script: "kill -9 $$", code: CodeSignalled, says: "signal 9 (killed)"},
		"stderr is no error":       {script: "echo 1; echo warning >&2", want: `1`},
		"end of stderr": {
			script: `i=0; while [ $i -lt 1000 ]; do echo "line $i" >&2; i=$((i+1)); done; exit 1`, code: "exit_1", says: "line 998\nline 999",
		},
		"too much": {script: "head -c 100001 /dev/zero", code: freeslot.JobErrorResultTooLarge, says: "more than 100000 bytes"},
		"endless":  {script: "cat /dev/zero", code: freeslot.JobErrorResultTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := command(t, test.script, func(c *Command) {
				c.Input, c.Output = cmp.Or(test.input, c.Input), cmp.Or(test.output, c.Output)
			})
			job := testJob()
			if test.payload != "" {
				job.Payload = json.RawMessage(test.payload)
			}
			result, err := e.run(t.Context(), job)
			if test.code != "" {
				wantCode(t, err, test.code, test.says)
				wantRetry(t, err, test.code == "exit_75" || test.code == CodeSignalled)
				if len(err.Error()) > stderrBytes+100 {
					t.Errorf("an error of %d bytes", len(err.Error()))
				}
				return
			}
			if err != nil || text(t, result) != test.want {
				t.Errorf("%v, %v, expected %s", text(t, result), err, test.want)
			}
		})
	}
}

func TestCommandEnvironment(t *testing.T) {
	t.Setenv("PASSED", "from the agent")
	t.Setenv("SECRET", "must stay here")
	e := command(t, "env; pwd", func(c *Command) {
		c.PassEnv = append(c.PassEnv, "PASSED", "NOT_SET")
		c.Env = map[string]string{"FIXED": "yes", "FREESLOT_ATTEMPT": "forged"}
		c.Dir = "/"
		c.Output = OutputText
	})
	job := testJob()
	job.Requirement.Pool = "p1"
	job.Payload = json.RawMessage(`{"text":"a\nb","n":1.50,"yes":true,"none":null,"list":[1],"obj":{},"bad name":"x","PATH":"evil","Text":"upper",
		"zero":"a\u0000b","long":"` + strings.Repeat("x", maxFieldBytes+1) + `"}`)
	result, err := e.run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	var out string
	if err := json.Unmarshal(result.(json.RawMessage), &out); err != nil {
		t.Fatal(err)
	}
	lines := "\n" + out
	for _, want := range []string{
		"PASSED=from the agent", "FIXED=yes", "PATH=" + os.Getenv("PATH"), "FREESLOT_JOB_ID=" + job.ID, "FREESLOT_ATTEMPT=2",
		"FREESLOT_TENANT=acme", "FREESLOT_SERVICE=tts", "FREESLOT_SLOTS=1", "FREESLOT_POOL=p1", "FREESLOT_TARGET_LANGUAGE=de-AT",
		"FREESLOT_PAYLOAD_N=1.50", "FREESLOT_PAYLOAD_YES=true", "FREESLOT_PAYLOAD_PATH=evil", "FREESLOT_PAYLOAD_TEXT=upper",
	} {
		if !strings.Contains(lines, "\n"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	for _, not := range []string{"SECRET", "NOT_SET", "SOURCE_LANGUAGE", "_NONE", "_LIST", "_OBJ", "BAD", "_ZERO", "_LONG", "TRACEPARENT"} {
		if strings.Contains(lines, not) {
			t.Errorf("there is %s in %s", not, lines)
		}
	}
	if !strings.HasSuffix(out, "\n/\n") {
		t.Errorf("working directory in %q", out)
	}
}

func TestPayloadFieldsAreBounded(t *testing.T) {
	t.Parallel()
	fields := map[string]int{}
	for i := range 2 * maxPayloadFields {
		fields[fmt.Sprintf("f%d", i)] = i
	}
	raw, _ := json.Marshal(fields)
	if got := len(appendPayloadFields(nil, raw)); got != maxPayloadFields {
		t.Errorf("%d variables", got)
	}
	for _, none := range []string{``, `null`, `"x"`, `[1]`, `{`} {
		if got := appendPayloadFields(nil, json.RawMessage(none)); len(got) != 0 {
			t.Errorf("%s gives %v", none, got)
		}
	}
}

// family is a command that has started another process, which ignores SIGTERM. Both hold the
// writing end of a pipe.
type family struct {
	pipe       *os.File
	lines      *bufio.Reader
	grandchild int
}

// begin waits until both run.
func begin(t *testing.T, path string) *family {
	t.Helper()
	pipe, err := os.OpenFile(path, os.O_RDONLY, 0) // waits for a writer
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pipe.Close() })
	f := &family{pipe: pipe, lines: bufio.NewReader(pipe)}
	line, err := f.lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if f.grandchild, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(f.grandchild, 0); err != nil {
		t.Fatalf("the grandchild does not run: %v", err)
	}
	return f
}

// ended waits until no process holds the pipe any more: the whole family has ended.
func (f *family) ended(t *testing.T) {
	t.Helper()
	if err := f.pipe.SetReadDeadline(time.Now().Add(waittest.Limit)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(f.lines); err != nil {
		t.Fatalf("process %d of the command still runs: %v", f.grandchild, err)
	}
}

func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCommandGroupEndsWithTheJob(t *testing.T) {
	t.Parallel()
	const deaf = `trap '' TERM; ` // inherited by what the shell starts
	for name, test := range map[string]struct {
		script  string
		grace   time.Duration
		timeout time.Duration
		cancel  error
		code    string // of the error; empty: the cause
	}{
		"cancelled, leader heeds SIGTERM": {
			script: `sh -c "trap '' TERM; echo \$\$ >&3; while :; do read x; done" <&4 & trap 'exit 0' TERM; wait`,
			grace:  time.Minute, cancel: worker.ErrCancelled,
		},
		"cancelled, nobody heeds SIGTERM": {
			script: deaf + `sleep 1000 & echo $! >&3; wait`, grace: 50 * time.Millisecond, cancel: worker.ErrCancelled,
		},
		"stalled": {
			script: deaf + `sleep 1000 & echo $! >&3; wait`, grace: 10 * time.Millisecond, cancel: worker.ErrStalled,
		},
		"timeout": {
			script: deaf + `sleep 1000 & echo $! >&3; wait`, grace: 10 * time.Millisecond, timeout: 300 * time.Millisecond, code: CodeTimeout,
		},
		"too much output": {
			script: deaf + `sleep 1000 & echo $! >&3; cat /dev/zero`, grace: 10 * time.Millisecond, code: freeslot.JobErrorResultTooLarge,
		},
		"leader fails": {script: `sleep 1000 & echo $! >&3; exit 3`, grace: time.Minute, code: "exit_3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := fifo(t)
			// Reading 4 blocks for ever.
			e := command(t, `exec 3>"$FIFO" 4<>"$FIFO.idle"; `+test.script, func(c *Command) {
				c.Env = map[string]string{"FIFO": path}
				c.KillGrace, c.Timeout = test.grace, cmp.Or(test.timeout, c.Timeout)
			})
			if err := syscall.Mkfifo(path+".idle", 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			failed := make(chan error, 1)
			go func() {
				_, err := e.run(ctx, testJob())
				failed <- err
			}()
			f := begin(t, path)
			if test.cancel != nil {
				cancel(test.cancel)
			}
			err := <-failed
			f.ended(t)
			if test.code == "" {
				if !errors.Is(err, test.cancel) {
					t.Errorf("error %v", err)
				}
				return
			}
			wantCode(t, err, test.code, "")
		})
	}
}

// Processes that a command leaves behind in its group end with it, also after success.
func TestCommandLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	path := fifo(t)
	e := command(t, `exec 3>"$FIFO"; sleep 1000 & echo $! >&3; echo '"done"'`, func(c *Command) { c.Env = map[string]string{"FIFO": path} })
	type end struct {
		result any
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		result, err := e.run(t.Context(), testJob())
		ended <- end{result, err}
	}()
	pipe, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	(&family{pipe: pipe, lines: bufio.NewReader(pipe)}).ended(t)
	if got := <-ended; got.err != nil || text(t, got.result) != `"done"` {
		t.Errorf("%v %v; want no error, text(t, got.result) == `\"done\"`", got.result, got.err)
	}
}

func TestCommandEndedContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(worker.ErrNotOwned)
	marker := filepath.Join(t.TempDir(), "ran")
	if _, err := command(t, "touch "+marker).run(ctx, testJob()); !errors.Is(err, worker.ErrNotOwned) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the command ran")
	}
}

func TestCommandCannotStart(t *testing.T) {
	t.Parallel()
	if _, err := newCommand(Command{Argv: []string{"no-such-program"}}, 1, zap.NewNop()); err == nil || !strings.HasPrefix(err.Error(), `begins with "no-such-program", which cannot be run`) {
		t.Errorf("error %v", err)
	}
	_, err := command(t, "true", func(c *Command) { c.Dir = "/no/such/folder" }).run(t.Context(), testJob())
	wantCode(t, err, CodeStartFailed, "no such file or directory")
}

func TestTail(t *testing.T) {
	t.Parallel()
	for _, chunks := range [][]string{{"abcdefghij"}, {"abc", "defgh", "ij"}, {"abcdefghi", "j"}, {"", "a", "bcdefghij"}} {
		tl := &tail{limit: 4}
		for _, c := range chunks {
			if n, err := tl.Write([]byte(c)); n != len(c) || err != nil {
				t.Fatal(n, err)
			}
		}
		if got := tl.String(); got != "…ghij" {
			t.Errorf("%q gives %s", chunks, got)
		}
	}
	whole := &tail{limit: 4}
	_, _ = whole.Write([]byte("a\xff\n"))
	if got := whole.String(); got != "a\uFFFD" {
		t.Errorf(`%q; want got == "a\uFFFD"`, got)
	}
}

// A node that is short of processes or files can recover, or another node can run the job. A
// missing program stays missing.
func TestStartFailed(t *testing.T) {
	t.Parallel()
	for errno, retry := range map[syscall.Errno]bool{syscall.EAGAIN: true, syscall.EMFILE: true, syscall.ENFILE: true, syscall.ENOMEM: true, syscall.ENOENT: false, syscall.E2BIG: false} {
		err := startFailed(&os.PathError{Op: "fork/exec", Path: "/x", Err: errno})
		wantCode(t, err, CodeStartFailed, "could not be started")
		wantRetry(t, err, retry)
	}
}
