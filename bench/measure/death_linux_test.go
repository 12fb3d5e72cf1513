package measure

import (
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestChildEndsWithKilledParent: a harness that is killed leaves no server behind.
func TestChildEndsWithKilledParent(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), orphanEnv+"=1"), []*os.File{write}
	parent, err := StartChild(t.Context(), "parent", cmd)
	_ = write.Close()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.End()
	// Its end is that of the last who held the pipe.
	if err := read.SetReadDeadline(time.Now().Add(StartLimit)); err != nil {
		t.Fatal(err)
	}
	if n, err := read.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("the child of a killed process is still there: %v", err)
	}
}
