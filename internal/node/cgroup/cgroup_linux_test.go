package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// onV1 opens a manager on this machine's cgroups. If that fails the test is skipped with the
// reason.
func onV1(t *testing.T, l Limits) *Manager {
	t.Helper()
	at, err := find()
	if err != nil {
		t.Fatal(err)
	}
	if words, _ := words(filepath.Join(at.v2, "cgroup.controllers")); len(words) > 0 {
		t.Skip("a v2 hierarchy with controllers: opening it would move this process, the tests in processes of their own do")
	}
	m, err := openV1(at.v1)
	if err != nil {
		t.Skipf("no cgroup v1 can be made here: %v", err)
	}
	t.Cleanup(func() { closed(t, m) })
	if err := m.Supports(l); err != nil {
		t.Skipf("the limits cannot be set here: %v", err)
	}
	return m
}

// onV2 opens a manager on a v2 hierarchy for groups without limits.
func onV2(t *testing.T) *Manager {
	t.Helper()
	at, err := find()
	if err != nil {
		t.Fatal(err)
	}
	if at.v2 == "" {
		t.Skip("no v2 hierarchy is mounted here")
	}
	if _, err := os.Stat(filepath.Join(at.v2, "cgroup.type")); err == nil {
		at.v2 = filepath.Join(at.v2, leafName) // as if moved already: this process must stay where it is
	}
	m, err := openV2(at.v2)
	if err != nil {
		t.Skipf("no cgroup v2 can be made here: %v", err)
	}
	t.Cleanup(func() { closed(t, m) })
	return m
}

func closed(t *testing.T, m *Manager) {
	t.Helper()
	homes := m.homes
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	for _, h := range homes {
		if _, err := os.Stat(h.dir); err == nil {
			t.Errorf("%s is left", h.dir)
		}
	}
}

// process is a shell in a group.
type process struct {
	t     *testing.T
	group *Group
	cmd   *exec.Cmd
	out   *bufio.Reader
	in    io.WriteCloser
}

// run starts a script in a new group. It reads from a pipe; the test holds the other end.
func run(t *testing.T, m *Manager, l Limits, script string) *process {
	t.Helper()
	g, err := m.Create(strings.ReplaceAll(t.Name(), "/", "-"), l)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, group: g, cmd: exec.Command("sh", "-c", script)}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	g.Attach(p.cmd.SysProcAttr)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
		_ = p.cmd.Wait() // some were waited for, and others killed
		for _, dir := range g.dirs {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s is left", dir)
			}
		}
	})
	if err := g.Started(p.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func file(t *testing.T, parts ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// dirOf is the group's directory in the hierarchy of one controller.
func dirOf(t *testing.T, m *Manager, g *Group, controller string) string {
	t.Helper()
	for i, h := range m.homes {
		if strings.Contains(strings.Join(h.controllers, ","), controller) {
			return g.dirs[i]
		}
	}
	t.Fatal("no " + controller)
	return ""
}

// The command runs its first instruction in the group: a shell that reads its own membership at
// once finds itself there.
func TestStartsInside(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *Manager{
		"v1": func(t *testing.T) *Manager { return onV1(t, Limits{}) },
		"v2": onV2,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := open(t)
			p := run(t, m, Limits{}, "cat /proc/self/cgroup; echo end")
			got := ""
			for line := p.line(); line != "end"; line = p.line() {
				got += line + "\n"
			}
			for _, dir := range p.group.dirs {
				if !strings.Contains(got, filepath.Base(filepath.Dir(dir))+"/"+filepath.Base(dir)+"\n") {
					t.Errorf("not in %s:\n%s", dir, got)
				}
			}
			if p.group.OutOfMemory() {
				t.Error("out of memory")
			}
		})
	}
}

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	l := Limits{MemoryBytes: 32 << 20}
	m := onV1(t, l)
	// tail keeps the whole of a line without an end.
	p := run(t, m, l, "read x; head -c 200000000 /dev/zero | tail >/dev/null; echo $?")
	if got := file(t, p.group.memory, "memory.limit_in_bytes"); got != strconv.Itoa(32<<20) {
		t.Error(got)
	}
	if p.group.OutOfMemory() {
		t.Error("out of memory too early")
	}
	_, _ = io.WriteString(p.in, "go\n")
	if got := p.line(); got != "137" {
		t.Errorf("exit code %s", got)
	}
	if !p.group.OutOfMemory() {
		t.Error("the kill is not seen")
	}
}

// A kill by hand does not count as a kill by the limit.
func TestOtherKillsAreNotTheLimits(t *testing.T) {
	t.Parallel()
	l := Limits{MemoryBytes: 32 << 20}
	p := run(t, onV1(t, l), l, "kill -9 $$")
	_ = p.cmd.Wait() // it was killed
	if p.group.OutOfMemory() {
		t.Error("out of memory")
	}
}

func TestPIDsLimit(t *testing.T) {
	t.Parallel()
	l := Limits{PIDs: 20}
	m := onV1(t, l)
	p := run(t, m, l, `f() { f & f; }; f 2>/dev/null`) // a fork bomb
	dir := dirOf(t, m, p.group, pids)
	waittest.Until(t, "the limit to be met", func() bool { return count(dir, "pids.events", "max") > 0 })
	peak, err := strconv.Atoi(file(t, dir, "pids.current"))
	if err != nil || peak > 20 {
		t.Errorf("%d processes, %v", peak, err)
	}
	if err := p.group.Kill(); err != nil {
		t.Error(err)
	}
	_ = p.cmd.Wait() // it was killed
	if left := members(p.group.dirs); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

func TestCPULimit(t *testing.T) {
	t.Parallel()
	l := Limits{CPUs: 0.05}
	m := onV1(t, l)
	p := run(t, m, l, "while :; do :; done")
	dir := dirOf(t, m, p.group, cpu)
	if got := file(t, dir, "cpu.cfs_quota_us") + " " + file(t, dir, "cpu.cfs_period_us"); got != "5000 100000" {
		t.Error(got)
	}
	waittest.Until(t, "the process to be throttled", func() bool { return count(dir, "cpu.stat", "nr_throttled") > 0 })
}

// A process that leaves the process group and the session stays in the cgroup, and ends with it.
func TestKillReachesDaemons(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *Manager{
		"v1": func(t *testing.T) *Manager { return onV1(t, Limits{}) },
		"v2": onV2,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := run(t, open(t), Limits{}, `setsid sh -c 'trap "" TERM HUP; echo $$; sleep 1000; echo x' & wait $!; exit`)
			daemon, err := strconv.Atoi(p.line())
			if err != nil {
				t.Fatal(err)
			}
			fd, err := unix.PidfdOpen(daemon, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := p.group.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := unix.PidfdSendSignal(fd, 0, nil, 0); !errors.Is(err, unix.ESRCH) && !zombie(daemon) {
				t.Errorf("the daemon runs: %v", err)
			}
			_ = p.cmd.Wait() // it was killed
		})
	}
}

func zombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(data), ") Z ") || strings.Contains(string(data), ") X ")
}

// A command may make cgroups in its own.
func TestRemoveWithCgroupsBelow(t *testing.T) {
	t.Parallel()
	p := run(t, onV2(t), Limits{}, "read dir; mkdir $dir/a $dir/a/b; sh -c \"echo \\$\\$ >$dir/a/b/cgroup.procs; echo there; exec sleep 1000\"")
	_, _ = io.WriteString(p.in, p.group.dirs[0]+"\n")
	p.line()
	if got := members(p.group.dirs); len(got) != 2 {
		t.Errorf("members %v", got)
	}
	if err := p.group.Remove(); err != nil {
		t.Error(err)
	}
}

// A command that cannot be moved is killed before it has run.
func TestStartedFails(t *testing.T) {
	t.Parallel()
	m := onV1(t, Limits{})
	g, err := m.Create("gone", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	marker := filepath.Join(t.TempDir(), "ran")
	cmd := exec.Command("touch", marker)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	g.Attach(cmd.SysProcAttr)
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Started(cmd.Process.Pid); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it ran")
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("it ran")
	}
}

// holder is set in a process that opens a manager, starts a daemon in a group, and waits until it
// is killed.
const holder = "FREESLOT_TEST_CGROUP_HOLDER"

// TestHolder is not a test but the process of TestLeftoversAreRemoved.
func TestHolder(t *testing.T) {
	if os.Getenv(holder) == "" {
		t.Skip("only run by TestLeftoversAreRemoved")
	}
	p := run(t, onV2(t), Limits{}, "echo $$; exec sleep 1000 <&- >&-")
	fmt.Println("running", p.line(), p.group.dirs[0])
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestLeftoversAreRemoved(t *testing.T) {
	t.Parallel()
	onV2(t)
	owner := exec.Command(os.Args[0], "-test.run=^TestHolder$")
	owner.Env = append(os.Environ(), holder+"=1")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := owner.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var dir string
	if _, err := fmt.Fscanln(out, new(string), &pid, &dir); err != nil {
		t.Fatal(err)
	}
	onV2(t) // beside an owner that lives
	if _, err := os.Stat(dir); err != nil || zombie(pid) {
		t.Fatalf("what has an owner was removed: %v", err)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // it was killed
	onV2(t)
	// A manager of another test may be removing them at the same time.
	waittest.Until(t, "the removal of the killed owner's directory and process", func() bool {
		_, err := os.Stat(filepath.Dir(dir))
		return err != nil && zombie(pid)
	})
}

// mover is the cgroup of a process that moves to a leaf.
const mover = "FREESLOT_TEST_CGROUP_MOVER"

// TestMover is not a test but the process of TestMovesIntoALeaf.
func TestMover(t *testing.T) {
	dir := os.Getenv(mover)
	if dir == "" {
		t.Skip("only run by TestMovesIntoALeaf")
	}
	m, err := openV2(dir)
	if err != nil {
		t.Fatal(err)
	}
	if at, err := find(); err != nil || at.v2 != filepath.Join(dir, leafName) {
		t.Errorf("in %+v, %v", at, err)
	}
	again, err := openV2(filepath.Join(dir, leafName)) // as after a restart within the unit
	if err != nil || filepath.Dir(again.homes[0].dir) != dir {
		t.Errorf("%+v, %v; want no error, filepath.Dir(again.homes[0].dir) == %v", again, err, dir)
	}
	closed(t, again)
	closed(t, m)
}

func TestMovesIntoALeaf(t *testing.T) {
	t.Parallel()
	m := onV2(t)
	g, err := m.Create("unit", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestMover$", "-test.v")
	cmd.Env = append(os.Environ(), mover+"="+g.dirs[0])
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	g.Attach(cmd.SysProcAttr)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestMover") {
		t.Errorf("%v\n%s; want no error, strings.Contains(string(out), \"--- PASS: TestMover\")", err, out)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}

// plain makes a directory with the files that the kernel makes in a cgroup.
func plain(t *testing.T, dir string, files ...string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLimitFiles(t *testing.T) {
	t.Parallel()
	l := Limits{MemoryBytes: 64 << 20, CPUs: 1.5, PIDs: 7}
	for name, test := range map[string]struct {
		v2   bool
		want map[string]string
		// missing are files that not all kernels have.
		missing []string
	}{
		"v2": {v2: true, want: map[string]string{"memory.max": "67108864", "memory.swap.max": "0", "memory.oom.group": "1", "cpu.max": "150000 100000", "pids.max": "7"}},
		"v1": {want: map[string]string{
			"memory.limit_in_bytes": "67108864", "memory.memsw.limit_in_bytes": "67108864", "memory.swappiness": "0",
			"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000", "pids.max": "7",
		}},
		"v2 without swap": {v2: true, want: map[string]string{"memory.max": "67108864", "cpu.max": "150000 100000", "pids.max": "7"}},
		"v1 without swap": {want: map[string]string{"memory.limit_in_bytes": "67108864", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000", "pids.max": "7"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file := range test.want {
				plain(t, dir, file)
			}
			if err := limit(test.v2, dir, []string{memory, cpu, pids}, l); err != nil {
				t.Fatal(err)
			}
			for name, want := range test.want {
				if got := file(t, dir, name); got != want {
					t.Errorf("%s is %q, expected %q", name, got, want)
				}
			}
			if err := limit(test.v2, dir, nil, l); err != nil {
				t.Errorf("without controllers: %v", err)
			}
			if err := limit(test.v2, t.TempDir(), []string{pids}, l); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a limit that cannot be set: %v", err)
			}
		})
	}
}

// TestOpenV2 runs on plain files. Only a machine with controllers can show whether the kernel
// accepts it.
func TestOpenV2(t *testing.T) {
	t.Parallel()
	unit := t.TempDir()
	plain(t, unit, "cgroup.type", "cgroup.subtree_control", "cgroup.procs")
	if _, err := openV2(unit, memory, cpu, pids); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("not a cgroup: %v", err)
	}
	plain(t, unit, "cgroup.controllers")
	if _, err := openV2(unit, memory, pids); err == nil || err.Error() != unit+" has none of the controllers memory, pids" {
		t.Errorf("error %v", err)
	}
	if err := os.WriteFile(filepath.Join(unit, "cgroup.controllers"), []byte("cpuset cpu pids\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := makeInner(unit, true, []string{cpu}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a leaf without cgroup.procs: %v", err)
	}
	plain(t, filepath.Join(unit, leafName), "cgroup.procs")
	if err := makeInner(unit, true, []string{cpu, pids}); err != nil {
		t.Fatal(err)
	}
	if got := file(t, unit, leafName, "cgroup.procs"); got != strconv.Itoa(os.Getpid()) {
		t.Errorf("in the leaf: %s", got)
	}
	if got := file(t, unit, "cgroup.subtree_control"); got != "+cpu +pids" {
		t.Errorf("enabled: %s", got)
	}
}

func TestOutOfMemoryV2(t *testing.T) {
	t.Parallel()
	for events, want := range map[string]bool{
		"low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\noom_group_kill 1\n": true,
		"max 0\noom 0\noom_kill 1\n":                                  false, // the machine or a cgroup above
		"max 9\noom 1\noom_kill 0\n":                                  false,
		"":                                                            false,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "memory.events"), []byte(events), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := (&Group{v2: true, memory: dir}).OutOfMemory(); got != want {
			t.Errorf("%q: %v; want got == %v", events, got, want)
		}
	}
}

func TestOutOfMemoryV1(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		control, limit, peak string
		want                 bool
	}{
		"by the limit":    {"oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", "33554432\n", "33550336\n", true},
		"by others":       {"oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", "33554432\n", "20000000\n", false},
		"near the limit":  {"oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", "33554432\n", "33554432\n", false},
		"old kernel":      {"oom_kill_disable 0\nunder_oom 0\n", "33554432\n", "33554432\n", false},
		"nothing is said": {},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"memory.oom_control": test.control, "memory.limit_in_bytes": test.limit, "memory.max_usage_in_bytes": test.peak} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := (&Group{memory: dir}).OutOfMemory(); got != test.want {
			t.Errorf("%s: %v; want got == %v", name, got, test.want)
		}
	}
}

func TestSupports(t *testing.T) {
	t.Parallel()
	m := &Manager{homes: []*home{{controllers: []string{cpu}}}, reason: errors.New("it is not mounted")}
	if err := m.Supports(Limits{CPUs: 1}); err != nil {
		t.Error(err)
	}
	if err := m.Supports(Limits{CPUs: 1, MemoryBytes: MinMemoryBytes}); err == nil || err.Error() != "the controller memory is missing: it is not mounted" {
		t.Errorf("error %v", err)
	}
	if _, err := open(places{v1: map[string]string{memory: filepath.Join(t.TempDir(), "none")}}); err == nil || !strings.Contains(err.Error(), "no cgroup can be used") {
		t.Errorf("error %v", err)
	}
}

// TestKillWithoutPidfd: old kernels cannot hold a process, and groups must end there too.
func TestKillWithoutPidfd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func() *exec.Cmd {
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return cmd
	}
	member, other := start(), start()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(member.Process.Pid)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	kill([]string{dir}, []int{member.Process.Pid, other.Process.Pid}, func(int, int) (int, error) { return -1, unix.ENOSYS })
	var exit *exec.ExitError
	if err := member.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the member: %v", err)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("one that has left: %v", err)
	}
}
