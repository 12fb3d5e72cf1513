package main

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/freeslot/freeslot/internal/plural"
	v1 "github.com/freeslot/freeslot/internal/registry/v1"
)

type registryMigrateCmd struct {
	Status bool `xor:"what" required:"" help:"Show how many instances of each service are where."`
	Finish bool `xor:"what" required:"" help:"Remove the copies and the keys of version 1. It is refused while providers of version 1 beat."`
}

// Run shows the migration, or ends it.
func (c *registryMigrateCmd) Run(a *app) error {
	if c.Finish {
		var done v1.Finished
		if err := a.call(http.MethodPost, v1.Path+"/finish", nil, nil, &done); err != nil {
			return err
		}
		if a.json {
			return a.printJSON(done)
		}
		_, err := fmt.Fprintf(
			a.out, "The keys of %s are removed. Set registry.v1.enabled to false now.\n",
			plural.Of(done.Services, "service", "services"),
		)
		return err
	}
	var m v1.Migration
	if err := a.call(http.MethodGet, v1.Path, nil, nil, &m); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(m)
	}
	rows := [][]string{{"SERVICE", "V1 ONLY", "COPIED", "V2", "WRITTEN BACK", "V1 SILENT"}}
	for _, s := range m.Services {
		silent := "not watched"
		if s.SilentMS >= 0 {
			silent = msText(s.SilentMS)
		}
		rows = append(
			rows,
			[]string{
				s.Service, strconv.Itoa(s.V1Only), strconv.Itoa(s.Copied), strconv.Itoa(s.V2), strconv.Itoa(s.Written), silent,
			},
		)
	}
	return table(a.out, rows)
}
