package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	lists "github.com/freeslot/freeslot/internal/namelist"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/namelist"
)

// The topologies of a run of lists.
const (
	listsOne     = "one server"
	listsSeveral = "several servers"
	listsCluster = "cluster"
)

const (
	// controlServer is how this suite calls the one that replicas know by no name.
	controlServer = "control"
	// otherServer is the list server that lists move to and back. It is a server of its own in
	// listsSeveral alone.
	otherServer = "other"
	// ballast fills the memory of the peer that has little of it: its edits stay in memory.
	ballast, ballastEdits = "ballast", 12_000
	// wholeMembers is the most members of the list that peers hold whole.
	wholeMembers = 20_000
	// peerRate is how many checks a second a peer makes of each list.
	peerRate = 2000
	// listCall bounds a call to a replica, a chunk of an upload included.
	listCall = 30 * time.Second
	// lookLists is from one look at a list to the next.
	lookLists = 20 * time.Millisecond
)

// byHTTP is the flag of a peer that asks replicas in place of Redis.
const byHTTP = "-url"

// listPeers are the peers and their flags.
var listPeers = map[string][]string{
	"p1": {"-snapshots", "snapshots"},
	"p2": {"-max-bytes", strconv.Itoa(namelist.MinMaxBytes), "-load", ballast},
	"p3": {byHTTP},
}

// askReplicas are the peers that may not know while a replica is broken.
func askReplicas() (names []string) {
	for name, args := range listPeers {
		if slices.Contains(args, byHTTP) {
			names = append(names, name)
		}
	}
	return names
}

// listsRun is a run of replicas that build lists, and of peers that ask them.
type listsRun struct {
	seed     uint64
	length   time.Duration
	topology string
	members  uint32
	// faults are what breaks, in this order; then it begins anew.
	faults []string
	// stays: the lists stay on their server.
	stays bool
	// built is the folder of the binaries; empty is the folder of this build.
	built string
}

// patience is how long an operation may take on a busy machine, before the test gives up.
func (r *listsRun) patience() time.Duration {
	return 3*time.Minute + time.Duration(r.members/20_000)*time.Second
}

// listServer is one of the Redis that a run has.
type listServer struct {
	url   string
	procs []*redisserver.Server
}

// listTrouble is a time in which something was broken.
type listTrouble struct {
	span

	what  string
	peers []string // that may not know
	// server is the one that is away, of several; empty is any. Versions on others are exact.
	server string
}

// listsBed is all that runs.
type listsBed struct {
	*fleet
	listsRun

	servers []*listServer // control first
	control *lists.Control
	works   []*listWork

	mu         sync.Mutex
	troubles   []*listTrouble // guarded by mu
	violations []Violation    // guarded by mu
	counts     map[string]int // guarded by mu
	folders    map[string]string
}

func (b *listsBed) bad(rule, format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.violations = append(b.violations, Violation{rule, fmt.Sprintf(format, args...)})
}

func (b *listsBed) count(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts[what]++
}

// start starts servers and replicas, makes the lists, and starts the peers.
func (r *listsRun) start(t *testing.T) *listsBed {
	t.Helper()
	b := &listsBed{listsRun: *r, counts: map[string]int{}, folders: map[string]string{}}
	rec := NewRecorder()
	var url string
	switch r.topology {
	case listsCluster:
		c := redistest.NewCluster(t)
		url, b.servers = c.URL(), []*listServer{{c.URL(), c.Processes()}}
	case listsSeveral:
		for range 2 {
			s := redistest.New(t, redistest.AppendOnly("always"))
			b.servers = append(b.servers, &listServer{s.URL(), []*redisserver.Server{s.Process()}})
		}
		url = b.servers[0].url
	default:
		s := redistest.New(t, redistest.AppendOnly("always"))
		url, b.servers = s.URL(), []*listServer{{s.URL(), []*redisserver.Server{s.Process()}}}
	}
	b.fleet = &fleet{
		t: t, rec: rec, folder: runFolder(t, filepath.Base(t.Name())), replicas: map[string]string{}, programs: map[string]*program{},
		cfg: fleetConfig{cells: 1, programs: r.built, store: &store{url: url, cluster: r.topology == listsCluster}},
	}
	client, err := b.client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	b.control = lists.NewControl(client, prefix, r.topology == listsCluster, zap.NewNop(), nil)
	for _, name := range []string{"r1", "r2"} {
		b.addListReplica(name)
		b.programs[name].start()
	}
	b.awaitUp(startLimit)
	b.makeBallast()
	b.works = []*listWork{
		newListWork(b, 0, "vip", r.members, map[string]any{"expected_ids": r.members, "server": r.server()}),
		newListWork(b, 1, "small", min(r.members/10, wholeMembers), map[string]any{"whole": true, "filter": "bloom"}),
	}
	each(b.works, func(w *listWork) { w.begin() })
	for name, args := range listPeers {
		b.addListPeer(name, args)
		b.programs[name].start()
	}
	b.awaitUp(b.patience())
	return b
}

func (r *listsRun) server() string {
	if r.topology == listsSeveral {
		return otherServer
	}
	return ""
}

// other is the server that segments are on, beside those that move.
func (b *listsBed) other() *listServer { return b.servers[len(b.servers)-1] }

func (b *listsBed) addListReplica(name string) {
	b.replicas[name] = b.freeAddr()
	config := map[string]any{
		"listen": b.replicas[name], "advertise": "http://" + b.replicas[name], "redis": b.redisConfig(name), "drain_timeout": "3s", "replica_id": name,
		"lists": map[string]any{
			"dir": filepath.Join(b.folder, name+"-lists"), "servers": map[string]any{otherServer: map[string]any{"url": b.other().url}},
		},
	}
	b.programs[name] = newProgram(b.t, b.rec, b.folder, name, "replica.started", b.path("scheduler"), "serve", "--config", b.write(name, config))
}

func (b *listsBed) addListPeer(name string, more []string) {
	b.folders[name] = filepath.Join(b.folder, name+"-answers")
	if err := os.MkdirAll(b.folders[name], 0o755); err != nil {
		b.t.Fatal(err)
	}
	var follows []string
	for _, w := range b.works {
		follows = append(follows, fmt.Sprintf("%s=%d", w.name, w.oracle.ids.Members))
	}
	args := []string{
		b.path("listspeer"), "-name", name, "-prefix", prefix, "-answers", b.folders[name],
		"-lists", strings.Join(follows, ","), "-rate", strconv.Itoa(peerRate),
	}
	if slices.Contains(more, byHTTP) {
		args = append(args, byHTTP, "http://"+strings.Join(b.addresses(), ",http://"))
		if b.cfg.varied {
			args = append(args, "-token", operatorToken)
		}
		more = nil
	} else {
		args = append(args, "-redis", b.redisURL(name))
	}
	for i, arg := range more {
		if i > 0 && more[i-1] == "-snapshots" {
			arg = filepath.Join(b.folder, arg)
		}
		args = append(args, arg)
	}
	b.programs[name] = newProgram(b.t, b.rec, b.folder, name, "listspeer.started", args...)
}

// makeBallast makes the list that fills a peer's memory.
func (b *listsBed) makeBallast() {
	w := newListWork(b, 0, ballast, 16*listHot, nil)
	w.begin()
	for first := uint32(0); first < ballastEdits; first += lists.EditEntries {
		var entries []lists.Change
		for id := first; id < first+lists.EditEntries; id++ {
			entries = append(entries, lists.Change{Entry: lists.Entry{ID: ListID(id)}})
		}
		if a := b.call(b.anyReplica(rand.IntN), http.MethodPost, w.path("/entries"), map[string]any{"entries": entries}, nil); a.code != "" {
			b.t.Fatalf("ballast: %v", a)
		}
	}
	w.stop()
}

// each does something with all works at once.
func each(works []*listWork, do func(w *listWork)) {
	var all sync.WaitGroup
	for _, w := range works {
		all.Go(func() { do(w) })
	}
	all.Wait()
}

// listReply is how a replica has answered. code is empty if it did what it was asked; it is "lost"
// if it gave no answer, and may have done it.
type listReply struct{ code, text string }

func (r listReply) String() string { return r.code + ": " + r.text }

const lost = "lost"

// anyReplica is one that is up, if there is one.
func (b *listsBed) anyReplica(intN func(int) int) string {
	names := slices.Sorted(maps.Keys(b.replicas))
	first := intN(len(names))
	for i := range names {
		if name := names[(first+i)%len(names)]; b.programs[name].runs() {
			return name
		}
	}
	return names[first]
}

// call calls a replica. A body of bytes is sent as it is.
func (b *listsBed) call(replica, method, path string, body, into any) listReply {
	ctx, cancel := context.WithTimeout(b.t.Context(), listCall)
	defer cancel()
	var send io.Reader
	switch in := body.(type) {
	case nil:
	case io.Reader:
		send = in
	default:
		text, err := json.Marshal(body)
		if err != nil {
			b.t.Error(err)
			return listReply{lost, err.Error()}
		}
		send = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+b.replicas[replica]+path, send)
	if err != nil {
		b.t.Error(err)
		return listReply{lost, err.Error()}
	}
	request.Header.Set("Authorization", "Bearer "+operatorToken)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return listReply{lost, err.Error()}
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return listReply{lost, err.Error()}
	}
	if response.StatusCode < 300 {
		if into != nil {
			if err := json.Unmarshal(text, into); err != nil {
				b.bad("answer of a replica", "%s %s: %v: %.200s", method, path, err, text)
			}
		}
		return listReply{}
	}
	var refused struct{ Code, Message string }
	if err := json.Unmarshal(text, &refused); err != nil || response.StatusCode >= 500 || refused.Code == "" {
		return listReply{lost, fmt.Sprintf("%d %.200s", response.StatusCode, text)}
	}
	return listReply{refused.Code, refused.Message}
}

// broken notes what is broken while do runs. After a loss it is broken until all lists have a new
// version.
func (b *listsBed) broken(what string, peers []string, server string, do func()) {
	t := &listTrouble{span{Clock(), forever}, what, peers, server}
	b.mu.Lock()
	b.troubles = append(b.troubles, t)
	b.counts["fault: "+what]++
	b.mu.Unlock()
	do()
	b.mu.Lock()
	defer b.mu.Unlock()
	t.to = Clock()
}

const (
	// healed is how long after a fault peers may still not know: they have to connect again.
	healed = 5 * time.Second
	// operationHealed is how long after a fault an operation may still fail by it.
	operationHealed = lists.Lease + 20*time.Second
)

// excused is when a peer may not know what is on a server; an empty name is for operations.
func (b *listsBed) excused(peer, server string) spans {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []span
	for _, t := range b.troubles {
		switch {
		case peer == "":
			list = append(list, span{t.from, min(t.to, forever-operationHealed) + operationHealed})
		case slices.Contains(t.peers, peer) && (t.server == "" || server == "" || t.server == server):
			list = append(list, span{t.from, min(t.to, forever-healed) + healed})
		}
	}
	return joined(list, 0)
}

// failed notes that an operation has failed, which is wrong if nothing was broken.
func (b *listsBed) failed(since time.Duration, format string, args ...any) {
	b.count("failed operations")
	text := fmt.Sprintf(format, args...)
	b.t.Logf("%s: %s", Clock(), text)
	touched := slices.ContainsFunc(b.excused("", ""), func(s span) bool { return s.both(span{since, Clock()}).length() > 0 })
	if !touched {
		b.bad("failed", "%s", text)
	}
}

// ask1 sends a command to one Redis process.
func ask1(proc *redisserver.Server, command ...string) rueidis.RedisResult {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return redistest.Ask(ctx, proc.Addr(), command...)
}

// dataVersions are the versions of a list that a server has any key of.
func (s *listServer) dataVersions(list string) (map[int64]int, error) {
	found, start := map[int64]int{}, prefix+":lists:{"+list+"_"
	for _, proc := range s.procs {
		for cursor := uint64(0); ; {
			page, err := ask1(proc, "SCAN", strconv.FormatUint(cursor, 10), "MATCH", start+"*", "COUNT", "5000").AsScanEntry()
			if err != nil {
				return nil, err
			}
			for _, key := range page.Elements {
				text, _, _ := strings.Cut(strings.TrimPrefix(key, start), "_")
				number, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return nil, fmt.Errorf("key %s: %w", key, err)
				}
				found[number]++
			}
			if cursor = page.Cursor; cursor == 0 {
				break
			}
		}
	}
	return found, nil
}

// until waits until something is so, and reports whether it came to be.
func (b *listsBed) until(limit time.Duration, is func() bool) bool {
	tick := time.NewTicker(lookLists)
	defer tick.Stop()
	for end := Clock() + limit; !is(); {
		select {
		case <-b.t.Context().Done():
			return false
		case <-tick.C:
		}
		if Clock() > end {
			return false
		}
	}
	return true
}

// answers calls do with each answer of a peer.
func (b *listsBed) answers(peer string, do func(a *ListAnswer)) error {
	files, err := filepath.Glob(filepath.Join(b.folders[peer], "*.answers"))
	if err != nil {
		return err
	}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		buffer := make([]byte, 32<<10/ListAnswerBytes*ListAnswerBytes)
		for {
			n, err := io.ReadFull(file, buffer)
			for at := 0; at+ListAnswerBytes <= n; at += ListAnswerBytes {
				a := readListAnswer(buffer[at:])
				do(&a)
			}
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					return errors.Join(err, file.Close())
				}
				break
			}
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return nil
}

// newest is the newest answer of a peer for a list, of the newest part of its log.
func (b *listsBed) newest(peer string, list uint8) (newest ListAnswer) {
	files, _ := filepath.Glob(filepath.Join(b.folders[peer], "*.answers")) // the pattern is right
	for _, name := range files {
		data, err := tail(name, 1000*ListAnswerBytes)
		if err != nil {
			continue
		}
		for ; len(data) >= ListAnswerBytes; data = data[ListAnswerBytes:] {
			if a := readListAnswer(data); a.List == list && a.At >= newest.At {
				newest = a
			}
		}
	}
	return newest
}

// tail is the end of a log, in whole answers.
func tail(name string, bytes int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	size := info.Size() / ListAnswerBytes * ListAnswerBytes
	data := make([]byte, min(bytes, size))
	_, err = file.ReadAt(data, size-int64(len(data)))
	return data, err
}

// seedFor gives each user of random numbers its own.
func (r *listsRun) seedFor(name string) *rand.Rand {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(name)) // it never fails
	return rand.New(rand.NewPCG(r.seed, sum.Sum64()))
}
