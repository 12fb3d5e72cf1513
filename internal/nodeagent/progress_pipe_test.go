//go:build unix

package nodeagent

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot/worker"
)

// The progress of a command, valid or not, does not affect its result, and never makes it wait.
// Commands with a logged line write more than a pipe holds: what is still in the pipe when the
// command has ended is dropped unread.
func TestCommandProgressHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		logged string
	}{
		"values":          {script: `i=0; while [ $i -lt 20000 ]; do echo "{\"step\":$i}" >&3; i=$((i+1)); done; echo 1`},
		"byte order mark": {script: `printf '\357\273\277{"step":1}\n' >&3; echo 1`},
		"blank lines":     {script: `head -c 200000 /dev/zero | tr '\0' '\n' >&3; echo 1`},
		"no JSON":         {script: `yes 50% | head -n 50000 >&3; echo 1`, logged: "progress cannot be encoded"},
		"too large":       {script: `i=0; while [ $i -lt 20 ]; do echo "\"$(head -c 5000 /dev/zero | tr '\0' x)\"" >&3; i=$((i+1)); done; echo 1`, logged: "expected at most 4096"},
		"one long line":   {script: `head -c 1000000 /dev/zero >&3; echo >&3; echo 1`, logged: "a line of progress has more than 8192 bytes"},
		"no end of line":  {script: `printf 1 >&3; echo 1`},
		"closed":          {script: `exec 3>&-; echo 1`},
		"the variable":    {script: `eval "echo 1 >&$FREESLOT_PROGRESS_FD"; echo $((FREESLOT_PROGRESS_FD-2))`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core, logs := observer.New(zap.WarnLevel)
			e := command(t, test.script)
			e.log = zap.New(core)
			result, err := e.run(t.Context(), testJob())
			if err != nil || text(t, result) != "1" {
				t.Errorf(`%v %v; want no error, text(t, result) == "1"`, result, err)
			}
			got := ""
			for _, entry := range logs.All() {
				got += fmt.Sprint(entry.Message, entry.ContextMap()["error"])
			}
			if test.logged == "" && got != "" || !strings.Contains(got, test.logged) || logs.Len() > 1 {
				t.Errorf("logged %q", got)
			}
		})
	}
}

// A process that left the group keeps the pipe open. The job ends all the same.
func TestCommandProgressEndsWithTheCommand(t *testing.T) {
	t.Parallel()
	path := fifo(t)
	e := command(t, `exec 4<>"$FIFO"; setsid sh -c 'read x <&4; echo 1 >&3' </dev/null >/dev/null 2>&1 & echo 1`, func(c *Command) { c.Env = map[string]string{"FIFO": path} })
	if result, err := e.run(t.Context(), testJob()); err != nil || text(t, result) != "1" {
		t.Errorf(`%v %v; want no error, text(t, result) == "1"`, result, err)
	}
	release(t, path)
}

func TestCommandProgressIsCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	path := fifo(t)
	e := command(t, `exec 4>"$FIFO"; echo $$ >&4; while :; do echo 1 >&3; done`, func(c *Command) { c.Env = map[string]string{"FIFO": path} })
	ended := make(chan error, 1)
	go func() {
		_, err := e.run(ctx, testJob())
		ended <- err
	}()
	f := begin(t, path)
	cancel(worker.ErrCancelled)
	if err := <-ended; err == nil || context.Cause(ctx) != err { //nolint:errorlint // the cause itself
		t.Errorf("error %v", err)
	}
	f.ended(t)
}

// release lets a process read a line from a FIFO that it holds open itself.
func release(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
}
