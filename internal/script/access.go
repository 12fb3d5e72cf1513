package script

import (
	"regexp"
	"slices"
	"strings"
)

// Access is what a process needs in Redis.
type Access struct {
	// Scripts are the hashes of the scripts that it calls; empty where it may load and call any.
	Scripts []string
	// Commands are the names of commands, lower case, with a subcommand behind "|". Those that scripts
	// call are among them, because Redis asks whether their caller may call them.
	Commands []string
	// Categories are of commands, without the "@": added first, then those with a "-" in front are taken
	// away.
	Categories []string
	// Keys and Channels are patterns. Reads are of keys that are only read.
	Keys, Reads, Channels []string
}

// Join is what a process needs that does the work of all.
func Join(all ...Access) (a Access) {
	add := func(to *[]string, list []string) {
		*to = append(*to, list...)
		slices.Sort(*to)
		*to = slices.Compact(*to)
	}
	for _, b := range all {
		a.Categories = append(a.Categories, b.Categories...) // their order counts
		add(&a.Scripts, b.Scripts)
		add(&a.Commands, b.Commands)
		add(&a.Keys, b.Keys)
		add(&a.Reads, b.Reads)
		add(&a.Channels, b.Channels)
	}
	return a
}

// Rules are what Redis' ACL takes for a user that may do what a says and nothing else.
func (a Access) Rules() []string {
	return append([]string{"resetkeys", "resetchannels", "-@all"}, a.Additions()...)
}

// Additions are those of Rules that give something.
func (a Access) Additions() []string {
	var rules []string
	for _, c := range a.Categories {
		if name, minus := strings.CutPrefix(c, "-"); minus {
			rules = append(rules, "-@"+name)
		} else {
			rules = append(rules, "+@"+name)
		}
	}
	for _, c := range a.Commands {
		rules = append(rules, "+"+c)
	}
	for _, sha := range a.Scripts {
		rules = append(rules, "+evalsha|"+sha)
	}
	for _, k := range a.Keys {
		rules = append(rules, "~"+k)
	}
	for _, k := range a.Reads {
		rules = append(rules, "%R~"+k)
	}
	for _, c := range a.Channels {
		rules = append(rules, "&"+c)
	}
	return rules
}

var (
	luaComment = regexp.MustCompile(`(?m)--.*$`)
	// commandCall is a call of redis.call or redis.pcall, of one of the names that scripts give them, or of
	// lib/sure.lua, up to the end of the command's name, which may be one of several.
	commandCall = regexp.MustCompile(`\b(?:redis\.p?call\(|call\(|try\(|sure\(|pcall\(redis\.p?call, )([^,()]*)`)
	commandName = regexp.MustCompile(`'([A-Z]+)'`)
)

// Commands are those that the script can call, lower case.
func (s *Script) Commands(sharded bool) []string {
	var found []string
	for _, call := range commandCall.FindAllStringSubmatch(luaComment.ReplaceAllString(s.Text(sharded), ""), -1) {
		for _, name := range commandName.FindAllStringSubmatch(call[1], -1) {
			found = append(found, strings.ToLower(name[1]))
		}
	}
	return found
}
