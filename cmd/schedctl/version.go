package main

import (
	"fmt"

	"github.com/freeslot/freeslot/internal/process/version"
)

type versionCmd struct{}

// Run prints one line.
func (versionCmd) Run(a *app) error {
	_, err := fmt.Fprintln(a.out, version.Line("schedctl"))
	return err
}
