package api_test

import (
	"encoding/json"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/apitest"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestNodeResources: the answer has the last resources that the node sent, however many heartbeats
// without them came since. Its last heartbeat is the latest of these.
func TestNodeResources(t *testing.T) {
	t.Parallel()
	ctx := waittest.Context(t)
	redis := redistest.New(t)
	c, err := cell.New(cell.Config{Layout: cell.Layout{Prefix: redis.Prefix(t)}}, redis.Client(t), zaptest.NewLogger(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	nodes := cache.New(cache.Config{}, []cache.Feed{{Source: c}}, zaptest.NewLogger(t), nil)
	f := apitest.New(t, api.Config{}, func(d *api.Deps) { d.Nodes = nodes })
	node := freeslot.Node{ID: "n1", MaxConcurrency: 1, Services: []freeslot.Service{{Name: "tts"}}}
	if _, err := c.Register(ctx, node, "e1"); err != nil {
		t.Fatal(err)
	}
	if err := nodes.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := nodes.Stop(ctx); err != nil {
			t.Error(err)
		}
	}()
	sent := ""
	for _, resources := range []string{"", `{"cpu_usage":0.5}`, "", "", `{}`, ""} {
		hb := cell.Heartbeat{Node: "n1", Epoch: "e1"}
		if resources != "" {
			sent, hb.Resources = resources, json.RawMessage(resources)
		}
		reply, err := c.Heartbeat(ctx, hb)
		if err != nil {
			t.Fatal(err)
		}
		if err := nodes.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		listed := f.Do(t, "GET", "/v1/nodes", "").Body["nodes"].([]any)[0].(map[string]any)
		for where, got := range map[string]map[string]any{"listed": listed, "alone": f.Do(t, "GET", "/v1/nodes/n1", "").Body} {
			text := ""
			if got["resources"] != nil {
				data, _ := json.Marshal(got["resources"])
				text = string(data)
			}
			if text != sent || got["version"] != float64(reply.Revision) {
				t.Errorf("%s: sent %q, shown %q at version %v of %d", where, sent, text, got["version"], reply.Revision)
			}
		}
	}
}
