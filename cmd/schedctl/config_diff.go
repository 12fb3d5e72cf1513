package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/freeslot/freeslot/internal/plural"
	"github.com/freeslot/freeslot/internal/pool"
)

// printDiff prints the changes, which a dry run did not make.
func (a *app) printDiff(r *pool.ConfigResult) error {
	if a.json {
		return a.printJSON(r)
	}
	switch {
	case r.Unchanged && r.Version > 0:
		return a.println("nothing to change: version %d says the same", r.Version)
	case r.Unchanged:
		return a.println("nothing to change")
	case r.DryRun:
		a.printCompared(r)
	default:
		_, _ = fmt.Fprintf(a.out, "version %d is in force\n", r.Version)
		if len(r.Problems) > 0 {
			_, _ = fmt.Fprintln(a.out, "it replaces what was broken in Redis")
		}
	}
	if err := a.printChanges(&r.Diff); err != nil || !r.Inert {
		return err
	}
	return a.println("the pools have no members and restrict nothing: enabled is false")
}

// printCompared names the configuration that a dry run compared with. If Redis has no valid
// document, the content may be in force already, and apply still changes something.
func (a *app) printCompared(r *pool.ConfigResult) {
	broken := len(r.Problems) > 0
	for _, p := range r.Problems {
		_, _ = fmt.Fprintf(a.out, "what is in Redis is broken and not in force: %s\n", clean(p.Message))
	}
	if broken {
		_, _ = fmt.Fprintln(a.out, "apply replaces it")
	}
	_, _ = fmt.Fprintf(a.out, "compared with %s; nothing was changed\n", comparedWith(r))
	switch {
	case !r.Diff.Empty():
	case broken:
		_, _ = fmt.Fprintln(a.out, "no differences to what is in force")
	default:
		_, _ = fmt.Fprintln(a.out, "no differences; there is no configuration in Redis, apply writes this one")
	}
}

func comparedWith(r *pool.ConfigResult) string {
	switch {
	case r.Source == "file":
		return "the replica's own file"
	case r.Source == "history":
		return "what is in force, which is from the history"
	case len(r.Problems) > 0:
		return "what is in force"
	default:
		return fmt.Sprintf("version %d", r.Version)
	}
}

func (a *app) printChanges(d *pool.Diff) (err error) {
	add := func(format string, args ...any) { err = errors.Join(err, a.println(format, args...)) }
	for _, f := range d.Settings {
		add("~ %s: %s -> %s", f.Field, value(f.Before), value(f.After))
	}
	for _, id := range d.Removed {
		add("- pool %s", id)
	}
	for _, id := range d.Added {
		add("+ pool %s", id)
	}
	for _, p := range d.Changed {
		for _, f := range p.Fields {
			add("~ pool %s: %s: %s -> %s", p.ID, f.Field, value(f.Before), value(f.After))
		}
	}
	if d.Reordered {
		add("~ the order of preference of the pools")
	}
	for _, m := range d.Members {
		if m.Join > 0 {
			add("  %s pool %s: %s", plural.Of(m.Join, "node joins", "nodes join"), m.Pool, some(m.Joining, m.Join))
		}
		if m.Leave > 0 {
			add("  %s pool %s: %s", plural.Of(m.Leave, "node leaves", "nodes leave"), m.Pool, some(m.Leaving, m.Leave))
		}
	}
	return err
}

func value(v json.RawMessage) string {
	if v == nil {
		return "nothing"
	}
	return string(v)
}

func some(ids []string, total int) string {
	s := strings.Join(ids, ", ")
	if total > len(ids) {
		s += ", …"
	}
	return s
}
