package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

// Every duration flag of every command: one below zero is refused by name before anything is asked,
// and so is zero, unless the flag says what that is.
func TestDurationsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(&commands{}, kong.Name("schedctl"), kong.Vars{"states": stateNames()})
	must(t, err)
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, []byte("1"), 0o600))
	value := func(v *kong.Value) string {
		switch enum := strings.Trim(v.Enum, ","); {
		case enum != "":
			first, _, _ := strings.Cut(enum, ",")
			return first
		case v.Target.CanInt() || v.Target.CanUint():
			return "1"
		default:
			return file
		}
	}
	seen := 0
	for _, leaf := range parser.Model.Leaves(false) {
		words := wordsOf(leaf)
		var base []string
		for _, arg := range leaf.Positional {
			base = append(base, value(arg))
		}
		for _, group := range leaf.AllFlags(true) {
			for _, flag := range group {
				if flag.Required {
					base = slices.Concat([]string{"--" + flag.Name, value(flag.Value)}, base)
				}
			}
		}
		for _, group := range leaf.AllFlags(true) {
			for _, flag := range group {
				typ := flag.Target.Type()
				if typ.Kind() == reflect.Pointer {
					typ = typ.Elem()
				}
				if typ != reflect.TypeFor[time.Duration]() {
					continue
				}
				seen++
				for _, bad := range []string{"-1h", "0s"} {
					if bad == "0s" && flag.Tag.Get("least") == "0s" {
						continue
					}
					args := slices.Concat(words, []string{"--server", "127.0.0.1:1", "--" + flag.Name + "=" + bad}, base)
					command(t, "", args...).expect(t, exitUsage, "--"+flag.Name+" is ", "expected at least")
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d duration flags were found, expected at least 20", seen)
	}
}

// Days are durations, too.
func TestParseDuration(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"7d": 7 * day, "1d12h": 36 * time.Hour, "90s": 90 * time.Second, "0d": 0, "2160h": 90 * day, "-1h": -time.Hour,
		"106750d23h": 106750*day + 23*time.Hour,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "7", "7days", "-1d", "1d-2h", "1.5d", "1h7d", "106751d", "99999999999999999999d", "7d "} {
		if got, err := parseDuration(text); err == nil || !strings.Contains(err.Error(), "expected a duration") {
			t.Errorf("%q: %s, %v; want an error that says what was expected", text, got, err)
		}
	}
}
