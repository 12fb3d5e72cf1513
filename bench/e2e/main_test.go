package main

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is the fleet when the program under test starts itself again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == fleetMode {
		if err := runFleet(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
