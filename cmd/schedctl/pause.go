package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/freeslot/freeslot/internal/pool"
)

type pauseFlags struct {
	Kind   string `arg:"" enum:"pool,service,class" help:"pool, service or class."`
	Name   string `arg:"" help:"Its name; of a class the id, which list and queues show."`
	Note   string `placeholder:"TEXT" help:"Why, for the history."`
	Author string `env:"USER" placeholder:"NAME" help:"Who, for the history (default: the user of this shell)."`
}

type pauseCmd struct{ pauseFlags }

// Help is shown below the flags.
func (pauseCmd) Help() string {
	return `Until resume no new job of the service or class begins, or for a pool, none that goes through the pool to its nodes.
Running jobs go on, and new jobs wait. A pause is a version of the configuration, which "config history" lists. Examples:
  schedctl pause service asr --note "wrong model"
  schedctl pause pool eu
  schedctl pause class 5f1d7a84db00d2fc
The exit code is 1 if a replica did not confirm the pause in time.`
}

// Run pauses.
func (c *pauseCmd) Run(a *app) error { return c.change(a, "pause") }

type resumeCmd struct{ pauseFlags }

// Run ends a pause.
func (c *resumeCmd) Run(a *app) error { return c.change(a, "resume") }

func (c *pauseFlags) change(a *app, action string) error {
	plural := map[string]string{"pool": "pools", "service": "services", "class": "classes"}[c.Kind]
	var result pool.PauseResult
	if err := a.call(
		http.MethodPost, "/v1/"+plural+"/"+url.PathEscape(c.Name)+"/"+action, nil,
		pool.PauseRequest{Note: c.Note, Author: c.Author}, &result,
	); err != nil {
		return err
	}
	if a.json {
		if err := a.printJSON(result); err != nil {
			return err
		}
	} else {
		_ = a.println("%s", pauseText(&result))
	}
	if action == "pause" && result.Nodes != nil && *result.Nodes == 0 {
		is := map[string]string{"pool": "is in", "service": "has"}[c.Kind]
		a.warn("no node is known that %s %s %s", is, c.Kind, clean(c.Name))
	}
	if action == "pause" && !result.Confirmed {
		return fmt.Errorf(
			"it is not known that all replicas go by it, so jobs may still begin: %s", clean(behindText(result.Behind)),
		)
	}
	return nil
}

func pauseText(r *pool.PauseResult) string {
	is := map[bool]string{true: "paused", false: "not paused"}[r.Paused]
	if r.Unchanged && !r.Paused {
		return fmt.Sprintf(
			"%s %s was not paused, so nothing is resumed; the configuration is at version %d", r.Kind, r.Name, r.Version,
		)
	}
	if r.Unchanged {
		return fmt.Sprintf("%s %s is %s, as it was before; the configuration is at version %d", r.Kind, r.Name, is, r.Version)
	}
	return fmt.Sprintf("%s %s is %s as of version %d of the configuration", r.Kind, r.Name, is, r.Version)
}

func behindText(replicas []string) string {
	if len(replicas) == 0 {
		return "Redis did not say which"
	}
	return strings.Join(replicas, " ") + " did not answer in time, or are of a release that knows no pauses"
}
