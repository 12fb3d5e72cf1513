package main

import (
	"testing"

	"github.com/alecthomas/kong"

	"github.com/freeslot/freeslot/internal/testing/reference"
)

func TestFlagReference(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(&commands{}, kong.Name("scheduler"))
	if err != nil {
		t.Fatal(err)
	}
	reference.Check(t, "flags.md", "scheduler", reference.Commands(parser.Model))
}
