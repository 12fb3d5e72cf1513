package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// canaryChain is a document for a percentage of users and the list vip.
func canaryChain(percent int, list string) string {
	return fmt.Sprintf(`{"name": "canary", "variants": {"new": {"pool": "b"}}, "default": "allow", "rules": [
		{"name": "testers", "kind": "in", "list": %q, "unknown": "skip", "outcome": "variant: new"},
		{"name": "share", "kind": "percentage", "percent": %d, "unknown": "skip", "outcome": "variant: new"}]}`, list, percent)
}

// TestListsChain: a chain from its first version to its end, as an operator sees it.
func TestListsChain(t *testing.T) {
	t.Parallel()
	l := start(t)
	ctl := func(args ...string) result {
		t.Helper()
		return l.ctl(t, append([]string{"lists", "chain"}, args...)...)
	}
	file := func(text string) string { return listFile(t, "chain.json", text) }

	ctl("show", "canary").expect(t, exitFailure, "not_found", "there is no chain canary")
	ctl("apply", "canary", file("{")).expect(t, exitFailure, "chain.json")
	bad := strings.Replace(canaryChain(101, "none"), `"default": "allow"`, `"default": "next", "extra": 1`, 1)
	ctl("apply", "canary", file(bad)).expect(t, exitFailure, "invalid_argument", "extra is not a known field",
		"rules[0].list", "rules[1].percent", "default is next")
	l.ctl(t, "lists", "apply", "vip").expect(t, exitOK)
	ctl("apply", "other", file(canaryChain(5, "vip"))).expect(t, exitFailure, `name is "canary", expected other`)
	ctl("apply", "canary", file(canaryChain(5, "vip")), "--note", "first").expect(t, exitOK, "chain canary serves version 1")
	ctl("apply", "canary", file(canaryChain(5, "vip"))).expect(t, exitOK, "chain canary serves version 1")
	ctl("apply", "canary", file(canaryChain(10, "vip")), "--seen", "0").expect(t, exitFailure, "conflict", "is at version 1")
	ctl("apply", "canary", file(canaryChain(10, "vip"))).expect(t, exitOK, "chain canary serves version 2")
	ctl("ls").expect(t, exitOK, "CHAIN   VERSION  SHADOW", "canary  2        -")
	ctl("show", "canary").expect(t, exitOK, `"percent": 10`)
	ctl("show", "canary", "--version", "1").expect(t, exitOK, `"percent": 5`)
	ctl("show", "canary", "--shadow").expect(t, exitFailure, "has no shadow")
	ctl("diff", "canary").expect(t, exitOK, "version 2 against version 1: 1 field differs", "~ rules.share.percent: 5 -> 10")
	ctl("diff", "canary", "--to", "1").expect(t, exitOK, "version 1 against version 0", `~ default: "" -> "allow"`)
	ctl("diff", "canary", "--from", "2").expect(t, exitOK, "versions 2 and 2 are equal")

	l.ctl(t, "lists", "import", "vip", listFile(t, "vip.txt", "tester\n"), "--switch").expect(t, exitOK)
	waittest.Until(t, "the replica's copy of the list", func() bool {
		return strings.Contains(ctl("evaluate", "canary", "tester").out, "variant: new")
	})
	waittest.Until(t, "the replica among the clients", func() bool {
		return strings.Contains(ctl("clients", "canary").out, "(redis)")
	})
	ctl("clients", "none").expect(t, exitFailure, "not_found")
	ctl("evaluate", "canary", "tester", "--attr", "age=18").expect(t, exitFailure, "invalid_argument",
		"subjects[0].attributes.age is not declared by the chain, expected none: the chain declares no attributes")
	ctl("evaluate", "canary", "tester", "--file", listFile(t, "s.txt", "user-1\n{\"key\": \"user-2\"}\n")).
		expect(t, exitOK, `tester  variant: new  {"pool":"b"}  testers  rule`, "user-1", "user-2")
	ctl("evaluate", "other", "a").expect(t, exitFailure, "not_found")
	ctl("evaluate", "canary").expect(t, exitUsage, "name a key or --file")
	sample := listFile(t, "sample.txt", "tester\n"+ids(1500))
	ctl("apply", "canary", file(canaryChain(100, "vip")), "--dry-run", sample).expect(t, exitOK,
		"against version 2 it changes the outcome of 1337 of 1501 subjects", "BEFORE  AFTER         SUBJECTS", "allow   variant: new  1337")
	ctl("apply", "canary", file(canaryChain(10, "vip")), "--dry-run", sample).expect(t, exitOK, "changes the outcome of 0 of 1501 subjects")
	ctl("apply", "fresh", file(strings.Replace(canaryChain(0, "vip"), `"canary"`, `"fresh"`, 1)), "--dry-run", sample).
		expect(t, exitOK, "against no chain", "unknown  allow         1500")
	ctl("show", "fresh").expect(t, exitFailure, "not_found")

	ctl("shadow", "canary", file(canaryChain(20, "none"))).expect(t, exitFailure, "rules[0].list")
	ctl("shadow", "canary", file(canaryChain(20, "vip"))).expect(t, exitOK, "chain canary has a shadow beside version 2")
	ctl("show", "canary", "--shadow").expect(t, exitOK, `"percent": 20`)
	ctl("ls").expect(t, exitOK, "canary  2        yes")
	// The replica decides by both, and counts how they differ: 10 % and 20 % of 1501 subjects.
	shadows := regexp.MustCompile(`freeslot_namelist_chain_shadow_total\{chain="canary",result="different"\} [1-9]`)
	waittest.Until(t, "the replica to count what its shadow decides otherwise", func() bool {
		ctl("evaluate", "canary", "--file", sample).expect(t, exitOK)
		return shadows.MatchString(l.metrics(t))
	})
	ctl("stats", "canary", "--since", "7d").expect(t, exitOK, "RULE", "SHADOW SAME", "all", "decisions, 3h0m0s a column")
	ctl("stats", "none").expect(t, exitFailure, "there is no chain none")
	ctl("shadow", "canary").expect(t, exitOK, "chain canary has no shadow beside version 2")

	ctl("rollback", "canary", "9").expect(t, exitFailure, "not_found", "no version 9")
	ctl("rollback", "canary", "1", "--note", "back").expect(t, exitOK, "chain canary serves version 3")
	ctl("versions", "canary").expect(t, exitOK, "VERSION", "back", "first")
	l.ctl(t, "lists", "rm", "vip").expect(t, exitFailure, "conflict", "is asked by chain canary")
	l.ctl(t, "audit").expect(t, exitOK, "rollback-chain", "rollback, version 3", "put-chain", "shadow-chain")
	ctl("rm", "canary", "--seen", "1").expect(t, exitFailure, "conflict")
	ctl("rm", "canary").expect(t, exitOK, "chain canary is deleted")
	ctl("rm", "canary").expect(t, exitFailure, "not_found")
	l.ctl(t, "lists", "rm", "vip", "--force").expect(t, exitOK) // the replica is a client
}
