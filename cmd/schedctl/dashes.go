package main

import (
	"strings"

	"github.com/alecthomas/kong"
)

// checkDashes refuses flags behind the first word of a command to run, such as lock run's, unless
// -- is before them: they could be meant for either of the two.
func checkDashes(parser *kong.Kong, args []string) error {
	traced, err := kong.Trace(parser, args)
	if err != nil {
		return nil //nolint:nilerr // the parser reports it
	}
	node := traced.Selected()
	if node == nil || len(node.Positional) == 0 || node.Positional[len(node.Positional)-1].Name != "command" {
		return nil
	}
	before := strings.Count(node.FullPath(), " ") + len(node.Positional) - 1 // words that are not flags
	first := -1                                                              // the first word of the command
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			return nil
		case !strings.HasPrefix(arg, "-") || arg == "-":
			if before == 0 && first < 0 {
				first = i
			}
			before--
		case first >= 0:
			words := []string{parser.Model.Name}
			for j, word := range args {
				if j == first {
					words = append(words, "--")
				}
				words = append(words, quoted(word))
			}
			return usage(
				"%s is behind the command to run: write -- before a command that has flags, and flags of schedctl before that, "+
					"as in\n  %s",
				arg, strings.Join(words, " "),
			)
		case takesNext(node, arg):
			i++
		}
	}
	return nil
}

// takesNext reports whether the argument behind a flag is the flag's value.
func takesNext(node *kong.Node, arg string) bool {
	name, long := strings.CutPrefix(arg, "--")
	for _, group := range node.AllFlags(false) {
		for _, flag := range group {
			if long && flag.Name == name || !long && arg == "-"+string(flag.Short) {
				return !flag.IsBool() && !flag.IsCounter()
			}
		}
	}
	return false
}
