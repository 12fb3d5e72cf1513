package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// named finds the commands that the runbook and the alerts name.
var named = regexp.MustCompile("`schedctl ([^`]*)`")

// TestRunbookCommands: each command that the runbook and the alerts tell to run is one, with these
// arguments and flags.
func TestRunbookCommands(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(&commands{}, kong.Name("schedctl"), kong.Vars{"states": stateNames()})
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, file := range []string{"../../docs/runbook.md", "../../deploy/prometheus/freeslot.rules.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllSubmatch(text, -1) {
			count++
			arguments := strings.NewReplacer("ROLE", "agent", "VERSION", "7").Replace(string(m[1]))
			if _, err := parser.Parse(strings.Fields(arguments)); err != nil {
				t.Errorf("%s names %q: %v; want a command that exists", file, m[1], err)
			}
		}
	}
	if count < 50 {
		t.Errorf("found %d commands; want more than 50", count)
	}
}
