package procgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// asInit has the test binary be a process that orphans are given to: "1" makes it one, and "2" is
// what it runs then.
const asInit = "FREESLOT_TEST_AS_INIT"

func TestMain(m *testing.M) {
	switch os.Getenv(asInit) {
	case "1":
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			panic(err)
		}
		_ = os.Setenv(asInit, "2")
		panic(syscall.Exec(os.Args[0], os.Args, os.Environ()))
	case "2":
		os.Exit(Main(runCommands))
	}
	os.Exit(m.Run())
}

// runCommands runs commands that leave a process behind, and returns 3 if each of them ended with its
// own code and nothing is left.
func runCommands() int {
	var all sync.WaitGroup
	var failed sync.Map
	for i := range 50 {
		all.Go(func() {
			cmd := exec.Command("sh", "-c", fmt.Sprintf("sleep 0.01 & exit %d", i))
			cmd.SysProcAttr = Attr()
			err := cmd.Run()
			if cmd.ProcessState.ExitCode() != i {
				failed.Store(i, err)
			}
		})
	}
	all.Wait()
	failed.Range(func(i, err any) bool {
		fmt.Printf("the command that exits with %v: %v\n", i, err)
		return true
	})
	for end := time.Now().Add(time.Minute); children() > 0; runtime.Gosched() {
		if time.Now().After(end) {
			fmt.Println(children(), "processes are left")
			break
		}
	}
	return 3
}

// children counts the children of this process, dead or alive.
func children() (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range all {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has gone
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); fields[1] == strconv.Itoa(os.Getpid()) {
			n++
		}
	}
	return n
}

// TestMainReaps: orphans do not stay zombies, and no command loses its exit status.
func TestMainReaps(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asInit+"=1")
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 3 || len(out) > 0 {
		t.Errorf("code %d, expected 3 and no output: %v\n%s", code, err, out)
	}
}
