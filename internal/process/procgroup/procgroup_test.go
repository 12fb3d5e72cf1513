//go:build unix

package procgroup

import (
	"bufio"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestGroup: what a command leaves behind ends with its group, and only then the group has gone.
func TestGroup(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "sleep 1000 & echo started")
	cmd.SysProcAttr = Attr()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || strings.TrimSpace(line) != "started" {
		t.Fatal(line, err)
	}
	leader := cmd.Process.Pid
	AwaitExit(leader)
	if err := syscall.Kill(-leader, 0); err != nil {
		t.Error("the group has gone although sleep lives", err)
	}
	Signal(leader, syscall.SIGKILL)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if !AwaitGone(leader, waittest.Limit) {
		t.Error("the group is still there")
	}
	Signal(leader, syscall.SIGKILL) // of which nothing is left
}
