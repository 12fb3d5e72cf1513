package main

import (
	"fmt"

	"github.com/freeslot/freeslot/internal/process/version"
)

type versionCmd struct{}

// Run prints one line.
func (versionCmd) Run(env *environment) error {
	_, err := fmt.Fprintln(env.out, version.Line("scheduler"))
	return err
}
