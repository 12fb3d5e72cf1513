package faults

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// tokensFile is what the replicas of a fleet read.
const tokensFile = "node-tokens.yaml"

// nodeToken is the token of a linked node.
func nodeToken(node string) string { return "token-of-" + node }

// writeTokens writes a line for each linked node.
func (f *fleet) writeTokens() {
	f.t.Helper()
	lines := []any{}
	for _, node := range f.cfg.linked {
		sum := sha256.Sum256([]byte(nodeToken(node)))
		lines = append(lines, map[string]any{"name": node, "sha256": hex.EncodeToString(sum[:]), "nodes": []string{node}})
	}
	data, err := json.Marshal(lines) // JSON is YAML, too
	if err == nil {
		err = os.WriteFile(filepath.Join(f.folder, tokensFile), data, 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// writeToken writes the token of a linked node and returns the file's name.
func (f *fleet) writeToken(node string) string {
	f.t.Helper()
	file := filepath.Join(f.folder, node+".token")
	if err := os.WriteFile(file, []byte(nodeToken(node)+"\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return file
}

// gateways are the replicas as a linked node takes them, each by a proxy of the node's own.
func (f *fleet) gateways(node string) string {
	f.t.Helper()
	var list []string
	for _, replica := range slices.Sorted(maps.Keys(f.replicas)) {
		list = append(list, "ws://"+f.wayTo(node+"-"+replica, f.replicas[replica]))
	}
	return strings.Join(list, ",")
}

// useGateways proves that the linked nodes work by gateway, while the load runs. It sends them to one
// replica after the other, and returns when each began a job there and ends shared a call. The faults
// before do not prove it: what replicas counted is gone when they are killed.
func (f *fleet) useGateways() {
	f.t.Helper()
	f.awaitUp(startLimit)
	for _, replica := range slices.Sorted(maps.Keys(f.replicas)) {
		f.useGateway(replica)
	}
}

// useGateway opens the ways of linked nodes to one replica only. The replica's way to Redis is slower
// meanwhile, as ends share calls while a call is under way, but heartbeats have a sixteenth of the
// limit to be answered.
func (f *fleet) useGateway(replica string) {
	f.t.Helper()
	b := &breaker{fleet: f}
	for _, node := range f.cfg.linked {
		for other := range f.replicas {
			if other != replica {
				way := f.ways[node+"-"+other]
				way.Stop()
				defer b.open(way)
			}
		}
	}
	f.slow(f.t, replica, 10*time.Millisecond)
	defer b.cure(f.ways[replica])
	web := &http.Client{Timeout: lookLimit, Transport: &http.Transport{}}
	defer web.CloseIdleConnections()
	var figures map[string]float64
	var last error
	await := func(what string, cond func() bool) {
		f.t.Helper()
		if redistest.Await(func(ctx context.Context) bool {
			figures, last = scrape(ctx, web, f.replicas[replica])
			return last == nil && cond()
		}) != nil {
			f.t.Errorf("gateway %s: %s; %v, its figures %v", replica, what, last, ofGateway(figures))
		}
	}
	await("the linked nodes do not connect", func() bool {
		return figures["freeslot_gateway_agents"] == float64(len(f.cfg.linked))
	})
	moved := f.rec.Now()
	await("it brings the linked nodes no jobs", func() bool {
		began := f.begunSince(moved) // not "sent": while jobs wait, they come with the answers to ends
		return !slices.ContainsFunc(f.cfg.linked, func(node string) bool { return !began[node] })
	})
	await("no ends share a call", func() bool {
		const sum, calls = `freeslot_gateway_batch_items_sum{call="%s"}`, `freeslot_gateway_batch_items_count{call="%s"}`
		shared := 0.0
		for _, script := range []string{"complete_nodes", "complete"} { // complete while jobs wait
			shared += figures[fmt.Sprintf(sum, script)] - figures[fmt.Sprintf(calls, script)]
		}
		return shared > 0 && figures[fmt.Sprintf(calls, "complete_nodes")] > 0
	})
}

// begunSince are the nodes on which a handler began since then.
func (f *fleet) begunSince(then time.Duration) map[string]bool {
	nodes := map[string]bool{}
	for _, e := range slices.Backward(f.rec.Events()) {
		if e.At < then {
			break
		}
		if e.Kind == Begun {
			nodes[e.Node] = true
		}
	}
	return nodes
}

// ofGateway are the figures of work by gateway.
func ofGateway(figures map[string]float64) map[string]float64 {
	work := map[string]float64{}
	for name, value := range figures {
		if short, ok := strings.CutPrefix(name, "freeslot_gateway_"); ok && !strings.Contains(name, "_bucket") {
			work[short] = value
		}
	}
	return work
}
