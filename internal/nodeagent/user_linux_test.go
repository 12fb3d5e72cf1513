package nodeagent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/worker"
)

const (
	// other is the user that commands of these tests run as.
	other = "daemon"
	// plainVariable names the user that TestPlainAgentProcess lets a command run as.
	plainVariable = "FREESLOT_TEST_COMMAND_USER"
	// whoAmI prints user, groups, HOME, USER, and the capabilities that the process has.
	whoAmI = `echo $(id -un) $(id -G) $HOME $USER $(sed -n 's/^Cap\(Prm\|Eff\|Amb\):\t*//p' /proc/self/status | sort -u)`
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 || len(missingPowers()) > 0 {
		t.Skip("only root may let a command run as another user")
	}
	if _, err := user.Lookup(other); err != nil {
		t.Skipf("this machine has no user %s", other)
	}
}

// wantOther is what whoAmI prints for the other user.
func wantOther(t *testing.T) string {
	t.Helper()
	groups, err := exec.Command("id", "-G", other).Output()
	if err != nil {
		t.Fatal(err)
	}
	u, err := user.Lookup(other)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join([]string{other, strings.TrimSpace(string(groups)), u.HomeDir, other, "0000000000000000"}, " ")
}

// openDir is a directory that every user may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "freeslot")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func openFifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(openDir(t), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// said runs a command and returns what it wrote.
func said(t *testing.T, e *commandExecutor) string {
	t.Helper()
	result, err := e.run(t.Context(), testJob())
	if err != nil {
		return err.Error()
	}
	var out string
	if err := json.Unmarshal([]byte(text(t, result)), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func asOther(c *Command) { c.User = other }

func TestCommandAsAnotherUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := openDir(t)
	e := command(t, whoAmI+`; pwd; cat; echo '{"step":1}' >&3`, asOther, func(c *Command) {
		c.Dir, c.PassEnv = dir, []string{"PATH", "HOME"}
	})
	if got, want := said(t, e), wantOther(t)+"\n"+dir+"\n"+`{"text":"hello"}`; got != want {
		t.Errorf("the command wrote %q; want %q", got, want)
	}
	e = command(t, "echo $HOME", asOther, func(c *Command) { c.Env = map[string]string{"HOME": "/srv"} })
	if got := said(t, e); got != "/srv\n" {
		t.Errorf("HOME is %q; want the configured one", got)
	}
}

// Commands of another user end as others do: with their job, and with their agent.
func TestCommandOfAnotherUserEnds(t *testing.T) {
	t.Parallel()
	needRoot(t)
	path := openFifo(t)
	e := command(t, `exec 3>"$FIFO"; trap '' TERM; sleep 1000 & echo $! >&3; wait`, asOther, func(c *Command) {
		c.Env, c.KillGrace = map[string]string{"FIFO": path}, 10*time.Millisecond
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := e.run(ctx, testJob())
		failed <- err
	}()
	f := begin(t, path)
	cancel(worker.ErrCancelled)
	if err := waittest.Receive(t, "the end of the job", failed); err != worker.ErrCancelled { //nolint:errorlint // the cause itself
		t.Errorf("the job ended with %v; want %v", err, worker.ErrCancelled)
	}
	f.ended(t)
	checkEndsWithTheAgent(t, openFifo(t), other)
}

func TestUserIsChecked(t *testing.T) {
	t.Parallel()
	needRoot(t)
	closed := filepath.Join(openDir(t), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	tool := filepath.Join(openDir(t), "tool")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(tool, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ command, want string }{
		"good":   {`argv: [sh], user: ` + other, ""},
		"itself": {`argv: [sh], user: root`, ""},
		"unknown": {
			`argv: [sh], user: no-such-user`, `services[0].command.user is "no-such-user", which is no user of this machine`,
		},
		"directory": {`argv: [sh], user: daemon, dir: ` + closed, `who may not enter the working directory ` + closed},
		"program": {
			`argv: [` + tool + `], user: daemon`, `services[0].command.user is "daemon", who may not run ` + tool,
		},
		"no program":  {`argv: [no-such-program], user: daemon`, `services[0].command.argv begins with "no-such-program"`},
		"no argument": {`user: daemon`, `services[0].command.argv is empty`},
	} {
		_, err := load(t, "services: [{name: a, command: {"+c.command+"}}]")
		if err == nil != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// Without root these tests can at least see the refusal.
func TestUserIsRefused(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("TestPlainAgent shows the refusal, by an agent that is not root")
	}
	_, err := load(t, "services: [{name: a, command: {argv: [sh], user: root}}]")
	if err == nil || !strings.Contains(err.Error(), "lacks CAP_SETUID") {
		t.Errorf("the configuration is loaded with %v; want a refusal that names CAP_SETUID", err)
	}
}

// TestPlainAgentProcess is not a test but the agent that TestPlainAgent starts as another user.
func TestPlainAgentProcess(t *testing.T) {
	name, ok := os.LookupEnv(plainVariable)
	if !ok {
		t.Skip("only run by TestPlainAgent")
	}
	_, err := load(t, "services: [{name: a, command: {argv: [sh], user: "+name+"}}]")
	if err != nil {
		fmt.Println("refused:", err)
		return
	}
	// A command of the agent's own user must not get the agent's capabilities either.
	for _, as := range []string{name, ""} {
		fmt.Printf("as %q: %s", as, said(t, command(t, whoAmI, func(c *Command) { c.User = as })))
	}
	e := command(t, "trap '' TERM; while :; do sleep 1; done", func(c *Command) {
		c.User, c.Timeout, c.KillGrace = name, 100*time.Millisecond, 10*time.Millisecond
	})
	_, err = e.run(t.Context(), testJob())
	fmt.Println("ended:", err)
}

// An agent that is not root lets commands run as another user only with the capabilities for it,
// which no command gets.
func TestPlainAgent(t *testing.T) {
	t.Parallel()
	needRoot(t)
	nobody, err := lookUp("nobody")
	if err != nil {
		t.Skipf("no user nobody: %v", err)
	}
	program := filepath.Join(openDir(t), "agent.test")
	copyProgram(t, program)
	run := func(as string, ambient ...uintptr) string {
		cmd := exec.CommandContext(waittest.Context(t), program, "-test.run=^TestPlainAgentProcess$", "-test.v")
		cmd.Dir, cmd.Env = "/", append(os.Environ(), plainVariable+"="+as)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody.credential, AmbientCaps: ambient}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("the agent ended with %v; want no error\n%s", err, out)
		}
		return string(out)
	}
	for name, c := range map[string]struct {
		out  string
		want []string
	}{
		"without capabilities": {run(other), []string{
			`refused: services[0].command.user is "daemon", and the agent, which runs as user `,
			"lacks CAP_SETUID, CAP_SETGID, CAP_KILL",
		}},
		"with one": {run(other, unix.CAP_SETUID), []string{"lacks CAP_SETGID, CAP_KILL"}},
		"with all": {run(other, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_KILL), []string{
			`as "daemon": ` + wantOther(t) + "\n", `as "": nobody `, " 0000000000000000\n",
			"ended: timeout: the command took longer",
		}},
		"itself": {run("nobody"), []string{`as "nobody": nobody `, "ended: timeout"}},
	} {
		for _, want := range c.want {
			if !strings.Contains(c.out, want) {
				t.Errorf("%s: %s\nwant %q", name, c.out, want)
			}
		}
	}
}

// copyProgram copies this program to a file that every user may run.
func copyProgram(t *testing.T, to string) {
	t.Helper()
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Chmod(0o755); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
