package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/bench/tool"
)

// TestMain is a part of a scenario when the program under test starts itself again.
func TestMain(m *testing.M) {
	tool.RunMode(modes)
	goleak.VerifyTestMain(m)
}
