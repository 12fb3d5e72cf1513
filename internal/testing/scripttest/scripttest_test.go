package scripttest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/freeslot/freeslot/internal/script"
)

// good is a feature that keeps the rules.
func good() map[string]string {
	return map[string]string{
		"script/put.lua": `-- put: writes a value.
--
-- Guarantee: written, or not.
--
-- KEYS[1] thing:<name>  string
-- ARGV[1] value
-- Returns when, in ms
-- Redis 7.0. Cost: O(1).
local thing_key, value = KEYS[1], ARGV[1]
-- include lib/clock.lua
-- include lib/write.lua
if value ~= '' then write(thing_key) end
return now
`,
		"script/lib/write.lua": `-- write: writes the value.
-- Needs: value
-- Defines: write
local function write(key)
  redis.call('SET', key, value)
end
`,
	}
}

// heard collects the messages of a check instead of failing.
type heard struct {
	testing.TB
	said []string
}

func (h *heard) Helper() {}
func (h *heard) Errorf(format string, args ...any) {
	h.said = append(h.said, fmt.Sprintf(format, args...))
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, old, new, want string }{
		"good":                        {},
		"read, not defined":           {"script/put.lua", "return now", "return later", "later"},
		"assigned, not declared":      {"script/put.lua", "return now", "count = 1 return now", "count"},
		"called before it is defined": {"script/put.lua", "-- include lib/clock.lua", "write(1) -- include lib/clock.lua", "write"},
		"out of its block":            {"script/put.lua", "if value ~= '' then write(thing_key) end", "if value ~= '' then local x = 1 write(x) end value = x", "names that nothing defines: x"},
		"needs more":                  {"script/lib/write.lua", "redis.call('SET', key, value)", "redis.call('SET', key, value .. now)", "-- Needs: now, value"},
		"needs less":                  {"script/lib/write.lua", "-- Needs: value", "-- Needs: value, now", "-- Needs: value"},
		"defines more":                {"script/lib/write.lua", "local function", "local most = 1\nlocal function", "-- Defines: most, write"},
		"sets":                        {"script/lib/write.lua", "redis.call('SET', key, value)", "value = redis.call('SET', key, 1)", "-- Sets: value"},
		"no guarantee":                {"script/put.lua", "Guarantee", "Promise", "Guarantee"},
		"unexplained":                 {"script/put.lua", "ARGV[1]\n", "ARGV[1] .. ARGV[2]\n", "ARGV[2]"},
		"not included":                {"script/put.lua", "-- include lib/write.lua\n", "local write = redis.call\n", "nothing includes script/lib/write.lua"},
		"unknown command":             {"script/lib/write.lua", "redis.call('SET', key, value)", "redis.call(value, key, value)", "which command"},
		"by another name":             {"script/put.lua", "return now", "local run = redis.call\nreturn run('TIME')", "run is redis.call"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := make(fstest.MapFS)
			for at, text := range good() {
				if at == c.file {
					if !strings.Contains(text, c.old) {
						t.Fatalf("%s has no %q", at, c.old)
					}
					text = strings.Replace(text, c.old, c.new, 1)
				}
				files[at] = &fstest.MapFile{Data: []byte(text)}
			}
			h := &heard{TB: t}
			Check(h, files)
			if c.want == "" && len(h.said) > 0 || c.want != "" && !slices.ContainsFunc(h.said, func(s string) bool { return strings.Contains(s, c.want) }) {
				t.Errorf("said %q, expected %q", h.said, c.want)
			}
		})
	}
	t.Run("hides a common include", func(t *testing.T) {
		t.Parallel()
		files := fstest.MapFS{"script/lib/clock.lua": {Data: []byte("-- clock: another.\n-- Defines: now\nlocal now = 1\n")}}
		for at, text := range good() {
			files[at] = &fstest.MapFile{Data: []byte(text)}
		}
		h := &heard{TB: t}
		Check(h, files)
		if len(h.said) != 1 || !strings.Contains(h.said[0], "hides") {
			t.Errorf("said %q", h.said)
		}
	})
}

// TestCommands: those of a script are what it calls, not what its comments name.
func TestCommands(t *testing.T) {
	t.Parallel()
	const text = "-- redis.call('KEYS')\nredis.call('GET', k)\npcall(redis.call, 'SET', k)\nredis.pcall(last and 'LPOP' or 'RPOP', k)\nsure('DEL', k)\n"
	if got := slices.Sorted(maps.Keys(commands(text))); !slices.Equal(got, []string{"del", "get", "lpop", "rpop", "set"}) {
		t.Errorf(`%q; want slices.Equal(got, []string{"del", "get", "lpop", "rpop", "set"})`, got)
	}
}

func TestCheckAccess(t *testing.T) {
	t.Parallel()
	const text = `-- put: writes.
-- KEYS[1] thing:<name>  string
-- ARGV[1] value
redis.call('SET', KEYS[1], ARGV[1])
redis.call('PUBLISH', channel, key('other', 'x'))
`
	needs := script.Needs{
		Scripts: []string{"put"}, Commands: []string{"set"}, Publishes: true,
		Names: func(l script.Layout, node string) script.Names {
			return script.Names{Keys: []string{l.Key("thing", node), l.Key("other", "*")}}
		},
	}
	for name, c := range map[string]struct {
		change func(n *script.Needs)
		want   string
	}{
		"good":                 {func(*script.Needs) {}, ""},
		"a command is missing": {func(n *script.Needs) { n.Commands = nil }, "calls set"},
		"a command too many":   {func(n *script.Needs) { n.Commands = []string{"get", "set"} }, "may call get"},
		"publishes":            {func(n *script.Needs) { n.Publishes = false }, "publishes"},
		"no such script":       {func(n *script.Needs) { n.Scripts = []string{"put", "take"} }, "calls take"},
		"a key is missing": {func(n *script.Needs) {
			n.Names = func(l script.Layout, _ string) script.Names { return script.Names{Keys: []string{l.Key("thing", "*")}} }
		}, `"other"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent := needs
			c.change(&agent)
			h := &heard{TB: t}
			CheckAccess(h, script.Access{
				Scripts: script.Set{"put": script.New("put", text)},
				Roles: map[script.Role]script.Needs{
					script.RoleAgent:   agent,
					script.RoleReplica: {Commands: []string{"arbitrary", "scan", "set"}, Publishes: true}, // what Go code here builds
				},
			})
			if c.want == "" && len(h.said) > 0 || c.want != "" && !slices.ContainsFunc(h.said, func(s string) bool { return strings.Contains(s, c.want) }) {
				t.Errorf("said %q, expected %q", h.said, c.want)
			}
		})
	}
}
