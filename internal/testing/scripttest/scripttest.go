// Package scripttest checks the Lua scripts of a feature against the rules that all features share,
// and gives their tests a cell.
//
//	func TestScripts(t testing.TB) { scripttest.Check(t, files) }
//
// The header of an include states the names that it exchanges with the scripts around it. A line
// that ends with a comma continues in the next one.
//
//	-- Needs: now, key      names that it reads, and that are defined above the line that includes it
//	-- Sets: quit           names above that line that it assigns to; best none
//	-- Defines: finish      locals that it leaves to the code after it
package scripttest

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/freeslot/freeslot/internal/script"
)

const (
	folder = "script"
	lib    = "script/lib"
)

// Check refuses scripts that use a name that neither they nor Redis define, incomplete headers of
// scripts, false headers of includes, and commands that [CheckAccess] cannot read. files is the
// feature's argument of [script.MustLoad].
func Check(t testing.TB, files fs.FS) {
	t.Helper()
	included := make(map[string]bool)
	for at, text := range texts(t, files, func(at string) bool { return path.Dir(at) != lib }) {
		for _, m := range includeLine.FindAllStringSubmatch(text, -1) {
			included[path.Join(folder, m[1])] = true
		}
		checkHeader(t, at, text)
		whole := source(t, files, at)
		checkCommands(t, at, whole)
		names := analyse(t, at, whole)
		if undeclared := slices.Concat(names.free, names.assigned); len(undeclared) > 0 {
			t.Errorf("%s uses names that nothing defines: %s", at, strings.Join(undeclared, ", "))
		}
	}
	parts := texts(t, files, func(at string) bool { return path.Dir(at) == lib })
	for _, text := range parts {
		for _, m := range includeLine.FindAllStringSubmatch(text, -1) {
			included[path.Join(folder, m[1])] = true
		}
	}
	for at := range parts {
		if !included[at] {
			t.Errorf("nothing includes %s", at)
		}
		if _, err := script.Source(fstest.MapFS{}, at); err == nil {
			t.Errorf("%s hides the include of this name that all features share", at)
		}
	}
	for at := range included { // includes the common ones of all features
		checkInclude(t, at, source(t, files, at))
	}
}

var includeLine = regexp.MustCompile(`(?m)^ *-- include (\S+)$`)

func source(t testing.TB, files fs.FS, at string) string {
	t.Helper()
	text, err := script.Source(files, at)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// texts returns the Lua files with a wanted path, without their includes.
func texts(t testing.TB, files fs.FS, wanted func(at string) bool) map[string]string {
	t.Helper()
	out := make(map[string]string)
	err := fs.WalkDir(files, folder, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(at) != ".lua" || !wanted(at) {
			return err
		}
		text, err := fs.ReadFile(files, at)
		out[at] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// header returns the comment at the beginning of a file.
func header(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		comment, ok := strings.CutPrefix(line, "--")
		if !ok || includeLine.MatchString(strings.TrimSuffix(line, "\n")) {
			break
		}
		lines = append(lines, strings.TrimSpace(comment))
	}
	return strings.Join(lines, "\n")
}

// body returns a text without its comments.
func body(text string) string { return luaComment.ReplaceAllString(text, "") }

var luaComment = regexp.MustCompile(`(?m)--.*$`)

// checkHeader checks that the header of a script has every part that it must have.
func checkHeader(t testing.TB, at, text string) {
	t.Helper()
	h, name := header(text), strings.TrimSuffix(path.Base(at), ".lua")
	for _, part := range []string{
		`^` + name + `: [a-z]`, `\n\nGuarantee: `, `\nKEYS\[1\] `, `\nReturns `, `\nRedis 7\.0\. Cost: O\(`,
	} {
		if !regexp.MustCompile(part).MatchString(h) {
			t.Errorf("the header of %s has no %q", at, part)
		}
	}
	for _, table := range []string{"KEYS", "ARGV"} {
		documented := indexes(h, table+`\[(\d+)`) // "KEYS[6..]" too
		for i := range indexes(body(text), table+`\[(\d+)\]`) {
			if !documented[i] {
				t.Errorf("%s uses %s[%d], which its header does not explain", at, table, i)
			}
		}
	}
}

// indexes returns the numbers that pattern finds in text.
func indexes(text, pattern string) map[int]bool {
	out := make(map[int]bool)
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		out[n] = true
	}
	return out
}

// checkInclude compares the header of an include with its whole text.
func checkInclude(t testing.TB, at, whole string) {
	t.Helper()
	if !strings.HasPrefix(whole, "-- ") {
		t.Errorf("%s does not say what it is", at)
	}
	h, names := header(whole), analyse(t, at, whole)
	for _, line := range []struct {
		label string
		want  []string
	}{{"Needs", names.free}, {"Sets", names.assigned}, {"Defines", names.defines}} {
		if got := listed(h, line.label); !slices.Equal(got, line.want) {
			t.Errorf("%s: its header should say\n-- %s: %s\nand says %q", at, line.label, strings.Join(line.want, ", "), got)
		}
	}
}

// listed returns the names in a line such as "Needs: a, b", sorted. A line that ends with a comma
// continues in the next one.
func listed(header, label string) []string {
	m := regexp.MustCompile(`(?m)^` + label + `: ((?:.*,\n)*.*)$`).FindStringSubmatch(header)
	if m == nil {
		return nil
	}
	names := strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
	slices.Sort(names)
	return names
}

var aliased = regexp.MustCompile(`(?m)local ([\w, ]+) = ((?:redis\.p?call, )*redis\.p?call)(?:,|\s|$)`)

// checkCommands checks that the names of all commands are where commands looks for them.
func checkCommands(t testing.TB, at, whole string) {
	t.Helper()
	text := body(whole)
	for _, m := range aliased.FindAllStringSubmatch(text, -1) {
		for i := range strings.Count(m[2], "redis.") {
			if name := strings.TrimSpace(strings.Split(m[1], ",")[i]); name != "call" && name != "try" {
				t.Errorf("%s: %s is redis.call by a name that this test does not know", at, name)
			}
		}
	}
	for _, call := range commandCall.FindAllStringSubmatch(text, -1) {
		if !commandName.MatchString(call[1]) && call[1] != "command" {
			t.Errorf("%s: which command is %q?", at, call[0])
		}
	}
	if len(commands(whole)) == 0 {
		t.Errorf("%s calls nothing", at)
	}
}
