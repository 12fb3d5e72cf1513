package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// wordsOf returns the words of a command. A path of the parser has other names of a word behind it,
// in brackets.
func wordsOf(leaf *kong.Node) []string {
	return slices.DeleteFunc(strings.Fields(leaf.Path()), func(word string) bool { return strings.HasPrefix(word, "(") })
}

// TestOnlyNamed: a line that names a command gets a parser of what it names, whichever command it
// is, and another line one of all commands.
func TestOnlyNamed(t *testing.T) {
	t.Parallel()
	model := func(options ...kong.Option) *kong.Node {
		k, err := kong.New(&commands{}, append(options, kong.Name("schedctl"), kong.Vars{"states": stateNames()})...)
		if err != nil {
			t.Fatal(err)
		}
		return k.Model.Node
	}
	all := model()
	for _, leaf := range all.Leaves(false) {
		path := wordsOf(leaf)
		node := model(onlyNamed(append([]string{"--reason", "TEXT", "--bogus"}, path...)...))
		for _, word := range path {
			var next *kong.Node
			for _, child := range node.Children {
				if child.Name == word {
					next = child
				} else if !slices.Contains(path, child.Name) {
					t.Errorf("a line with %q has a parser with %s", path, child.Name)
				}
			}
			if node = next; node == nil {
				t.Fatalf("a line with %q has a parser without %s", path, word)
			}
		}
	}
	for _, line := range []string{"", "lits x", "lists --help", "-h lists"} {
		if got := model(onlyNamed(strings.Fields(line)...)).Children; len(got) != len(all.Children) {
			t.Errorf("%q has a parser of %d commands, not of all %d", line, len(got), len(all.Children))
		}
	}
	if nodes := model(onlyNamed("nodes", "ls")).Children[0]; len(nodes.Children) != 1 || nodes.Children[0].Name != "show" {
		t.Errorf("a line with an alias has a parser of %d commands, not of the one it stands for", len(nodes.Children))
	}
}
