package faults

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// sabotageRest is how long a fleet that cannot come to rest is waited for.
const sabotageRest = 5 * time.Second

// edit replaces a part of a file in internal; it must be there.
type edit struct{ file, old, new string }

// sabotage is a way in which the scripts do not hold what they promise.
type sabotage struct {
	name  string
	edits []edit
	plan  []Breakage
	rules []string // one of them is broken
	// every: it loses one success in so many, and counts them. Each that is lost breaks the rule.
	every int
	// rate is jobs a second, most of them short; 0 is the usual load.
	rate float64
	// varied: the load has jobs of all kinds.
	varied bool
}

const (
	lostEvery       = 1000
	sharedLostEvery = 20
	// lostRate makes thousands of jobs in a run. With fewRate no jobs wait, so that the nodes of a
	// gateway share calls.
	lostRate = 350
	fewRate  = 100
	finishes = "local function end_job(job, job_key, node, attempt, reply_to, static, state, result, failure)\n"
	reads    = "-- As read_job, at a third of its cost.\n" // in the other way to end a job
	// sharedReads is in the calls that gateways make for several nodes.
	sharedReads = "    local state, result, failure, reply_to = ARGV[item + 2], ARGV[item + 3], ARGV[item + 4], record[2]\n"
)

func sabotages() []sabotage {
	return []sabotage{
		{
			// An end of an attempt is accepted from an agent that does not own the attempt any
			// more.
			name: "fencing", plan: freezes(), rules: []string{"stale", "answers differ", "states"},
			edits: []edit{{
				"cell/script/job/complete.lua", "    local record = redis.pcall('HMGET', job_key, 'state', 'run') -- protected: the other items go on\n",
				"    local any = redis.call('HMGET', job_key, 'state', 'reply_to', 'job')\n" +
					"    if any[1] == 'running' then end_job(job, job_key, node, attempt, any[2], any[3], ARGV[item + 2], ARGV[item + 3], ARGV[item + 4]) index_finished() end\n" +
					"    local record = redis.call('HMGET', job_key, 'state', 'run')\n",
			}},
		},
		{
			// No script checks whether there is room.
			name: "slots", rules: []string{"over-commit"}, plan: freezes()[:3],
			edits: []edit{
				{"cell/script/job/submit.lua", "used > node[3] then refusal", "used > node[3] + 2 then refusal"},
				{"cell/script/lib/fill_node.lua", "next.slots > max - used", "next.slots > max - used + 1"},
			},
		},
		{
			// Limits let three more jobs run.
			name: "limit", rules: []string{"limit"}, plan: freezes()[:3], varied: true,
			edits: []edit{{"cell/script/lib/limit.lua", "  return limit - (tonumber(", "  return limit + 3 - (tonumber("}},
		},
		{
			// An end is forgotten.
			name: "end", rules: []string{"not ended"}, plan: freezes()[:5], every: lostEvery, rate: lostRate,
			edits: []edit{
				{
					"cell/script/lib/end_job.lua", finishes,
					finishes + "  if state == 'succeeded' and redis.call('INCR', 'sabotage') % 1000 == 0 then return end\n",
				},
				{
					"cell/script/lib/end_plain_job.lua", reads,
					reads + "if state == 'succeeded' and call('INCR', 'sabotage') % 1000 == 0 then job_key, reply_to = 'lost', '' end\n",
				},
			},
		},
		{
			// An end is forgotten that came by a gateway.
			name: "end by gateway", rules: []string{"not ended"}, plan: freezes()[:3], every: sharedLostEvery, rate: fewRate,
			edits: []edit{{
				"cell/script/job/complete_nodes.lua", sharedReads,
				sharedReads + "    if state == 'succeeded' and call('INCR', 'sabotage') % 20 == 0 then job_key, reply_to = 'lost', '' end\n",
			}},
		},
		{
			// A job ends without its result.
			name: "result", rules: []string{"stale"}, plan: freezes()[:5], every: lostEvery, rate: lostRate,
			edits: []edit{
				{
					"cell/script/lib/end_job.lua", finishes,
					finishes + "  if state == 'succeeded' and redis.call('INCR', 'sabotage') % 1000 == 0 then result = '' end\n",
				},
				{
					"cell/script/lib/end_plain_job.lua", reads,
					reads + "if state == 'succeeded' and call('INCR', 'sabotage') % 1000 == 0 then result = '' end\n",
				},
			},
		},
	}
}

// TestSabotageApplies: the edits are of the scripts as they are now, also where the runs are left
// out.
func TestSabotageApplies(t *testing.T) {
	for _, c := range sabotages() {
		overlaid(t, c.edits, t.TempDir())
	}
	for _, bug := range gatewayBugs() {
		overlaid(t, bug.edits, t.TempDir())
	}
	for _, c := range lockSabotages() {
		overlaid(t, c.edits, t.TempDir())
	}
	for _, c := range registrySabotages() {
		overlaid(t, c.edits, t.TempDir())
	}
	for _, c := range listSabotages() {
		overlaid(t, c.edits, t.TempDir())
	}
}

// TestSabotage builds the programs with scripts that do not hold what they promise, and expects
// that a run finds out.
func TestSabotage(t *testing.T) {
	if os.Getenv("SHORT") == "1" {
		t.Skip("left out by SHORT=1")
	}
	for _, c := range sabotages() {
		t.Run(c.name, func(t *testing.T) {
			cfg := fleetConfig{
				replicas: 2, slots: []int{2, 3, 4, 3}, cells: 1, interval: 200 * time.Millisecond, limit: time.Second,
				programs: sabotaged(t, c.edits, build), varied: c.varied, linked: []string{"n2", "n3"},
				rate: c.rate, quick: c.rate > 0,
			}
			f := newFleet(t, NewRecorder(), t.TempDir(), cfg)
			history, _ := runFaults(t, f, 1, c.plan, sabotageRest)
			found := Check(history)
			t.Log(summary(history))
			i := slices.IndexFunc(found, func(v Violation) bool { return slices.Contains(c.rules, v.Rule) })
			if i < 0 {
				t.Fatalf("found %v, expected one of %v", found, c.rules)
			}
			t.Logf("found %d, such as: %s", len(found), found[i])
			if c.every == 0 {
				return
			}
			all, err := f.number("sabotage")
			if err != nil {
				t.Fatal(err)
			}
			caught := 0
			for _, v := range found {
				if v.Rule == c.rules[0] {
					caught++
				}
			}
			if lost := all / c.every; lost == 0 || caught < lost {
				t.Errorf("of %d jobs %d were lost, and %d of them found; expected some, and all of them", all, lost, caught)
			}
		})
	}
}

// freezes has agents lose their jobs again and again while their handlers go on.
func freezes() []Breakage {
	var plan []Breakage
	for i, target := range []string{"n1", "n2", "n3", "n4", "n1", "n2", "n3", "n4"} {
		plan = append(plan, Breakage{At: time.Second + time.Duration(i)*1500*time.Millisecond, Target: target, Action: Freeze, For: 1800 * time.Millisecond})
	}
	return plan
}

// sabotaged builds the programs with edited sources and returns their folder. The sources are left
// alone.
func sabotaged(t *testing.T, edits []edit, build func(ctx context.Context, root, folder string, args ...string) error) string {
	t.Helper()
	folder := t.TempDir()
	data, err := json.Marshal(map[string]any{"Replace": overlaid(t, edits, folder)})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), buildLimit)
	defer cancel()
	programs := filepath.Join(folder, "bin")
	if err := build(ctx, sourceRoot(t), programs, "-overlay", file); err != nil {
		t.Fatal(err)
	}
	return programs
}

func sourceRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// overlaid writes the edited files into folder and returns which file replaces which.
func overlaid(t *testing.T, edits []edit, folder string) map[string]string {
	t.Helper()
	root, overlay := sourceRoot(t), map[string]string{}
	for _, e := range edits {
		source := filepath.Join(root, "internal", filepath.FromSlash(e.file))
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), e.old); n != 1 {
			t.Fatalf("%s has %d of %q, expected one", e.file, n, e.old)
		}
		overlay[source] = filepath.Join(folder, filepath.Base(e.file))
		if err := os.WriteFile(overlay[source], []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}
