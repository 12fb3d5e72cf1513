package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// period is the period of CPU quotas, in microseconds: the kernel's default.
	period   = 100_000
	maxPause = 50 * time.Millisecond
)

// Group is the cgroup of one command. Its methods are called one after another, in the order
// Attach, Started, Kill, OutOfMemory, Remove.
type Group struct {
	v2 bool
	// dirs holds one directory for each hierarchy.
	dirs []string
	// memory is the directory that has the memory controller.
	memory string
	// file is dirs[0] in v2.
	file *os.File
}

// limit writes the limits for which one hierarchy has the controllers.
func limit(v2 bool, dir string, controllers []string, l Limits) error {
	var problems []error
	put := func(file, value string) { problems = append(problems, set(dir, file, value)) }
	may := func(file, value string) { problems = append(problems, setIfThere(dir, file, value)) }
	if l.MemoryBytes > 0 && slices.Contains(controllers, memory) {
		bytes := strconv.FormatInt(l.MemoryBytes, 10)
		if v2 {
			put("memory.max", bytes)
			may("memory.swap.max", "0")
			may("memory.oom.group", "1")
		} else {
			put("memory.limit_in_bytes", bytes)
			may("memory.memsw.limit_in_bytes", bytes)
			may("memory.swappiness", "0")
		}
	}
	if l.CPUs > 0 && slices.Contains(controllers, cpu) {
		quota := strconv.Itoa(int(math.Round(l.CPUs * period)))
		if v2 {
			put("cpu.max", quota+" "+strconv.Itoa(period))
		} else {
			put("cpu.cfs_period_us", strconv.Itoa(period))
			put("cpu.cfs_quota_us", quota)
		}
	}
	if l.PIDs > 0 && slices.Contains(controllers, pids) {
		put("pids.max", strconv.Itoa(l.PIDs))
	}
	return errors.Join(problems...)
}

// Attach prepares the start of the command. In v1 Started must follow the start. The command does
// not run before that.
func (g *Group) Attach(attr *syscall.SysProcAttr) {
	if g.v2 {
		attr.UseCgroupFD, attr.CgroupFD = true, int(g.file.Fd())
		return
	}
	attr.Ptrace = true
}

// Started moves the command into the group and lets it run. It must be called on the thread that
// started the command. After an error the command has been killed before it ran.
func (g *Group) Started(pid int) error {
	if g.v2 {
		return nil
	}
	err := awaitStop(pid)
	for _, dir := range g.dirs {
		if err == nil {
			err = set(dir, "cgroup.procs", strconv.Itoa(pid))
		}
	}
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL) // the child is not reaped, so no other process has its id
	}
	if detachErr := unix.PtraceDetach(pid); err == nil && !errors.Is(detachErr, unix.ESRCH) { // killed meanwhile
		err = detachErr
	}
	return err
}

// awaitStop waits for the stop at the exec, or for an end before it. WNOWAIT leaves both events to
// the waiter for the child.
func awaitStop(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// OutOfMemory reports whether the kernel has killed a process because of the group's own limit, not
// because the machine or a cgroup above was short of memory.
func (g *Group) OutOfMemory() bool {
	if g.memory == "" {
		return false
	}
	if g.v2 {
		return count(g.memory, "memory.events", "oom") > 0 && count(g.memory, "memory.events", "oom_kill") > 0
	}
	// v1 counts kills of any kind, and not all kernels have memory.failcnt. A peak close to the
	// limit means that the limit was met.
	limit, peak := number(g.memory, "memory.limit_in_bytes"), number(g.memory, "memory.max_usage_in_bytes")
	return limit > 0 && peak >= limit-limit/16 && count(g.memory, "memory.oom_control", "oom_kill") > 0
}

// number returns the number in a file; 0 if it has none.
func number(dir, file string) int {
	data, _ := words(filepath.Join(dir, file)) // none when it cannot be read
	n, _ := strconv.Atoi(strings.Join(data, " "))
	return n
}

// count returns the number after a name in a file; 0 if there is none.
func count(dir, file, name string) int {
	data, _ := words(filepath.Join(dir, file)) // none when it cannot be read
	i := slices.Index(data, name) + 1
	if i == 0 || i == len(data) {
		return 0
	}
	n, _ := strconv.Atoi(data[i]) // the kernel wrote it
	return n
}

// Kill ends all processes of the group and waits for their end, at most two seconds.
func (g *Group) Kill() error { return killAll(g.dirs) }

// Remove kills the processes of the group and removes it. It may be called again.
func (g *Group) Remove() error {
	problems := []error{killAll(g.dirs)}
	if g.file != nil {
		problems = append(problems, g.file.Close())
		g.file = nil
	}
	for _, dir := range g.dirs {
		problems = append(problems, removeAll(dir))
	}
	return errors.Join(problems...)
}

// killAll ends the processes in and below the directories.
func killAll(dirs []string) error {
	for _, dir := range dirs {
		// Not all kernels have the first file, nor all hierarchies the second. Without new
		// processes the loop of kills comes to an end.
		_ = set(dir, "cgroup.kill", "1")
		_ = set(dir, "pids.max", "0")
	}
	return retry(func() error {
		left := members(dirs)
		if len(left) == 0 {
			return nil
		}
		kill(dirs, left, unix.PidfdOpen)
		return fmt.Errorf("%d processes do not end, one of them is %d", len(left), left[0])
	})
}

// kill holds the processes by descriptors, and then kills those that are still members: the number
// of an ended process can belong to another one by now. Kernels before 5.3 and some sandboxes have
// no such descriptors. There kill signals the number at once after the look, because a process that
// is not killed stays for ever.
func kill(dirs []string, found []int, hold func(pid, flags int) (fd int, err error)) {
	const unheld = -1
	held := make(map[int]int, len(found))
	for _, pid := range found {
		fd, err := hold(pid, 0)
		switch {
		case err == nil:
			held[pid] = fd
		case !errors.Is(err, unix.ESRCH):
			held[pid] = unheld
		}
	}
	still := members(dirs)
	for pid, fd := range held {
		switch member := slices.Contains(still, pid); {
		case member && fd == unheld:
			_ = unix.Kill(pid, unix.SIGKILL)
		case member:
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // it may have ended
		}
		if fd != unheld {
			_ = unix.Close(fd)
		}
	}
}

// members returns the processes in and below the directories, except processes in another
// namespace, which have no number here.
func members(dirs []string) []int {
	var found []int
	for _, top := range dirs {
		_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return nil //nolint:nilerr // removed meanwhile
			}
			list, _ := words(filepath.Join(path, "cgroup.procs")) // removed meanwhile, then empty
			for _, word := range list {
				pid, err := strconv.Atoi(word)
				if err == nil && pid > 0 && pid != os.Getpid() && !slices.Contains(found, pid) {
					found = append(found, pid)
				}
			}
			return nil
		})
	}
	return found
}

// removeAll removes a cgroup and those below it. The kernel may take a moment to forget processes
// that have ended.
func removeAll(dir string) error {
	var below []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			below = append(below, path)
		}
		return nil
	})
	slices.Reverse(below)
	var problems []error
	for _, d := range below {
		problems = append(problems, retry(func() error {
			if err := unix.Rmdir(d); err != nil && !errors.Is(err, unix.ENOENT) {
				return &os.PathError{Op: "rmdir", Path: d, Err: err}
			}
			return nil
		}))
	}
	return errors.Join(problems...)
}

// retry calls try until it succeeds, at most for patience.
func retry(try func() error) error {
	deadline := time.Now().Add(patience)
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
	}
}
