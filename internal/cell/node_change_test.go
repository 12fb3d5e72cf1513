package cell

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
)

func TestChanges(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		empty, err := r.Changes(r.ctx(), 0, 10)
		if err != nil || empty.Generation != "" || empty.Revision != 0 || len(empty.Nodes) != 0 || empty.More || empty.NowMS == 0 {
			t.Errorf("an empty cell: %+v, %v", empty, err)
		}
		node := richNode("n1")
		epoch := r.register(node)
		r.place("", 2, "n1")
		beat, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Status: freeslot.StatusDraining, Resources: json.RawMessage(`{"cpu":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		r.register(testNode("n2", 1))
		left := r.register(testNode("n3", 1))
		if _, err := r.Deregister(r.ctx(), "n3", left); err != nil {
			t.Fatal(err)
		}
		lost := r.register(testNode("n4", 1))
		r.do("DEL", r.l.Node("n4"))
		before := r.nowMS()
		beaten, _ := r.load("n1")
		var ch Changes
		r.unchanged("changes", func() { ch, err = r.Changes(r.ctx(), 0, 10) }, nil)
		if err != nil || ch.Revision != r.revision() || ch.Next != ch.Revision || ch.More || ch.Incomplete || ch.NowMS < before ||
			ch.Generation != r.field(r.l.Version(), "generation") || len(ch.Nodes) != 4 ||
			strconv.FormatInt(ch.GenerationAtMS, 10) != r.field(r.l.Version(), "generation_at_ms") || ch.GenerationAtMS > before || ch.GenerationAtMS < before-60_000 {
			t.Fatalf("%+v, %v", ch, err)
		}
		node.Pools = []string{"eu", "gpu"}
		want := NodeState{
			Node: node, Epoch: epoch, Status: freeslot.StatusDraining, Used: 2, Resources: json.RawMessage(`{"cpu":1}`), Revision: beat.Revision,
			RegisteredAtMS: ch.Nodes[0].RegisteredAtMS, LastHeartbeatMS: beaten,
		}
		if d := cmp.Diff(want, ch.Nodes[0]); d != "" || want.RegisteredAtMS == 0 {
			t.Errorf("n1 (-want +got):\n%s", d)
		}
		if ch.Nodes[1].Node.ID != "n2" || ch.Nodes[1].Resources != nil || ch.Nodes[1].Used != 0 {
			t.Errorf("n2: %+v", ch.Nodes[1])
		}
		if d := cmp.Diff(NodeState{Node: freeslot.Node{ID: "n3"}, Revision: ch.Revision - 1, Gone: true}, ch.Nodes[2]); d != "" {
			t.Errorf("n3 (-want +got):\n%s", d)
		}
		if d := cmp.Diff(NodeState{Node: freeslot.Node{ID: "n4"}, Revision: ch.Revision, Gone: true, Lost: true}, ch.Nodes[3]); d != "" {
			t.Errorf("n4 (-want +got):\n%s", d)
		}
		single, err := r.Nodes(r.ctx(), []string{"n3", "n4"})
		if err != nil || len(single.Nodes) != 2 || !single.Nodes[0].Gone || single.Nodes[0].Lost || !single.Nodes[1].Lost {
			t.Errorf("%+v, %v", single, err)
		}
		if _, err := r.Register(r.ctx(), testNode("n4", 1), lost); err != nil {
			t.Fatal(err)
		}
		if ch, err = r.Changes(r.ctx(), 0, 10); err != nil {
			t.Fatal(err)
		}
		for _, since := range []Revision{ch.Revision, ch.Revision + 1, 1 << 60} {
			if ch, err := r.Changes(r.ctx(), since, 10); err != nil || len(ch.Nodes) != 0 || ch.More || ch.Incomplete {
				t.Errorf("since %d: %+v, %v", since, ch, err)
			}
		}
	})
}

// TestChangesPages: pages of any size bring every node once while nothing changes,
// and what changes between two pages again.
func TestChangesPages(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		const nodes = 7
		epochs := make(map[string]Epoch)
		for i := range nodes {
			id := fmt.Sprintf("n%d", i)
			epochs[id] = r.register(testNode(id, 1))
		}
		for _, limit := range []int{-1, 0, 1, 2, nodes - 1, nodes, nodes + 1} {
			var got []string
			ch := Changes{More: true}
			for pages := 0; ch.More && pages <= nodes; pages++ {
				var err error
				if ch, err = r.Changes(r.ctx(), ch.Next, limit); err != nil {
					t.Fatal(err)
				}
				if len(ch.Nodes) > max(limit, 1) {
					t.Errorf("page of %d has %d", limit, len(ch.Nodes))
				}
				for _, n := range ch.Nodes {
					got = append(got, n.Node.ID)
				}
			}
			if slices.Sort(got); len(got) != nodes || len(slices.Compact(got)) != nodes {
				t.Errorf("pages of %d brought %v", limit, got)
			}
		}
		ch, err := r.Changes(r.ctx(), 0, 3)
		if err != nil {
			t.Fatal(err)
		}
		moved := ch.Nodes[0].Node.ID
		if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: moved, Epoch: epochs[moved]}); err != nil {
			t.Fatal(err)
		}
		if ch, err = r.Changes(r.ctx(), ch.Next, 100); err != nil || len(ch.Nodes) != nodes-3+1 || ch.Nodes[len(ch.Nodes)-1].Node.ID != moved {
			t.Errorf("%+v, %v; want no error, len(ch.Nodes) == nodes-3+1, ch.Nodes[len(ch.Nodes)-1].Node.ID == %v", ch, err, moved)
		}
	})
}

// TestChangesBrokenProfile: what an operator broke takes out that node and no other.
func TestChangesBrokenProfile(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		for _, field := range profileFieldNames[2:] {
			id := "bad-" + string(field[0]) + field[len(field)-1:]
			r.register(testNode(id, 1))
			r.do("HSET", r.l.Node(id), field, "{ no")
		}
		r.register(testNode("good", 1))
		r.register(testNode("resources", 1))
		r.do("SET", r.l.Load("resources"), "{ no")
		r.register(testNode("sum", 1))
		r.do("HSET", r.l.Slots("sum"), "sum", "x")
		r.register(testNode("removed", 1))
		r.do("DEL", r.l.Node("removed"))
		core, logs := observer.New(zapcore.WarnLevel)
		reader, err := New(Config{Layout: r.l, CallTimeout: patience, HeartbeatLimit: time.Hour}, r.client, zap.New(core), nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := reader.Changes(r.ctx(), 0, 100); err != nil {
				t.Fatal(err)
			}
		}
		if n := logs.FilterMessage("node.unreadable").Len(); n != len(profileFieldNames)-2+1 {
			t.Errorf("three reads log %d lines of %d nodes", n, len(profileFieldNames)-2+1)
		}
		ch, err := r.Changes(r.ctx(), 0, 100)
		if err != nil || len(ch.Nodes) != len(profileFieldNames)-2+4 {
			t.Fatalf("%d nodes, %v", len(ch.Nodes), err)
		}
		for _, n := range ch.Nodes {
			switch id := n.Node.ID; id {
			case "good", "resources":
				if n.Broken != nil || n.Resources != nil {
					t.Errorf("%+v; want n.Broken == nil, n.Resources == nil", n)
				}
			case "removed":
				if !n.Gone {
					t.Errorf("%+v; want n.Gone", n)
				}
			default:
				if n.Broken == nil || n.Gone {
					t.Errorf("%s is whole: %+v", id, n)
				}
			}
		}
	})
}

// TestChangesInvalidProfile: what can be read and is still no profile is broken too, on
// whatever page it is, and is not taken for what other nodes say.
func TestChangesInvalidProfile(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		invalid := map[string]string{
			"max_concurrency": "0", "capabilities": `{"asr_languages":["no language"]}`, "installed_services": `[{"name":"a b"}]`,
			"pool_ids": `["a:b"]`, "labels": `{"a b":"c"}`, "features_supported": `{"a b":true}`,
		}
		for field, text := range invalid {
			for _, turn := range []string{"first", "again"} {
				id := turn + "-" + field
				r.register(testNode("whole-"+id, 1))
				r.register(testNode(id, 1))
				r.do("HSET", r.l.Node(id), field, text)
			}
		}
		seen := 0
		for since := Revision(0); ; {
			ch, err := r.Changes(r.ctx(), since, 5)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range ch.Nodes {
				seen++
				if whole := strings.HasPrefix(n.Node.ID, "whole-"); whole != (n.Broken == nil) {
					t.Errorf("%s: %v; want whole == (n.Broken == nil)", n.Node.ID, n.Broken)
				}
			}
			if !ch.More {
				break
			}
			since = ch.Next
		}
		if seen != 4*len(invalid) {
			t.Errorf("%d nodes, expected %d", seen, 4*len(invalid))
		}
		if r.reader.decoder != nil {
			t.Error("what was read is kept after the last page")
		}
	})
}
