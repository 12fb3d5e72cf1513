package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/cmd/schedctl/importer"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/lock"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// seedNode is a node in the format of an earlier design of the scheduler.
const seedNode = `{
  "node_id": "node-12345", "status": "online", "health": "Online",
  "capabilities": {"asr_languages": ["zh", "en"], "tts_languages": ["zh"], "semantic_languages": ["zh", "en"]},
  "resources": {"max_concurrency": 10, "current_jobs": 2, "cpu_usage": 0.5, "gpu_usage": 0.3, "memory_usage": 0.6},
  "pool_ids": [1, 2], "installed_services": ["asr", {"service_id": "faster-whisper", "type": "tts", "version": "1.2"}],
  "features_supported": {"emotion": true, "voice": false}, "last_heartbeat_ms": 1768045310000, "version": 123
}`

// importing is a Redis as the target of an import.
type importing struct {
	cell        *cell.Cell
	client      rueidis.Client
	url, prefix string
}

func newImporting(t *testing.T) *importing {
	t.Helper()
	redis := redistest.Shared(t)
	im := &importing{url: redis.URL(), prefix: redis.Prefix(t), client: redis.Client(t)}
	var err error
	im.cell, err = cell.New(cell.Config{Layout: cell.Layout{Prefix: im.prefix}}, im.client, zap.NewNop(), nil)
	must(t, err)
	return im
}

func (im *importing) run(t *testing.T, list string, flags ...string) result {
	t.Helper()
	return command(t, list, append([]string{"nodes", "import", "-", "--redis-url", im.url, "--key-prefix", im.prefix}, flags...)...)
}

// results runs an import and returns "node result" for each node, in order.
func (im *importing) results(t *testing.T, code int, list string, flags ...string) (out []string, all []importer.Result) {
	t.Helper()
	got := im.run(t, list, append(flags, "-o", "json")...).expect(t, code)
	var answer struct {
		Nodes  []importer.Result
		Counts map[string]int
	}
	if err := json.Unmarshal([]byte(got.out), &answer); err != nil {
		t.Fatalf("%v: %s%s; want no error", err, got.out, got.err)
	}
	sum := 0
	for _, r := range answer.Nodes {
		out = append(out, r.NodeID+" "+r.Result)
	}
	for _, n := range answer.Counts {
		sum += n
	}
	if sum != len(answer.Nodes) {
		t.Errorf("%d nodes are counted, there are %d", sum, len(answer.Nodes))
	}
	return out, answer.Nodes
}

func (im *importing) state(t *testing.T, id string) cell.NodeState {
	t.Helper()
	got, err := im.cell.Nodes(t.Context(), []string{id})
	must(t, err)
	return got.Nodes[0]
}

func listed(id string, slots int) string {
	return fmt.Sprintf(`{"node_id": %q, "resources": {"max_concurrency": %d}, "installed_services": ["tts"], "pool_ids": [1]}`, id, slots)
}

func profile(id string, slots int) freeslot.Node {
	return freeslot.Node{ID: id, MaxConcurrency: slots, Services: []freeslot.Service{{Name: "tts"}}, Pools: []string{"1"}}
}

// expectSame compares lines in order.
func expectSame(t *testing.T, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestImport(t *testing.T) {
	t.Parallel()
	im := newImporting(t)
	file := filepath.Join(t.TempDir(), "nodes.json")
	must(t, os.WriteFile(file, []byte("["+seedNode+","+listed("n2", 3)+"]"), 0o600))
	args := []string{"nodes", "import", file, "--redis-url", im.url, "--key-prefix", im.prefix}
	command(t, "", append(args, "--dry-run")...).expect(t, exitOK, "node-12345", "to copy", "2 nodes: 2 to copy")
	if keys, err := im.client.Do(t.Context(), im.client.B().Keys().Pattern(im.prefix+":*").Build()).AsStrSlice(); err != nil || len(keys) != 0 {
		t.Errorf("a dry run wrote %v %v", keys, err)
	}
	command(t, "", args...).expect(t, exitOK, "2 nodes: 2 copied")
	got := im.state(t, "node-12345")
	if got.Epoch != cell.ImportEpoch || got.Status != freeslot.StatusDraining || got.Node.MaxConcurrency != 10 || !slices.Equal(got.Node.Pools, []string{"1", "2"}) {
		t.Errorf(`%+v; want got.Epoch == cell.ImportEpoch, got.Status == freeslot.StatusDraining, got.Node.MaxConcurrency == 10, slices.Equal(got.Node.Pools, []string{"1", "2"})`, got)
	}
	// A second time, and once more after a change of the list.
	before := got.Revision
	command(t, "", args...).expect(t, exitOK, "2 nodes: 2 same")
	if after := im.state(t, "node-12345"); after.Revision != before {
		t.Error("an import without changes changed the node")
	}
	lines, all := im.results(t, exitOK, "["+listed("n2", 4)+"]", "--dry-run")
	expectSame(t, []string{"n2 to copy"}, lines)
	if d := all[0].Differences; len(d) != 1 || d[0].Field != "max_concurrency" || d[0].A != "4" || d[0].B != "3" {
		t.Error(d)
	}
	lines, _ = im.results(t, exitOK, "["+listed("n2", 4)+"]")
	expectSame(t, []string{"n2 copied"}, lines)
	if im.state(t, "n2").Node.MaxConcurrency != 4 {
		t.Error("the change was not copied")
	}
}

// TestImportedNodeWaitsForItsAgent: the node takes no job before an agent registers, and then all
// jobs like any other node.
func TestImportedNodeWaitsForItsAgent(t *testing.T) {
	t.Parallel()
	im := newImporting(t)
	im.run(t, "["+listed("n1", 1)+"]").expect(t, exitOK)
	online := func() []string {
		members, err := im.client.Do(t.Context(), im.client.B().Smembers().Key(im.cell.Layout().Online()).Build()).AsStrSlice()
		must(t, err)
		return members
	}
	must(t, im.cell.Start(t.Context()))
	defer func() { must(t, im.cell.Stop(t.Context())) }()
	submit := func() cell.Placement {
		got := im.cell.SubmitAll(t.Context(), []cell.Submission{{
			JobID: im.cell.NewJobID(), Tenant: "t", Job: &freeslot.Job{Service: "tts"}, Candidates: []string{"n1"},
		}})
		must(t, got[0].Err)
		return got[0].Placement
	}
	if got := submit(); got.Assigned || got.Refusals[0].Reason != cell.RefusedDraining || len(online()) != 0 {
		t.Errorf("%+v, online: %q", got, online())
	}
	_, err := im.cell.Register(t.Context(), profile("n1", 1), cell.NewEpoch())
	must(t, err)
	if got := submit(); !got.Assigned || !slices.Equal(online(), []string{"n1"}) {
		t.Errorf("%+v, online: %q", got, online())
	}
}

// TestImportLeavesAgentsAlone: a node with an agent or with jobs is not changed without --force.
func TestImportLeavesAgentsAlone(t *testing.T) {
	t.Parallel()
	im := newImporting(t)
	epoch := cell.NewEpoch()
	for _, id := range []string{"alive", "busy", "gone", "same"} {
		_, err := im.cell.Register(t.Context(), profile(id, 2), epoch)
		must(t, err)
	}
	must(t, im.cell.Start(t.Context()))
	got := im.cell.SubmitAll(t.Context(), []cell.Submission{{
		JobID: im.cell.NewJobID(), Tenant: "t", Job: &freeslot.Job{Service: "tts"}, Candidates: []string{"busy"},
	}})
	if got[0].Err != nil || !got[0].Placement.Assigned {
		t.Fatalf("%+v; want no error, got[0].Placement.Assigned", got)
	}
	must(t, im.cell.Stop(t.Context()))
	// The last heartbeats of two seem to be old, and that of one will be new for an hour.
	ahead := time.Now().Add(time.Hour).UnixMilli()
	for id, at := range map[string]int64{"busy": 1e12, "gone": 1e12, "alive": ahead} {
		must(t, im.client.Do(t.Context(), im.client.B().Set().Key(im.cell.Layout().Load(id)).Value(fmt.Sprint(at, " {}")).Build()).Error())
	}
	list := "[" + strings.Join([]string{listed("alive", 3), listed("busy", 3), listed("gone", 3), listed("same", 2)}, ",") + "]"
	lines, all := im.results(t, exitOK, list, "--heartbeat-limit", "2s")
	expectSame(t, []string{"alive left", "busy left", "gone copied", "same same"}, lines)
	if all[0].Reason != "its agent is alive" || all[1].Reason != "1 slots of it are in use" || all[0].Differences[0].Field != "max_concurrency" {
		t.Errorf(`%+v; want all[0].Reason == "its agent is alive", all[1].Reason == "1 slots of it are in use", all[0].Differences[0].Field == "max_concurrency"`, all)
	}
	for id, want := range map[string]cell.Epoch{"alive": epoch, "busy": epoch, "gone": cell.ImportEpoch, "same": epoch} {
		if s := im.state(t, id); s.Epoch != want {
			t.Errorf("%s has epoch %s", id, s.Epoch)
		}
	}
	lines, _ = im.results(t, exitOK, list, "--force")
	expectSame(t, []string{"alive copied", "busy copied", "gone same", "same same"}, lines)
	if _, err := im.cell.Heartbeat(t.Context(), cell.Heartbeat{Node: "alive", Epoch: epoch}); err == nil {
		t.Error("the agent did not notice that its node was taken")
	}
}

// TestImportRefuses: a faulty node keeps no other one out.
func TestImportRefuses(t *testing.T) {
	t.Parallel()
	im := newImporting(t)
	list := `[{"node_id": "a b"}, ` + listed("n1", 1) + `, {"node_id": "n2", "max_concurrency": 1, "region": "eu"}]`
	lines, all := im.results(t, exitFailure, list)
	expectSame(t, []string{"a b refused", "n1 copied", "n2 copied"}, lines)
	if all[0].Field != "resources.max_concurrency" || len(all[0].Errors) != 2 || all[0].Errors[1].Field != "node_id" || !slices.Equal(all[2].Ignored, []string{"region"}) {
		t.Errorf(`%+v; want all[0].Field == "resources.max_concurrency", len(all[0].Errors) == 2, all[0].Errors[1].Field == "node_id", slices.Equal(all[2].Ignored, []string{"region"})`, all)
	}
	im.run(t, list).expect(t, exitFailure, "resources.max_concurrency is missing or 0", "not read: region", "3 nodes: 2 same, 1 refused",
		"1 of 3 nodes is not in Redis as the list has it: 1 refused")
	im.run(t, list, "--dry-run").expect(t, exitFailure, "1 of 3 nodes would not be in Redis as the list has it: 1 refused")

	im.run(t, "[").expect(t, exitUsage, "- cannot be read")
	command(t, "", "nodes", "import", "/nowhere").expect(t, exitUsage, "/nowhere cannot be read: no such file")
	im.run(t, "[]", "--cells", "0").expect(t, exitUsage, "--cells is 0, expected 1 to 64")
	for _, flags := range [][]string{{}, {"--dry-run"}} {
		im.run(t, "[]", append(flags, "--cells", "2")...).expect(t, exitFailure, im.prefix, "redis.cells is 2, and the data under")
	}
	im.run(t, "[]", "--key-prefix", "a:b").expect(t, exitFailure, "key_prefix")
	got := command(t, "[]", "nodes", "import", "-", "--redis-url", "redis://user:hidden@127.0.0.1:1").expect(t, exitFailure, "redis cannot be used")
	if strings.Contains(got.err, "hidden") {
		t.Error(got.err)
	}
}

// TestImportHungRedis: the error names the server that does not answer.
func TestImportHungRedis(t *testing.T) {
	t.Parallel()
	hung, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = hung.Close() }() // the system accepts connections; no program answers
	args := []string{"nodes", "import", "-", "--redis-url", "redis://user:hidden@" + hung.Addr().String()}
	got := command(t, "[]", args...).expect(t, exitFailure, "redis cannot be used", "--redis-url", hung.Addr().String())
	if strings.Contains(got.err, "hidden") {
		t.Error(got.err)
	}
	cmd := importCmd{redisFlags: redisFlags{RedisURL: []string{"redis://a:6379/1", "redis://user:hidden@b:6379"}}}
	if err := cmd.named(context.DeadlineExceeded); err.Error() != "no answer in time from redis.url, a:6379 and b:6379: context deadline exceeded" {
		t.Error(err)
	}
}

// TestImportLocked: one import at a time, and the other one names the holder. A dry run needs no lock.
func TestImportLocked(t *testing.T) {
	t.Parallel()
	im := newImporting(t)
	m, err := lock.New(lock.Options{RedisURL: im.url, KeyPrefix: im.prefix, Holder: "ann@host"})
	must(t, err)
	must(t, m.Start(t.Context()))
	t.Cleanup(func() { must(t, m.Stop(context.Background())) })
	l, err := m.Get(lock.Config{Key: "nodes-import:" + im.prefix})
	must(t, err)
	held, err := l.Lock(t.Context())
	must(t, err)
	flags := []string{"--lock-key-prefix", im.prefix}
	list := "[" + listed("n1", 1) + "]"
	im.run(t, list, flags...).expect(t, exitFailure, "another import is under way", "held by ann@host since")
	im.run(t, list, append(flags, "--dry-run")...).expect(t, exitOK, "1 to copy")
	must(t, held.Unlock(t.Context()))
	im.run(t, list, flags...).expect(t, exitOK, "1 copied")
}

// TestImportMany imports more than one page.
func TestImportMany(t *testing.T) {
	t.Parallel()
	im := newImporting(t)
	nodes := make([]string, 207)
	for i := range nodes {
		nodes[i] = listed(fmt.Sprintf("n%d", i), 1+i%3)
	}
	list := "[" + strings.Join(nodes, ",") + "]"
	im.run(t, list).expect(t, exitOK, "207 nodes: 207 copied")
	im.run(t, list).expect(t, exitOK, "207 nodes: 207 same")
}

// TestImportCells: each node goes into its cell, on one server, on a cluster and on several
// servers.
func TestImportCells(t *testing.T) {
	t.Parallel()
	const count, n = 40, 4
	nodes := make([]string, count)
	for i := range nodes {
		nodes[i] = listed(fmt.Sprintf("n%d", i), 1)
	}
	list := "[" + strings.Join(nodes, ",") + "]"
	check := func(t *testing.T, prefix string, targets ...*redistest.Target) {
		t.Helper()
		args := []string{"nodes", "import", "-", "--key-prefix", prefix, "--cells", "4"}
		var clients []rueidis.Client
		for _, target := range targets {
			args, clients = append(args, "--redis-url", target.URL()), append(clients, target.Client(t))
		}
		command(t, list, append(args, "--dry-run")...).expect(t, exitOK, "40 nodes: 40 to copy")
		command(t, list, args...).expect(t, exitOK, "40 nodes: 40 copied")
		command(t, list, args...).expect(t, exitOK, "40 nodes: 40 same")
		for _, wrong := range []string{"2", "3", "8"} {
			other := append(slices.Clone(args), "--cells", wrong)
			refused := command(t, list, other...).expect(t, exitFailure, "redis.cells is "+wrong)
			if dry := command(t, list, append(other, "--dry-run")...).expect(t, exitFailure); dry.err != refused.err {
				t.Errorf("%s cells: %q in a dry run, else %q", wrong, dry.err, refused.err)
			}
		}
		found := 0
		for i, layout := range cell.Layouts(prefix, n, targets[0].IsCluster()) {
			c, err := cell.New(cell.Config{Layout: layout, Index: i, Cells: n, Servers: len(targets)}, clients[i%len(clients)], zap.NewNop(), nil)
			must(t, err)
			page, err := c.Changes(t.Context(), 0, count)
			must(t, err)
			for _, node := range page.Nodes {
				if found++; cell.NodeCell(node.Node.ID, n) != i {
					t.Errorf("%s is in cell %d", node.Node.ID, i)
				}
			}
		}
		if found != count {
			t.Errorf("%d nodes are in the cells", found)
		}
	}
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		check(t, redis.Prefix(t), redis)
	})
	t.Run("two servers", func(t *testing.T) {
		t.Parallel()
		a, b := redistest.New(t), redistest.New(t)
		check(t, a.Prefix(t), a.Target, b.Target)
		b.Stop()
		command(t, list, "nodes", "import", "-", "--cells", "4", "--key-prefix", "other", "--redis-url", a.URL(), "--redis-url", b.URL()).
			expect(t, exitFailure, "cell 1: ")
		command(t, list, "nodes", "import", "-", "--cells", "4", "--key-prefix", "other", "--redis-url", a.URL(), "--redis-url", b.URL(), "--dry-run").
			expect(t, exitFailure, "redis at ")
	})
}
