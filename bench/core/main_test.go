package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is a part of a scenario when the program under test starts itself again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if child, ok := children[os.Args[1]]; ok {
			os.Exit(runChild(child, os.Args[2:]))
		}
	}
	goleak.VerifyTestMain(m)
}
