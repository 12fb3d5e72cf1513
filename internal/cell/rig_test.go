package cell

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// patience bounds a single call.
const patience = waittest.Limit

// As in lib/inline.lua.
const (
	inlineSpec   = 8 << 10
	inlineResult = 64 << 10
)

// rig is a cell with keys of its own, and a client beside it that shows what is
// really in Redis.
type rig struct {
	*Cell
	t     *testing.T
	redis *redistest.Target
	raw   rueidis.Client
	l     Layout
	// migrates: while a hash slot does, ends that are no success may be missing in their index, and
	// dead jobs are then among the finished ones.
	migrates bool
}

func newRig(t *testing.T, redis *redistest.Target, change ...func(*Config)) *rig {
	t.Helper()
	patient := func(c *Config) { c.CallTimeout = patience }
	c := open(t, redis, append([]func(*Config){patient}, change...)...)
	return &rig{Cell: c, t: t, redis: redis, raw: redis.Client(t), l: c.Layout()}
}

// third makes the cell the third of four.
func third(c *Config) {
	c.Layout = Layouts(c.Layout.Prefix, 4, c.Layout.Sharded)[2]
	c.Index, c.Cells = 2, 4
}

// backends runs a suite in parallel on the single server and on the cluster, each time with a
// rig of its own: of the only cell and of the third of four.
func backends(t *testing.T, suite func(t *testing.T, r *rig)) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		t.Run("cells=1", func(t *testing.T) { t.Parallel(); suite(t, newRig(t, redis)) })
		t.Run("cells=4", func(t *testing.T) { t.Parallel(); suite(t, newRig(t, redis, third)) })
	})
}

func (r *rig) ctx() context.Context { return r.t.Context() }

// do runs one command on the client beside the cell.
func (r *rig) do(args ...string) rueidis.RedisMessage {
	r.t.Helper()
	m, err := r.try(args...)
	if err != nil && !rueidis.IsRedisNil(err) {
		r.t.Fatalf("%s: %v; want no error or rueidis.IsRedisNil(err)", strings.Join(args, " "), err)
	}
	return m
}

func (r *rig) try(args ...string) (rueidis.RedisMessage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// In a cluster the second word is the key of all commands that tests use.
	cmd := r.raw.B().Arbitrary(args[0])
	if len(args) > 1 {
		cmd = cmd.Keys(args[1]).Args(args[2:]...)
	}
	return r.raw.Do(ctx, cmd.Build()).ToMessage()
}

func (r *rig) hash(key string) map[string]string {
	r.t.Helper()
	m := r.do("HGETALL", key)
	out, err := m.AsStrMap()
	if err != nil {
		r.t.Fatalf("HGETALL %s: %v; want no error", key, err)
	}
	return out
}

func (r *rig) field(key, field string) string {
	r.t.Helper()
	m := r.do("HGET", key, field)
	if m.IsNil() {
		return ""
	}
	s, err := m.ToString()
	if err != nil {
		r.t.Fatalf("HGET %s %s: %v; want no error", key, field, err)
	}
	return s
}

func (r *rig) int(args ...string) int64 {
	r.t.Helper()
	m := r.do(args...)
	n, err := m.AsInt64()
	if err != nil {
		r.t.Fatalf("%s: %v; want no error", strings.Join(args, " "), err)
	}
	return n
}

func (r *rig) strings(args ...string) []string {
	r.t.Helper()
	m := r.do(args...)
	if m.IsNil() {
		return nil
	}
	out, err := m.AsStrSlice()
	if err != nil {
		r.t.Fatalf("%s: %v; want no error", strings.Join(args, " "), err)
	}
	return out
}

func (r *rig) set(key string) []string {
	return slices.Sorted(slices.Values(r.strings("SMEMBERS", key)))
}

func (r *rig) scores(key string) map[string]float64 {
	r.t.Helper()
	m := r.do("ZRANGE", key, "0", "-1", "WITHSCORES")
	found, err := m.AsZScores()
	if err != nil {
		r.t.Fatalf("ZRANGE %s: %v; want no error", key, err)
	}
	out := make(map[string]float64, len(found))
	for _, z := range found {
		out[z.Member] = z.Score
	}
	return out
}

func (r *rig) stream(key string) []rueidis.XRangeSlice {
	r.t.Helper()
	m := r.do("XRANGE", key, "-", "+")
	out, err := m.AsXRangeSlices()
	if err != nil {
		r.t.Fatalf("XRANGE %s: %v; want no error", key, err)
	}
	return out
}

// asText is what fields reads.
func asText(f fields) string {
	parts := make([]string, 0, len(f))
	for _, p := range f {
		parts = append(parts, p.Field+"="+p.Value)
	}
	return strings.Join(parts, "|")
}

func (r *rig) exists(key string) bool { r.t.Helper(); return r.int("EXISTS", key) == 1 }

// nowMS is Redis' clock.
func (r *rig) nowMS() int64 {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := r.raw.B().Eval().Script(`local t = redis.call('TIME') return math.floor(t[1] * 1000 + t[2] / 1000)`).
		Numkeys(1).Key(r.l.Version()).Build()
	now, err := r.raw.Do(ctx, cmd).AsInt64()
	if err != nil {
		r.t.Fatal(err)
	}
	return now
}

// revision is the cell's, as Redis has it.
func (r *rig) revision() Revision {
	r.t.Helper()
	n, _ := strconv.ParseUint(r.field(r.l.Version(), "revision"), 10, 64)
	return n
}

// dump is every key of the cell as text: what two dumps have in common is equal.
func (r *rig) dump() map[string]string {
	r.t.Helper()
	keys := r.keys()
	out := make(map[string]string, len(keys))
	for _, key := range keys {
		out[strings.TrimPrefix(key, r.l.Prefix+":")] = r.show(key)
	}
	return out
}

func (r *rig) keys() []string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var keys []string
	for _, node := range r.raw.Nodes() {
		for cursor, done := uint64(0), false; !done; done = cursor == 0 {
			e, err := node.Do(ctx, node.B().Scan().Cursor(cursor).Match(r.l.Prefix+":*").Count(10_000).Build()).AsScanEntry()
			if err != nil {
				r.t.Fatalf("SCAN: %v; want no error", err)
			}
			keys, cursor = append(keys, e.Elements...), e.Cursor
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func (r *rig) show(key string) string {
	r.t.Helper()
	m := r.do("TYPE", key)
	kind, _ := m.ToString()
	var lines []string
	switch kind {
	case "hash":
		for f, v := range r.hash(key) {
			lines = append(lines, f+"="+v)
		}
		slices.Sort(lines)
	case "set":
		lines = r.set(key)
	case "zset":
		for f, v := range r.scores(key) {
			lines = append(lines, fmt.Sprintf("%s=%.0f", f, v))
		}
		slices.Sort(lines)
	case "stream":
		for _, e := range r.stream(key) {
			lines = append(lines, e.ID+" "+asText(e.FieldValues))
		}
	case "string":
		m := r.do("GET", key)
		s, _ := m.ToString()
		lines = append(lines, s)
	case "none":
		return "gone"
	default:
		r.t.Fatalf("key %s is a %s", key, kind)
	}
	until := r.int("PEXPIRETIME", key)
	return fmt.Sprintf("%s until %d\n%s", kind, until, strings.Join(lines, "\n"))
}

// unchanged runs f and fails if any key is different afterwards. mask, if not nil,
// takes out of a dump what may change.
func (r *rig) unchanged(what string, f func(), mask func(dump map[string]string)) {
	r.t.Helper()
	before := r.dump()
	f()
	after := r.dump()
	if mask != nil {
		mask(before)
		mask(after)
	}
	if d := cmp.Diff(before, after); d != "" {
		r.t.Errorf("%s changed Redis (-before +after):\n%s", what, d)
	}
}

// attachesOf masks how often somebody attached to a job.
func (r *rig) attachesOf(jobID string) func(dump map[string]string) {
	record := strings.TrimPrefix(r.l.Job(jobID), r.l.Prefix+":")
	count := regexp.MustCompile(`attaches=\d+\n`)
	return func(dump map[string]string) { dump[record] = count.ReplaceAllString(dump[record], "") }
}

// jobRecord is the field job of a record.
func (r *rig) jobRecord(job string) jobRecord {
	r.t.Helper()
	record, err := parseJobRecord(r.field(r.l.Job(job), "job"))
	if err != nil {
		r.t.Errorf("record of job %s: %v", job, err)
	}
	return record
}

// owned is one job in a node's slots hash.
type owned struct {
	attempt, slots int
	epoch          string
	cancelled      bool
}

// slots reads a node's ownership set and the sum beside it.
func (r *rig) slots(node string) (jobs map[string]owned, sum int) {
	r.t.Helper()
	jobs = make(map[string]owned)
	for job, value := range r.hash(r.l.Slots(node)) {
		if job == "sum" {
			sum, _ = strconv.Atoi(value)
			continue
		}
		part := strings.Split(value, ":")
		if len(part) < 3 || len(part) > 4 || len(part) == 4 && part[3] != "c" {
			r.t.Errorf("node %s owns %s as %q", node, job, value)
			continue
		}
		attempt, errA := strconv.Atoi(part[0])
		slots, errS := strconv.Atoi(part[2])
		if errA != nil || errS != nil {
			r.t.Errorf("node %s owns %s as %q", node, job, value)
		}
		jobs[job] = owned{attempt: attempt, epoch: part[1], slots: slots, cancelled: len(part) == 4}
	}
	return jobs, sum
}

// load is when a node was last heard (ms), by its heartbeats or else its registration, and
// what it said last of its machine; 0 and "" where Redis does not say, or what no script wrote.
func (r *rig) load(node string) (at int64, resources string) {
	r.t.Helper()
	if m := r.do("GET", r.l.Metrics(node)); !m.IsNil() {
		resources, _ = m.ToString()
	}
	if !r.exists(r.l.Load(node)) {
		at, _ = strconv.ParseInt(r.field(r.l.Node(node), "registered_at_ms"), 10, 64)
		return at, resources
	}
	m := r.do("GET", r.l.Load(node))
	if text, _ := m.ToString(); regexp.MustCompile(`^\d{13}( \d+( \S+){5} \d+)?$`).MatchString(text) {
		at, _ = strconv.ParseInt(text[:timeDigits], 10, 64)
	}
	return at, resources
}

// heard says when a node was last heard, as if by a heartbeat then.
func (r *rig) heard(node string, at int64) {
	r.t.Helper()
	r.do("SET", r.l.Load(node), strconv.FormatInt(at, 10)+" {}")
}

// sound checks all that must hold between the keys of a cell at any time.
func (r *rig) sound() {
	r.t.Helper()
	kinds := make(map[string][]string) // "jobs" -> ids
	for _, key := range r.keys() {
		if r.l.Tag != "" && !strings.Contains(key, "{"+r.l.Tag+"}") {
			continue // of another cell
		}
		kind, rest, _ := strings.Cut(strings.TrimPrefix(key, r.l.Prefix+":"), ":")
		if tag := "{" + r.l.Tag + "}"; r.l.Tag != "" {
			_, rest, _ = strings.Cut(rest, tag)
			rest = strings.TrimPrefix(rest, ":")
		}
		kinds[kind] = append(kinds[kind], rest)
	}
	r.soundOwnership(kinds["slots"], kinds["jobs"])
	r.soundQueues(kinds["waiting"], kinds["fair"], kinds["jobs"], r.soundLimits(kinds["gate"], kinds["parked"], kinds["jobs"]))
	r.soundDue(kinds["jobs"])
	r.soundProgress(kinds["jobs"])
	r.soundMoves(kinds["jobs"])
	r.soundIndexes(kinds["nodes"], slices.Concat(kinds["load"], kinds["metrics"]))
}

func (r *rig) soundOwnership(nodes, jobs []string) {
	r.t.Helper()
	where := make(map[string]string)
	for _, node := range nodes {
		held, sum := r.slots(node)
		total := 0
		for job, o := range held {
			total += o.slots
			if other, twice := where[job]; twice {
				r.t.Errorf("job %s is owned by %s and %s", job, other, node)
			}
			where[job] = node
			record := r.hash(r.l.Job(job))
			want := string(freeslot.StateRunning)
			if o.cancelled {
				want = string(freeslot.StateCancelling)
			}
			run, slots := fmt.Sprintf("%d %s %s ", o.attempt, node, o.epoch), strconv.Itoa(o.slots)
			if record["state"] != want || !strings.HasPrefix(record["run"], run) || strconv.Itoa(r.jobRecord(job).slots) != slots {
				r.t.Errorf("node %s owns %s as %+v, the record says %v", node, job, o, record)
			}
		}
		if total != sum {
			r.t.Errorf("node %s owns %d slots, sum says %d", node, total, sum)
		}
		profile := r.hash(r.l.Node(node))
		if limit, _ := strconv.Atoi(profile["max_concurrency"]); sum > limit {
			r.t.Errorf("node %s has %d of %d slots in use", node, sum, limit)
		}
		for job, o := range held {
			if o.epoch != profile["epoch"] {
				r.t.Errorf("node %s of epoch %q owns %s of epoch %q", node, profile["epoch"], job, o.epoch)
			}
		}
	}
	finished, unsuccessful := r.scores(r.l.Finished()), r.unsuccessful()
	for _, job := range jobs {
		state := freeslot.State(r.field(r.l.Job(job), "state"))
		ttl := r.int("PTTL", r.l.Job(job))
		_, ended := finished[job]
		if state == freeslot.StateDead && (!ended || !r.migrates) {
			ended = !ended && unsuccessful[state][job]
		}
		for other, ids := range unsuccessful {
			if ids[job] != (other == state) && !(r.migrates && other == state) {
				r.t.Errorf("job %s is %s; it is in the index of %s jobs: %v", job, state, other, ids[job])
			}
		}
		if state.Terminal() != ended || state.Terminal() != (ttl > 0) && state != stateMoved {
			r.t.Errorf("job %s is %s, index of finished jobs %v, TTL %d ms", job, state, ended, ttl)
		}
		runs := state == freeslot.StateRunning || state == freeslot.StateCancelling
		if _, has := where[job]; has != runs {
			r.t.Errorf("job %s is %s and owned: %v", job, state, has)
		}
	}
}

// soundQueues: a job that waits stands in the queue of its class or is held back, and nobody else does.
// unsuccessful reads the indexes of ends that are no success.
func (r *rig) unsuccessful() map[freeslot.State]map[string]bool {
	r.t.Helper()
	all := make(map[freeslot.State]map[string]bool)
	for _, state := range []freeslot.State{freeslot.StateFailed, freeslot.StateCancelled, freeslot.StateExpired, freeslot.StateDead} {
		all[state] = make(map[string]bool)
		for job := range r.scores(r.l.Ended(string(state))) {
			all[state][job] = true
		}
	}
	return all
}

func (r *rig) soundQueues(lines, fairs, jobs []string, limited map[string]string) {
	r.t.Helper()
	waiting := r.hash(r.l.Waiting())
	lines = slices.DeleteFunc(lines, func(class string) bool { return class == "" }) // the hash of all classes
	if classes := slices.Sorted(maps.Keys(waiting)); !slices.Equal(classes, lines) {
		r.t.Errorf("classes %v are told to have jobs that wait, %v do", classes, lines)
	}
	for _, class := range fairs {
		if !slices.Contains(lines, class) {
			r.t.Errorf("class %s has tags and no job that waits", class)
		}
	}
	stands := make(map[string]string)
	for _, class := range lines {
		if !r.exists(r.l.Fair(class)) {
			// Only jobs that came back stand there: nobody was charged.
			for job := range r.scores(r.l.Queue(class)) {
				if r.field(r.l.Job(job), "run") == "" && r.field(r.l.Job(job), "charged") == "" {
					r.t.Errorf("job %s waits in class %s, which has no tags", job, class)
				}
			}
		}
		for job, score := range r.scores(r.l.Queue(class)) {
			if other, twice := stands[job]; twice {
				r.t.Errorf("job %s stands in %s and %s", job, other, class)
			}
			stands[job] = class
			record := r.jobRecord(job)
			if record.class != class || record.definition != waiting[class] {
				r.t.Errorf("job %s of %q stands in class %s of definition %s", job, record, class, waiting[class])
			} else if 9-int(score)>>48 != record.priority {
				r.t.Errorf("job %s of priority %d stands at %.0f", job, record.priority, score)
			}
		}
	}
	for job, limit := range limited {
		if class, twice := stands[job]; twice {
			r.t.Errorf("job %s stands in %s and is held back by %s", job, class, limit)
		}
		stands[job] = limit
	}
	for _, job := range jobs {
		state := freeslot.State(r.field(r.l.Job(job), "state"))
		if _, has := stands[job]; has != (state == freeslot.StateWaiting) {
			r.t.Errorf("job %s is %s and stands in a queue: %v", job, state, has)
		}
		delete(stands, job)
	}
	if len(stands) > 0 {
		r.t.Errorf("there are no jobs %v, and they stand in queues", stands)
	}
}

// soundDue: what has a pause or a deadline is looked at when that is over, and nothing else.
func (r *rig) soundDue(jobs []string) {
	r.t.Helper()
	due := r.scores(r.l.Due())
	for _, job := range jobs {
		record := r.hash(r.l.Job(job))
		deadline := float64(r.jobRecord(job).deadlineMS)
		at, has := due[job]
		delete(due, job)
		switch state := freeslot.State(record["state"]); {
		case state.Terminal() || OnTheMove(state):
			if has && record["node_by"] != fmt.Sprintf("%.0f", at) {
				r.t.Errorf("job %s is %s and due", job, state)
			}
		case state == freeslot.StateRetryWait || state == freeslot.StateScheduled:
			if !has || deadline != 0 && at >= deadline {
				r.t.Errorf("job %s has a pause, is due at %.0f (%v), its deadline is %.0f", job, at, has, deadline)
			}
		case record["why"] == "expired":
			if at <= deadline {
				r.t.Errorf("job %s is being stopped for its deadline %.0f and due at %.0f", job, deadline, at)
			}
		case has && record["node_by"] == fmt.Sprintf("%.0f", at): // until then, whatever became of it
		case has != (deadline != 0) || at != deadline:
			r.t.Errorf("job %s is %s with deadline %.0f and due at %.0f (%v)", job, state, deadline, at, has)
		}
	}
	if len(due) > 0 {
		r.t.Errorf("there are no jobs %v, and they are due", due)
	}
}

func (r *rig) soundIndexes(nodes, figures []string) {
	r.t.Helper()
	revisions, online := r.scores(r.l.Revisions()), r.set(r.l.Online())
	nodes = slices.DeleteFunc(nodes, func(n string) bool { return n == "index:online" || n == "online" || n == "" })
	want := 0
	for _, node := range nodes {
		profile := r.hash(r.l.Node(node))
		if _, ok := revisions[node]; !ok {
			r.t.Errorf("node %s has no revision", node)
		}
		if at, _ := r.load(node); at == 0 || at > r.nowMS() {
			r.t.Errorf("node %s was last heard at %d", node, at)
		}
		if slices.Contains(online, node) != (profile["status"] == "online") {
			r.t.Errorf("node %s is %s, set of online nodes %v", node, profile["status"], online)
		}
		if status := profile["status"]; !strings.EqualFold(profile["health"], status) {
			r.t.Errorf("node %s is %s, its health is %s", node, status, profile["health"])
		}
		if profile["status"] == "online" {
			want++
		}
	}
	tombstones, seen := 0, make(map[float64]string)
	for member, score := range revisions {
		if strings.HasPrefix(member, "-") {
			tombstones++
			if _, alive := revisions[member[1:]]; alive {
				r.t.Errorf("node %s lives and has a tombstone", member[1:])
			}
		}
		if other, twice := seen[score]; twice {
			r.t.Errorf("%s and %s share revision %.0f", member, other, score)
		}
		seen[score] = member
		if score > float64(r.revision()) {
			r.t.Errorf("%s has revision %.0f of %d", member, score, r.revision())
		}
	}
	for _, node := range figures {
		if !slices.Contains(nodes, node) {
			r.t.Errorf("there is no node %s, and it has figures", node)
		}
	}
	if len(revisions) != len(nodes)+tombstones || len(online) != want {
		r.t.Errorf("%d nodes (%d online), %d revisions of which %d tombstones, %d in the set of online nodes",
			len(nodes), want, len(revisions), tombstones, len(online))
	}
	if counted := r.field(r.l.Version(), "tombstones"); counted != "" && counted != strconv.Itoa(tombstones) {
		r.t.Errorf("%d tombstones, counted %s", tombstones, counted)
	}
}

// register makes a node known under a new epoch.
func (r *rig) register(node freeslot.Node) Epoch {
	r.t.Helper()
	epoch := NewEpoch()
	if _, err := r.Register(r.ctx(), node, epoch); err != nil {
		r.t.Fatal(err)
	}
	return epoch
}

// place submits one job that must be assigned, and returns its id.
func (r *rig) place(replica string, slots int, nodes ...string) string {
	r.t.Helper()
	s := submission(replica, nodes...)
	s.Job.Slots = slots
	p, err := r.Submit(r.ctx(), s)
	if err != nil || !p.Assigned {
		r.t.Fatalf("submit: %+v, %v", p, err)
	}
	return s.JobID
}

func succeed(node string, epoch Epoch, job string) Completion {
	return Completion{
		Node: node, Epoch: epoch, Attempt: Attempt{Job: job, N: 1},
		State: freeslot.StateSucceeded, Result: []byte(`{"ok":true}`),
	}
}

// end completes one job that the node owns.
func (r *rig) end(node string, epoch Epoch, job string) {
	r.t.Helper()
	if out, err := r.Complete(r.ctx(), succeed(node, epoch, job)); err != nil || out != Completed {
		r.t.Fatalf("complete: %v, %v", out, err)
	}
}

func (r *rig) status(job string) freeslot.JobStatus {
	r.t.Helper()
	s, err := r.Job(r.ctx(), "", job)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// listener collects what is published for a cell.
type listener struct {
	r        *rig
	messages chan string
}

// markers makes every marker another one: a listener can still receive those of the
// one before.
var markers atomic.Uint64

// listen returns when the subscription stands.
func (r *rig) listen() *listener {
	r.t.Helper()
	l := &listener{r: r, messages: make(chan string, 1<<16)}
	client := r.redis.Client(r.t)
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { ready <- struct{}{} })
		subscribe := client.B().Subscribe().Channel(r.l.NodeEvents()).Build()
		if r.l.Sharded {
			subscribe = client.B().Ssubscribe().Channel(r.l.NodeEvents()).Build()
		}
		_ = client.Receive(ctx, subscribe, func(m rueidis.PubSubMessage) {
			l.messages <- m.Message
		})
	}()
	r.t.Cleanup(func() { cancel(); <-done })
	waittest.Receive(r.t, "the subscription", ready)
	l.drain() // in a cluster, what was published before can come late
	return l
}

// drain returns every event published up to now. A marker goes the way of the
// events, by the master that owns the cell, so that none can come after it.
func (l *listener) drain() []events.Event {
	l.r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	marker := fmt.Sprintf("marker %d", markers.Add(1))
	publish := "PUBLISH"
	if l.r.l.Sharded {
		publish = "SPUBLISH"
	}
	cmd := l.r.raw.B().Eval().Script(`return redis.call('`+publish+`', ARGV[1], ARGV[2])`).
		Numkeys(1).Key(l.r.l.Version()).Arg(l.r.l.NodeEvents(), marker).Build()
	if err := l.r.raw.Do(ctx, cmd).Error(); err != nil {
		l.r.t.Fatal(err)
	}
	var out []events.Event
	for {
		m := waittest.Receive(l.r.t, marker, l.messages)
		if m == marker {
			return out
		}
		if strings.HasPrefix(m, "marker ") {
			continue
		}
		e, err := events.Decode(m)
		if err != nil {
			l.r.t.Errorf("event %q: %v", m, err)
			continue
		}
		out = append(out, e)
	}
}

// wantErr fails unless err is a *freeslot.Error with this code.
func wantErr(t *testing.T, err error, code freeslot.Code) {
	t.Helper()
	if freeslot.CodeOf(err) != code {
		t.Errorf("error is %v, expected code %s", err, code)
	}
}
