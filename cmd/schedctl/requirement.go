package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/freeslot/freeslot"
)

// requirementFlags decide where a job goes. All commands about a job share them.
type requirementFlags struct {
	Pool        string            `placeholder:"POOL" help:"Only nodes of this pool."`
	PreferPool  string            `aliases:"preferred-pool" placeholder:"POOL" help:"Nodes of this pool first, then the other fitting nodes."`
	AlsoService []string          `sep:"none" placeholder:"SERVICE" help:"Further service that the node must have, with an optional range of versions, such as 'asr@>=1.2 <2'. Can be repeated."`
	Source      string            `aliases:"source-language" placeholder:"LANG" help:"Language that the node must understand, such as de or zh-Hant-TW."`
	Target      string            `aliases:"target-language" placeholder:"LANG" help:"Language that the node must produce."`
	Label       map[string]string `mapsep:"," placeholder:"NAME=VALUE" help:"Label that the node must have. Can be repeated."`
	LabelRule   []labelRule       `sep:"none" placeholder:"RULE" help:"Comparison that must hold for a label: 'gpu in A100,H100', 'zone not_in eu-1', 'gpu exists', 'gpu not_exists', or a number: 'ram_gb ge 64' (gt, ge, lt, le). Can be repeated."`
	Feature     []string          `sep:"," placeholder:"NAME" help:"Feature that the node must have. Can be repeated."`
	AffinityKey string            `placeholder:"KEY" help:"Jobs with the same key go to the same node while that has room."`
	Slots       int               `placeholder:"N" help:"Slots that the job takes (default 1)."`
}

// job makes a job of the service from the flags, not validated.
func (f *requirementFlags) job(service string) *freeslot.Job {
	return &freeslot.Job{
		Service: service, Slots: f.Slots, AffinityKey: f.AffinityKey,
		Requirement: freeslot.Requirement{
			Pool: f.Pool, PreferredPool: f.PreferPool, Services: f.AlsoService,
			SourceLanguage: f.Source, TargetLanguage: f.Target, Labels: f.Label, LabelRules: labelRules(f.LabelRule),
			Features: f.Feature,
		},
	}
}

// explainCommand returns the command that shows the reasons against each node, ready for a shell.
func (f *requirementFlags) explainCommand(service string) string {
	words := []string{"schedctl", "explain", service}
	add := func(name, value string) {
		if value != "" {
			words = append(words, name, value)
		}
	}
	add("--pool", f.Pool)
	add("--prefer-pool", f.PreferPool)
	for _, s := range f.AlsoService {
		add("--also-service", s)
	}
	add("--source", f.Source)
	add("--target", f.Target)
	for _, name := range slices.Sorted(maps.Keys(f.Label)) {
		add("--label", name+"="+f.Label[name])
	}
	for _, r := range f.LabelRule {
		add("--label-rule", strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Label, r.Operator, strings.Join(r.Values, ","))))
	}
	for _, name := range f.Feature {
		add("--feature", name)
	}
	add("--affinity-key", f.AffinityKey)
	if f.Slots != 0 {
		add("--slots", fmt.Sprint(f.Slots))
	}
	for i := range words {
		words[i] = quoted(words[i])
	}
	return strings.Join(words, " ")
}

// quoted quotes a word for a shell.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.=@:/+,%", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
