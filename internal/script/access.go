package script

import (
	"regexp"
	"strings"
)

// Access is what a process needs in Redis, as ACL rules state it.
type Access struct {
	// Scripts are the hashes of the scripts that it calls; empty where it may load and call any
	// script.
	Scripts []string
	// Commands are names of commands, lower case, with a subcommand behind "|". The commands inside
	// scripts are among them, because Redis checks them against the caller of the script.
	Commands []string
	// Categories are categories of commands without the "@", in the order of the rules. A "-" in
	// front takes the category away.
	Categories []string
	// Keys, Reads and Channels are patterns; Reads are for keys that are only read.
	Keys, Reads, Channels []string
}

// Rules are the ACL rules of a user that has this access and no other.
func (a Access) Rules() []string {
	return append([]string{"resetkeys", "resetchannels", "-@all"}, a.Additions()...)
}

// Additions are Rules without the ones that take everything away first.
func (a Access) Additions() []string {
	var rules []string
	for _, c := range a.Categories {
		if name, minus := strings.CutPrefix(c, "-"); minus {
			rules = append(rules, "-@"+name)
		} else {
			rules = append(rules, "+@"+name)
		}
	}
	add := func(before string, names []string) {
		for _, name := range names {
			rules = append(rules, before+name)
		}
	}
	add("+", a.Commands)
	add("+evalsha|", a.Scripts)
	add("~", a.Keys)
	add("%R~", a.Reads)
	add("&", a.Channels)
	return rules
}

var (
	luaComment = regexp.MustCompile(`(?m)--.*$`)
	// commandCall is a call of redis.call or redis.pcall, also by one of the local names for them
	// in scripts, or of lib/sure.lua. It ends with the command's name, which can be one of several.
	commandCall = regexp.MustCompile(`\b(?:redis\.p?call\(|call\(|try\(|sure\(|pcall\(redis\.p?call, )([^,()]*)`)
	commandName = regexp.MustCompile(`'([A-Z]+)'`)
)

// Commands are the commands that the script can call, lower case.
func (s *Script) Commands(sharded bool) []string {
	var found []string
	for _, call := range commandCall.FindAllStringSubmatch(luaComment.ReplaceAllString(s.Text(sharded), ""), -1) {
		for _, name := range commandName.FindAllStringSubmatch(call[1], -1) {
			found = append(found, strings.ToLower(name[1]))
		}
	}
	return found
}
