package procgroup

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// adopts is true if orphans become children of this process: it is the first process of a
// container, or was made a subreaper.
var adopts = os.Getpid() == 1 || isSubreaper()

func isSubreaper() bool {
	var is int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&is)), 0, 0, 0)
	return err == nil && is != 0
}

func init() {
	if adopts {
		runtime.LockOSThread() // keeps main on the main thread
	}
}

// Main runs a program, from its main function, and returns its exit code. If orphans become
// children of this process, Main waits for them, so that they do not stay zombies.
//
// The kernel gives orphans to the main thread. run gets other threads, and so do the commands that
// it starts. Main waits only for children of the main thread, so it cannot take the exit status of
// a command.
func Main(run func() int) int {
	if !adopts {
		return run()
	}
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	defer signal.Stop(died)
	ended := make(chan int, 1)
	go func() { ended <- run() }()
	for {
		reapOrphans()
		select {
		case code := <-ended:
			return code
		case <-died:
		}
	}
}

// reapOrphans waits for the children of this thread that have ended.
func reapOrphans() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL|unix.WNOTHREAD, nil)
		if pid <= 0 && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
