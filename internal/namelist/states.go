package namelist

import (
	"slices"
	"strings"
)

// rule describes a state, and what can be done in it.
type rule struct {
	state  State
	serves string
	// begins lists the operations that can begin here.
	begins []OpKind
	// entered lists the operations that bring a list here. Compaction has no state.
	entered []OpKind
	// edits and urgent are true if edits outside a session are allowed.
	edits, urgent bool
	// set is true if settings can change, and versions be accepted.
	set, freeze, unfreeze, remove bool
	// note is for people.
	note string
}

// rules is the state machine. Code and docs are derived from it; nothing changes it.
var rules = []rule{
	{
		state: Draft, serves: "no: unknown", begins: []OpKind{OpImport, OpEdit, OpSwitch},
		set: true, remove: true,
	},
	{
		state: Active, serves: "yes", begins: []OpKind{OpImport, OpEdit, OpExpand, OpMove, OpSwitch, OpCompact},
		edits: true, urgent: true, set: true, freeze: true, remove: true,
	},
	{state: Editing, serves: "as before", entered: []OpKind{OpEdit}, urgent: true, set: true, note: "commit or cancel"},
	{
		state: Importing, serves: "as before", entered: []OpKind{OpImport}, urgent: true, set: true, note: "finish or cancel",
	},
	{
		state: Expanding, serves: "yes", entered: []OpKind{OpExpand, OpMove}, urgent: true, set: true,
		note: "finish or cancel",
	},
	{
		state: Switching, serves: "as before", entered: []OpKind{OpSwitch}, urgent: true, set: true,
		note: "cancel before the pointer has moved",
	},
	{state: Frozen, serves: "yes", unfreeze: true, remove: true},
	{state: Deleting, serves: "no: unknown", note: "nothing"},
}

// ruleOf returns the rule of a state; the rule of an unknown state allows nothing.
func ruleOf(state State) rule {
	if i := slices.IndexFunc(rules, func(r rule) bool { return r.state == state }); i >= 0 {
		return rules[i]
	}
	return rule{state: state}
}

// entering returns the state that an operation brings a list into. Compaction leaves it in its
// state.
func entering(kind OpKind, now State) State {
	for _, r := range rules {
		if slices.Contains(r.entered, kind) {
			return r.state
		}
	}
	return now
}

// statesFor returns the states whose rules allow something.
func statesFor(allows func(rule) bool) (out []string) {
	for _, r := range rules {
		if allows(r) {
			out = append(out, string(r.state))
		}
	}
	return out
}

// StateTable returns the state machine as a table in Markdown.
func StateTable() string {
	var b strings.Builder
	b.WriteString("| state | entered by | serves | begins here | also allowed |\n| --- | --- | --- | --- | --- |\n")
	for _, r := range rules {
		var also []string
		for _, a := range []struct {
			is   bool
			what string
		}{
			{r.note != "", r.note},
			{r.edits, "edits"},
			{r.urgent, "urgent edits"},
			{r.set, "settings"},
			{r.freeze, "freeze"},
			{r.unfreeze, "unfreeze"},
			{r.remove, "delete"},
		} {
			if a.is {
				also = append(also, a.what)
			}
		}
		b.WriteString(
			"| `" + string(r.state) + "` | " + kinds(r.entered) + " | " + r.serves + " | " + kinds(r.begins) + " | " +
				strings.Join(also, ", ") + " |\n",
		)
	}
	return b.String()
}

func kinds(of []OpKind) string {
	out := make([]string, len(of))
	for i, k := range of {
		out[i] = string(k)
	}
	return strings.Join(out, ", ")
}
