package main

import (
	"testing"

	"github.com/alecthomas/kong"

	"github.com/freeslot/freeslot/internal/testing/reference"
)

func TestFlagReference(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(&commands{}, kong.Name("schedctl"), kong.Vars{"states": stateNames()})
	if err != nil {
		t.Fatal(err)
	}
	reference.Check(t, "flags.md", "schedctl", reference.Commands(parser.Model))
}
