package measure

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(orphanEnv) != "" {
		orphan()
	}
	goleak.VerifyTestMain(m)
}

// orphanEnv makes the test's program a process that starts a child and stays.
const orphanEnv = "FREESLOT_BENCH_ORPHAN"

// orphan starts a child that holds descriptor 3 until it is killed, and reports that.
func orphan() {
	cmd := exec.Command("sh", "-c", "exec sleep 600")
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "held")}
	if _, err := StartProcess("child", cmd); err != nil {
		panic(err)
	}
	fmt.Println(Ready)
	select {}
}
