package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The programs of production contain no stand-in for Redis, and nothing that is made for tests.
func TestProductionPrograms(t *testing.T) {
	t.Parallel()
	deps := func(program string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", "grpcnotrace", "../"+program).CombinedOutput()
		if err != nil {
			t.Fatalf("go list %s: %v\n%s", program, err, out)
		}
		return string(out)
	}
	const standIn = "github.com/alicebob/miniredis/v2\n"
	for _, program := range []string{"scheduler", "nodeagent", "schedctl"} {
		got := deps(program)
		for _, not := range []string{standIn, "testing\n", "github.com/freeslot/freeslot/internal/testing/"} {
			if strings.Contains(got, not) {
				t.Errorf("%s contains %q; want none of it", program, not)
			}
		}
	}
	if !strings.Contains(deps("devredis"), standIn) {
		t.Errorf("devredis lacks %q; want it there and nowhere else", standIn)
	}
}
