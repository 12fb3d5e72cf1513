package faults

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	lists "github.com/freeslot/freeslot/internal/namelist"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// baseCommit names the commit that is upgraded from.
const baseCommit = "UPGRADE_BASE"

const (
	// rollRate is jobs a second by WebSocket, a load that the nodes keep up with while one is missing.
	rollRate = 30
	// rollMembers is the size of the larger list.
	rollMembers = 20_000
	// firstByHTTP numbers the submissions by HTTP, which runLoad does not number.
	firstByHTTP = 1_000_000
)

// rolled are all programs in the order in which they are replaced: replicas, nodes, and then the
// programs with locks, instances, lists of instances, and name lists.
var rolled = []string{"r1", "r2", "r3", "n1", "n2", "n3", "n4", "h1", "h2", "p1", "p2", "c1", "l1", "l2"}

// drainedFirst are the nodes that are drained before they end; the others hand their jobs back.
var drainedFirst = []string{"n1", "n2"}

// readCommands are commands of schedctl that change nothing, and are as old as the lists.
var readCommands = []string{
	"nodes", "list", "queues", "schedules list", "schedules get " + scheduleName, "lists ls", "lists show vip", "lists clients vip",
	"registry services", "registry instances web", "lock ls", "config show",
}

// TestUpgradeCommit replaces every program of a commit's build by this build's, one by one and
// under load, and goes the same way back. Nothing is lost, and no client gets an error but those of
// a replica that stops.
func TestUpgradeCommit(t *testing.T) {
	base := os.Getenv(baseCommit)
	if base == "" {
		t.Skipf("%s names no commit; make upgrade-test does", baseCommit)
	}
	seed := seedOfRun(t)
	t.Logf("this run again: make upgrade-test BASE=%s SEED=%d", base, seed)
	r := newRolling(t, buildCommit(t, base), seed)
	history, rested := runLoad(t, r.fleet, seed, restLimit, r.thereAndBack)
	judge(t, history, rested, r.folder, slices.Concat(r.checkLogs(), r.refused(history), r.judgeLocks(), r.judgeLists(), r.denied())...)
	r.seen.judge(t, r.unrest)
}

// rolling is a fleet and the other programs of a system, of the build of a commit and of this one.
type rolling struct {
	*upgrade

	guarded  *redistest.Server // what the locks guard
	registry *registryBreaker
	lists    *listsBed
	seen     *RegistryHistory
	unrest   []Violation // of the registry
}

func newRolling(t *testing.T, old string, seed uint64) *rolling {
	t.Helper()
	f := newFleet(t, NewRecorder(), runFolder(t, t.Name()), fleetConfig{
		replicas: 3, slots: []int{2, 3, 4, 3}, cells: 1, interval: 500 * time.Millisecond, limit: 2 * time.Second, programs: old,
		varied: true, linked: []string{"n2", "n3"}, rate: rollRate, users: true, fsync: "everysec",
		each: func(f *fleet, name string) map[string]any {
			return map[string]any{
				"advertise": "http://" + f.replicas[name], "lists": map[string]any{"dir": filepath.Join(f.folder, name+"-lists")},
			}
		},
	})
	r := &rolling{upgrade: &upgrade{fleet: f, old: old, now: programs, seed: seed, open: &register{}}, guarded: redistest.New(t)}
	r.next.Store(firstByHTTP)
	r.addHolders()
	r.addInstances()
	r.addLists()
	f.awaitUp(startLimit)
	return r
}

func (r *rolling) addHolders() {
	for i := range 2 {
		name := holderName(i)
		r.programs[name] = newProgram(r.t, r.rec, r.folder, name, "lockholder.started", r.path("lockholder"),
			"-redis", r.way(name), "-register", r.guarded.URL(), "-keys", strings.Join(lockKeys, ","),
			"-seed", strconv.FormatUint(r.seed*100+uint64(i), 10))
		r.programs[name].start()
	}
}

func (r *rolling) addInstances() {
	b := &registryBreaker{
		loser: &loser{breaker: &breaker{fleet: r.fleet}}, begin: Clock(), times: 1, logs: map[string]string{}, flags: []string{"-prefix", prefix},
	}
	r.registry = b
	for i, name := range []string{"p1", "p2"} {
		r.programs[name] = b.provider(name, name, peerPort+10*i)
	}
	r.programs["c1"] = b.peer("c1", "-follow", followed["c1"], "-timeout", registryTimes.Timeout.String())
	for name := range b.logs {
		r.programs[name].start()
	}
}

// addLists makes two lists, and starts a program that asks Redis and one that asks replicas.
func (r *rolling) addLists() {
	b := &listsBed{
		fleet: r.fleet, counts: map[string]int{}, folders: map[string]string{},
		listsRun: listsRun{seed: r.seed, topology: listsOne, members: rollMembers, stays: true},
		servers:  []*listServer{{r.redis.URL(), []*redisserver.Server{r.redis.Process()}}},
	}
	client, err := r.client()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(client.Close)
	b.control = lists.NewControl(client, prefix, false, zap.NewNop(), nil)
	b.works = []*listWork{
		newListWork(b, 0, "vip", b.members, map[string]any{"expected_ids": b.members}),
		newListWork(b, 1, "small", b.members/10, map[string]any{"whole": true, "filter": "bloom"}),
	}
	each(b.works, (*listWork).begin)
	b.addListPeer("l1", nil)
	b.addListPeer("l2", []string{byHTTP})
	for name := range b.folders {
		r.programs[name].start()
	}
	r.lists = b
}

// thereAndBack replaces all programs, and then all again by those of before, while all is in use.
func (r *rolling) thereAndBack(ctx context.Context, _ func(string)) {
	submit, end := context.WithCancel(ctx)
	defer end()
	l := newLoader(r.t, r.fleet, "http", r.urls("r1"), r.seed, &r.next, r.open)
	var others sync.WaitGroup
	others.Go(func() { r.submitKeyed(submit, ctx, l) })
	others.Go(func() { r.askRegistry(submit) })
	others.Go(func() { r.watchRedis(submit) })
	others.Go(func() {
		each(r.lists.works, func(w *listWork) {
			for pause(submit, stepPause) {
				w.step()
			}
		})
	})

	pause(ctx, endPause)
	r.replaceAll(ctx, rolled, r.old, r.now)
	back := slices.Clone(rolled)
	slices.Reverse(back)
	r.replaceAll(ctx, back, r.now, r.old)
	end()
	others.Wait()
	l.jobs.Wait()
	r.askAgain(ctx, r.open)
	r.seen, r.unrest = r.registry.awaitRest(registryRest)
	each(r.lists.works, func(w *listWork) {
		w.stop()
		w.verify()
	})
}

// replaceAll replaces the programs of one folder by those of another, one by one. The users of
// Redis get the rights of both, and at the end those of the latter alone.
func (r *rolling) replaceAll(ctx context.Context, names []string, from, to string) {
	r.setUsers(filepath.Join(to, "schedctl"), "--add")
	for i, name := range names {
		r.rec.Add(Event{Kind: Fault, Who: name, Note: "is replaced"})
		r.replace(name, to)
		r.rec.Add(Event{Kind: Fault, Who: name, Note: "mended"})
		if name == "r2" { // there are replicas of both
			first, second := "r1", "r3"
			r.askAcross(from, to, first, second)
			r.openPage(ctx, first, second)
		}
		if i < len(names)-1 {
			pause(ctx, stepPause)
		}
	}
	r.setUsers(filepath.Join(to, "schedctl"))
	r.rec.Add(Event{Kind: Fault, Note: "all is of " + to})
	pause(ctx, endPause)
}

// replace ends a program in good order, and starts that of a folder.
func (r *rolling) replace(name, folder string) {
	r.t.Helper()
	again := func() {
		r.programs[name].stop()
		r.startAs(name, folder)
	}
	switch {
	case r.registry.logs[name] != "":
		r.registry.broken(name, Stop, again)
	case r.replicas[name] != "": // its operations on lists end, or wait for it
		r.lists.broken("stop "+name, nil, "", again)
	case slices.Contains(drainedFirst, name):
		r.schedctl(filepath.Join(folder, "schedctl"), "r3", "nodes", "drain", name)
		r.rec.Add(Event{Kind: Drained, Node: name})
		r.awaitStatus(name, freeslot.StatusDrained)
		again()
		r.undrain(name)
	default:
		again()
	}
}

// awaitStatus waits until a replica has this status of a node.
func (r *rolling) awaitStatus(node string, want freeslot.Status) {
	r.t.Helper()
	var known struct{ Status freeslot.Status }
	if err := redistest.Await(func(context.Context) bool {
		return r.anyReplica(lookLimit, http.MethodGet, "/v1/nodes/"+node, nil, &known) == nil && known.Status == want
	}); err != nil {
		r.t.Fatalf("%s is %q, expected %q", node, known.Status, want)
	}
}

// askAcross has the schedctl of each build ask a replica of each.
func (r *rolling) askAcross(from, to string, replicas ...string) {
	for _, folder := range []string{from, to} {
		for _, replica := range replicas {
			for _, line := range readCommands {
				r.schedctl(filepath.Join(folder, "schedctl"), replica, strings.Fields(line)...)
			}
		}
	}
}

var scriptOfPage = regexp.MustCompile(`src="([^"]+\.js)"`)

// openPage opens the console at one replica and has another one, of the other build, serve its
// script, as it happens behind a proxy. The page sees by the header that the two are not of one
// build.
func (r *rolling) openPage(ctx context.Context, first, second string) {
	r.t.Helper()
	for _, replica := range []string{first, second} {
		status, _, err := call(ctx, http.MethodGet, "http://"+r.replicas[replica]+"/console/", nil, nil)
		if err == nil && status == http.StatusNotFound {
			r.t.Logf("the build of %s has no console", replica)
			return
		}
	}
	builds := map[string]bool{}
	for _, at := range [][2]string{{first, second}, {second, first}} {
		index, build := r.get(ctx, at[0], "/console/")
		builds[build] = true
		script := scriptOfPage.FindStringSubmatch(index)
		if script == nil {
			r.t.Fatalf("the page of %s names no script: %.300s", at[0], index)
		}
		if text, _ := r.get(ctx, at[1], "/console/"+script[1]); text == "" {
			r.t.Errorf("%s has no %s for the page of %s", at[1], script[1], at[0])
		}
	}
	if len(builds) != 2 {
		r.t.Errorf("the builds of %s and %s are %v, expected two", first, second, slices.Collect(maps.Keys(builds)))
	}
}

// get returns a page, and the build that the replica names; nothing if it has none.
func (r *rolling) get(ctx context.Context, replica, path string) (text, build string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.replicas[replica]+path, http.NoBody)
	if err != nil {
		r.t.Fatal(err)
	}
	request.Close = true // replicas come and go
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Errorf("GET %s at %s: %v", path, replica, err)
		return "", ""
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		r.t.Errorf("GET %s at %s: %d %v, expected 200", path, replica, answer.StatusCode, err)
		return "", ""
	}
	return string(data), answer.Header.Get("Freeslot-Build")
}

// askRegistry asks replicas for the instances of a service, of which there are always some.
func (r *rolling) askRegistry(ctx context.Context) {
	for pause(ctx, lookInterval) {
		var list struct {
			Instances []struct{ ID string } `json:"instances"`
		}
		if err := r.anyReplica(startLimit, http.MethodGet, "/admin/registry/services/web/instances", nil, &list); err != nil || len(list.Instances) == 0 {
			if ctx.Err() == nil {
				r.t.Errorf("replicas know %d instances of web: %v; expected some", len(list.Instances), err)
			}
		}
	}
}

// slowAnswer is how long Redis may take to answer this process before answers of lists may be
// unknown.
const slowAnswer = 250 * time.Millisecond

// watchRedis notes when Redis answers late, as it does where the machine is busy with other things.
func (r *rolling) watchRedis(ctx context.Context) {
	for pause(ctx, lookEvery) {
		begin := Clock()
		err := ask1(r.redis.Process(), "PING").Error()
		if took := Clock() - begin; err != nil || took > slowAnswer {
			r.lists.mu.Lock()
			r.lists.troubles = append(r.lists.troubles, &listTrouble{span{begin, Clock()}, "slow machine", []string{"l1", "l2"}, ""})
			r.lists.mu.Unlock()
		}
	}
}

// refused lists the submissions that got another answer than docs/protocol.md allows while a
// replica stops: unavailable, or over HTTP no connection.
func (r *rolling) refused(history *History) (found []Violation) {
	counts := map[string]int{}
	for _, e := range history.Events {
		if e.Kind == Refused || e.Kind == Unknown {
			counts[fmt.Sprintf("%s %s", e.Kind, e.Code)]++
			if e.Code != string(freeslot.CodeUnavailable) {
				found = append(found, Violation{"refused", fmt.Sprintf("submission %d of %s at %s: %s %s", e.N, e.Who, e.At, e.Code, e.Note)})
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, why := range slices.Sorted(maps.Keys(r.late)) {
		if why != "no connection" && why != "503 unavailable" {
			found = append(found, Violation{"refused", fmt.Sprintf("%d submissions by HTTP: %s", r.late[why], why)})
		}
	}
	r.t.Logf("by WebSocket %v; by HTTP %d accepted, put off %v", counts, r.keyed.Load(), r.late)
	if r.keyed.Load() == 0 {
		found = append(found, Violation{"load", "no submission by HTTP was accepted"})
	}
	return found
}

// judgeLocks ends the holders, and judges what they did.
func (r *rolling) judgeLocks() []Violation {
	var ops []LockOp
	for i := range 2 {
		r.programs[holderName(i)].kill()
		ops = append(ops, readOps(r.t, filepath.Join(r.folder, holderName(i)+".log"))...)
	}
	r.t.Logf("locks: %s", lockSummary(ops))
	found := CheckLocks(ops, 0)
	if len(ops) == 0 {
		found = append(found, Violation{"load", "no lock was held"})
	}
	return found
}

// judgeLists ends the programs that ask lists, and judges every answer.
func (r *rolling) judgeLists() []Violation {
	b := r.lists
	slow := b.excused("l1", "") // l2 is excused at the same times
	j := &listJudge{judged: map[string]int{}, excused: func(string, *ListAnswer) spans { return slow }}
	for _, w := range b.works {
		w.build()
		j.lists = append(j.lists, w.oracle)
	}
	for _, name := range slices.Sorted(maps.Keys(b.folders)) {
		r.programs[name].stop()
		if err := b.answers(name, func(a *ListAnswer) { j.answer(name, a) }); err != nil {
			r.t.Error(err)
		}
	}
	r.t.Logf("lists: done %v; answers %v; Redis was late in %d spans", b.counts, j.judged, len(slow))
	if j.judged["yes"] == 0 || j.judged["no"] == 0 {
		j.bad("load", "answers of lists are %v, expected yes and no", j.judged)
	}
	return slices.Concat(b.violations, j.violations)
}

// denied lists the commands that Redis denied to the programs' users.
func (r *rolling) denied() (found []Violation) {
	client, err := r.client()
	if err != nil {
		r.t.Fatal(err)
	}
	defer client.Close()
	entries, err := client.Do(r.t.Context(), client.B().Arbitrary("ACL", "LOG").Build()).ToArray()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, entry := range entries {
		fields, err := entry.AsMap()
		if err != nil {
			r.t.Fatal(err)
		}
		text := func(name string) string {
			field := fields[name]
			value, _ := field.ToString() // all that are read are texts
			return value
		}
		found = append(found, Violation{"denied", fmt.Sprintf("%s: %s %s in %s", text("username"), text("reason"), text("object"), cmp.Or(text("context"), "?"))})
	}
	return found
}
