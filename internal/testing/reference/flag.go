package reference

import (
	"flag"
	"strings"

	"github.com/alecthomas/kong"
)

// FlagSet returns a table of the flags.
func FlagSet(set *flag.FlagSet) string {
	var rows [][]string
	set.VisitAll(func(f *flag.Flag) {
		name, dashes := f.Name, "--"
		if len(name) == 1 {
			dashes = "-"
		}
		placeholder, meaning := flag.UnquoteUsage(f)
		if placeholder != "" {
			name += "=" + placeholder
		}
		rows = append(rows, []string{code(dashes + name), meaning})
	})
	return RowsTable([]string{"flag", "meaning"}, rows)
}

// Commands returns a table of the flags of each command.
func Commands(app *kong.Application) string {
	head := []string{"flag", "default", "meaning"}
	var b strings.Builder
	if rows := flagRows(app.Flags); len(rows) > 0 {
		b.WriteString("### All commands\n\n" + RowsTable(head, rows))
	}
	for _, command := range app.Leaves(true) {
		b.WriteString("\n### " + app.Name + " " + command.Summary() + "\n\n" + command.Help + "\n")
		var rows [][]string
		for _, argument := range command.Positional {
			rows = append(rows, []string{code(argument.Summary()), code(argument.Default), argument.Help})
		}
		for node := command; node.Parent != nil; node = node.Parent {
			rows = append(rows, flagRows(node.Flags)...)
		}
		if len(rows) > 0 {
			b.WriteString("\n" + RowsTable(head, rows))
		}
	}
	return b.String()
}

func flagRows(flags []*kong.Flag) [][]string {
	var rows [][]string
	for _, f := range flags {
		if f.Hidden || f.Name == "help" {
			continue
		}
		name := "--" + f.Name
		if f.Short != 0 {
			name = "-" + string(f.Short) + ", " + name
		}
		if !f.IsBool() && !f.IsCounter() {
			name += "=" + f.FormatPlaceHolder()
		}
		meaning := f.Help
		for _, env := range f.Envs {
			meaning += " (" + code("$"+env) + ")"
		}
		rows = append(rows, []string{code(name), code(f.Default), meaning})
	}
	return rows
}
