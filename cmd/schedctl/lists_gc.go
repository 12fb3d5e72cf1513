package main

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/namelist/server"
	"github.com/freeslot/freeslot/internal/plural"
)

type listsGCCmd struct {
	On     string `placeholder:"NAME" help:"The list server to look through (default: all)."`
	DryRun bool   `help:"Remove nothing, and say what would be removed."`
}

// Run looks through the list servers, page by page.
func (c *listsGCCmd) Run(a *app) error {
	all := manage.Collected{Builds: []manage.LeftBuild{}}
	for q := (server.CollectRequest{Server: c.On, DryRun: c.DryRun}); ; {
		var page manage.Collected
		if err := a.callFor(time.Minute, http.MethodPost, "/v1/list-gc", nil, q, &page); err != nil {
			return err
		}
		all.Looked, all.Removed, all.Foreign = all.Looked+page.Looked, all.Removed+page.Removed, all.Foreign+page.Foreign
		all.Builds, all.Failed = addBuilds(all.Builds, page.Builds), append(all.Failed, page.Failed...)
		if q.After = page.Next; page.Next == "" {
			break
		}
	}
	if err := c.print(a, &all); err != nil {
		return err
	}
	if len(all.Failed) > 0 {
		return fmt.Errorf("not all list servers were looked through: %s", list(all.Failed))
	}
	return nil
}

func (c *listsGCCmd) print(a *app, all *manage.Collected) error {
	if a.json {
		return a.printJSON(all)
	}
	if len(all.Builds) > 0 {
		rows := [][]string{{"SERVER", "LIST", "VERSION", "BUILD", "KEYS"}}
		for _, b := range all.Builds {
			rows = append(rows, []string{dash(b.Server), b.List, fmt.Sprint(b.Version), b.Build, fmt.Sprint(b.Keys)})
		}
		if err := table(a.out, rows); err != nil {
			return err
		}
	}
	if all.Foreign > 0 {
		a.warn(
			"%s: the control server has no record of their list or version. Another control server may own them, or this one "+
				"has lost its data",
			plural.Of(all.Foreign, "key stays", "keys stay"),
		)
	}
	return a.println("%s of lists, %d removed", plural.Of(all.Looked, "key", "keys"), all.Removed)
}

// addBuilds adds the builds of one more page. A build can be on two pages.
func addBuilds(all, page []manage.LeftBuild) []manage.LeftBuild {
	for _, b := range page {
		i := slices.IndexFunc(
			all, func(have manage.LeftBuild) bool { return have.Server == b.Server && have.Build == b.Build },
		)
		if i < 0 {
			all = append(all, b)
		} else {
			all[i].Keys += b.Keys
		}
	}
	return all
}
