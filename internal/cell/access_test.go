package cell

import (
	"path"
	"slices"
	"testing"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
)

func TestAccess(t *testing.T) {
	t.Parallel()
	scripttest.CheckAccess(t, Access)
}

// TestAgentKeys: the agent of a node may not use keys of other nodes, nor those that are not its business, and changes
// nothing by which others start and choose.
func TestAgentKeys(t *testing.T) {
	t.Parallel()
	l := Layout{Prefix: "p"}
	names := agentNames(script.Layout(l), "n1")
	granted := func(key string) bool {
		return slices.ContainsFunc(slices.Concat(names.Keys, names.Reads), func(pattern string) bool { ok, _ := path.Match(pattern, key); return ok })
	}
	for _, key := range []string{
		l.Node("n2"), l.Slots("n2"), l.Dispatch("n10"), "q:jobs:x", l.key("config:paused", ""), l.key("cron", ""), l.key("version:followed", ""), l.Gateway("r1"),
	} {
		if granted(key) {
			t.Errorf("the agent of n1 may use %s", key)
		}
	}
	for _, key := range []string{l.Cells(), l.Schema(), l.ServesVersion()} {
		if !slices.Contains(names.Reads, key) || slices.Contains(names.Keys, key) {
			t.Errorf("the agent of n1 may change %s, or not read it", key)
		}
	}
}
