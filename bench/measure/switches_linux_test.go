package measure

import (
	"os"
	"testing"
)

func TestSwitches(t *testing.T) {
	t.Parallel()
	got, err := switchesOf("Name:\ta\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n")
	if err != nil || got != 695 {
		t.Errorf("got %v, %v, expected 695", got, err)
	}
	if _, err := switchesOf("voluntary_ctxt_switches:\tmany\n"); err == nil {
		t.Error("a figure that is none was accepted")
	}
	if n, err := Switches(os.Getpid()); err != nil || n <= 0 {
		t.Errorf("this process has %v switches, %v", n, err)
	}
	if _, err := Switches(-1); err == nil {
		t.Error("a process that is not there has threads")
	}
}
