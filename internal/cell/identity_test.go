package cell

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestNodes reads the nodes that are asked for and no others.
func TestNodes(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(richNode("n1"))
		r.register(testNode("n2", 4))
		r.register(testNode("n3", 1))
		r.place("", 2, "n2")
		if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Resources: json.RawMessage(`{"a":1}`)}); err != nil {
			t.Fatal(err)
		}
		r.do("HSET", r.l.Node("n2"), "max_concurrency", "7") // which no script announces
		r.do("DEL", r.l.Node("n3"))
		var got Changes
		r.unchanged("reading nodes", func() {
			var err error
			if got, err = r.Nodes(r.ctx(), []string{"n3", "n2", "nobody", "n1"}); err != nil {
				t.Fatal(err)
			}
		}, nil)
		if got.Revision != r.revision() || got.NowMS == 0 || len(got.Nodes) != 4 {
			t.Fatalf("%+v; want got.Revision == r.revision(), got.NowMS != 0, len(got.Nodes) == 4", got)
		}
		slices.SortFunc(got.Nodes, func(a, b NodeState) int { return strings.Compare(a.Node.ID, b.Node.ID) })
		n1, n2, n3, nobody := got.Nodes[0], got.Nodes[1], got.Nodes[2], got.Nodes[3]
		if n1.Node.ID != "n1" || n1.Epoch != epoch || string(n1.Resources) != `{"a":1}` || n1.Revision != Revision(r.scores(r.l.Revisions())["n1"]) {
			t.Errorf("%+v; want n1.Node.ID == \"n1\", n1.Epoch == %v, string(n1.Resources) == `{\"a\":1}`, n1.Revision == Revision(r.scores(r.l.Revisions())[\"n1\"])", n1, epoch)
		}
		if n2.Node.MaxConcurrency != 7 || n2.Used != 2 || n2.Gone {
			t.Errorf("%+v", n2)
		}
		if !n3.Gone || n3.Node.ID != "n3" || !nobody.Gone || nobody.Revision != 0 {
			t.Errorf(`%+v, %+v; want n3.Gone, n3.Node.ID == "n3", nobody.Gone, nobody.Revision == 0`, n3, nobody)
		}
		if none, err := r.Nodes(r.ctx(), nil); err != nil || len(none.Nodes) != 0 {
			t.Errorf("%+v, %v, expected 0 nodes", none, err)
		}
	})
}

// TestHistory: the same as long as the server lives, another after a restart, which may
// have lost writes; nothing where the server does not tell.
func TestHistory(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.AppendOnly("always"))
	r := newRig(t, server.Target)
	history := func(r *rig) string {
		t.Helper()
		for {
			id, err := r.History(r.ctx())
			if err == nil {
				return id
			}
			if r.ctx().Err() != nil {
				t.Fatal(err)
			}
		}
	}
	began := func() int64 {
		t.Helper()
		for {
			ch, err := r.Changes(r.ctx(), 0, 1)
			if err == nil {
				return ch.GenerationAtMS
			}
			if r.ctx().Err() != nil {
				t.Fatal(err)
			}
		}
	}
	if history(r); r.exists(r.l.Version()) {
		t.Error("a cell without records has a counter")
	}
	r.register(testNode("n1", 1))
	must(t, r.raw.Do(r.ctx(), r.raw.B().Hset().Key(r.l.Version()).FieldValue().FieldValue("generation_at_ms", "1").Build()).Error())
	before := history(r)
	if before == "" || before != history(r) {
		t.Errorf("%q, then %q", before, history(r))
	}
	if at := began(); at != 1 {
		t.Errorf("the records began at %d", at)
	}
	server.Kill()
	server.Restart()
	if after := history(r); after == "" || after == before {
		t.Errorf("%q before and %q after a restart", before, after)
	}
	// The first to ask notes when, for replicas that start later.
	at := began()
	if history(r); at < time.Now().Add(-time.Minute).UnixMilli() || at != began() {
		t.Errorf("after a restart the records began at %d, then at %d", at, began())
	}
	cluster := redistest.Cluster(t)
	seen := make(map[string]bool)
	for i := range 3 { // the cells of three are on a master each
		seen[history(newRig(t, cluster, func(c *Config) { c.Layout = Layouts(c.Layout.Prefix, 3, true)[i] }))] = true
	}
	if len(seen) != 3 {
		t.Errorf("three masters have %d histories", len(seen))
	}
}
