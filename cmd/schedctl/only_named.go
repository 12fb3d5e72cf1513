package main

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// onlyNamed leaves out the commands that no word of the line names: the parser reads the tags of
// each flag anew, which for all commands takes longer than most of them run. Help knows all.
func onlyNamed(line ...string) kong.Option {
	var others []string
	if !slices.Contains(line, "--help") && !slices.Contains(line, "-h") {
		others = unnamed(reflect.TypeFor[commands](), line)
	}
	return kong.IgnoreFields(fmt.Sprintf("^(%s)$", strings.Join(others, "|")))
}

// unnamed returns patterns of the fields of a group and of the groups in it that the line does not
// name. Where it names none of a group, the parser may have a default, or say what is missing.
func unnamed(group reflect.Type, line []string) []string {
	var named bool
	var others []string
	for _, field := range reflect.VisibleFields(group) {
		if _, command := field.Tag.Lookup("cmd"); !command {
			continue
		}
		if slices.ContainsFunc(names(field), func(name string) bool { return slices.Contains(line, name) }) {
			named = true
			others = append(others, unnamed(field.Type, line)...)
		} else {
			others = append(others, group.Name()+`\.`+field.Name)
		}
	}
	if !named {
		return nil
	}
	return others
}

var hump = regexp.MustCompile("([a-z])([A-Z])")

// names returns the names that the parser gives a command.
func names(field reflect.StructField) []string {
	name := cmp.Or(field.Tag.Get("name"), strings.ToLower(hump.ReplaceAllString(field.Name, "$1-$2")))
	return append(strings.FieldsFunc(field.Tag.Get("aliases"), func(r rune) bool { return r == ',' }), name)
}
