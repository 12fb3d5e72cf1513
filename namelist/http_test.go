package namelist

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	lists "github.com/freeslot/freeslot/internal/namelist"
	listbuild "github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// before has a replica behind a handler, which decides by the path whether the replica is reached.
func (r *rig) before(t *testing.T, pass func(path string) bool) {
	t.Helper()
	behind := r.serve(t)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if pass(q.URL.Path) {
			behind.api.Handler().ServeHTTP(w, q)
			return
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(front.Close)
	r.replica = front.URL
}

// A process that slept over two switches asks for a build that has gone. It reads the head again,
// and answers from the version that serves now.
func TestSleptByHTTP(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		const awake, asleep, waking = 0, 1, 2
		var state, checks atomic.Int32
		r.before(t, func(path string) bool {
			check := strings.HasSuffix(path, "/check")
			if check && state.Load() == waking {
				checks.Add(1)
				return true
			}
			// Waking, it hears of nothing before it has asked for an id.
			return state.Load() == awake || state.Load() == waking && checks.Load() > 0
		})
		r.create("vip", lists.Spec{Settings: lists.Settings{Filter: "none"}})
		v1 := r.publish("vip", entriesOf("stays", "goes"))
		l := r.open().List("vip")
		r.ready(l)
		want(t, l.Check(bounded(t), "goes"), Yes, SourceRedis, ReasonNone)
		state.Store(asleep)
		r.await(l, "stale answers", func(s Status) bool { return s.Stale })
		r.publish("vip", entriesOf("stays"))
		v3 := r.publish("vip", entriesOf("stays", "comes"))
		segments := listbuild.NewSegments(listbuild.SegmentsConfig{Prefix: r.prefix, Cluster: redis.IsCluster()}, r.data, zap.NewNop(), nil)
		_, err := segments.Unlink(bounded(t), "vip", &v1)
		r.must(err)
		_, err = r.DropVersion(bounded(t), "vip", v1.Number)
		r.must(err)
		state.Store(waking)
		a := l.Check(bounded(t), "stays")
		want(t, a, Yes, SourceRedis, ReasonNone)
		if a.Version != v3.Number || checks.Load() < 2 {
			t.Errorf("after %d checks: %+v", checks.Load(), a)
		}
		want(t, l.Check(bounded(t), "comes"), Yes, SourceRedis, ReasonNone)
	})
}

// A client goes on with the next replica when one hangs or has gone. Without any it is as without
// Redis, and it goes on by itself when one is back.
func TestReplicaAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	hanging, err := net.Listen("tcp", "127.0.0.1:0") // it answers nothing
	r.must(err)
	t.Cleanup(func() { _ = hanging.Close() })
	first, second := r.serve(t), r.serve(t)
	r.replica = "http://" + hanging.Addr().String() + ", " + first.url + "/," + second.url
	members := randomIDs(1, 100)
	r.create("vip", lists.Spec{})
	r.publish("vip", entriesOf(members...))
	l := r.open().List("vip")
	r.ready(l)
	exact(t, l, members[:50], Yes)

	first.stop()
	revision := r.edit("vip", add("edited"))
	r.await(l, "the edit", func(s Status) bool { return s.Revision == revision && !s.Stale })
	exact(t, l, members[50:60], Yes)

	second.stop()
	r.await(l, "stale answers", func(s Status) bool { return s.Stale })
	want(t, l.Check(bounded(t), members[0]), Yes, SourceCache, ReasonNone)
	want(t, l.Check(bounded(t), "edited"), Yes, SourceEdits, ReasonNone)
	exact(t, l, strangersOf(l, 100), No)
	want(t, l.Check(bounded(t), members[60]), Unknown, SourceNone, ReasonTimeout)

	again, err := net.Listen("tcp", strings.TrimPrefix(first.url, "http://"))
	r.must(err)
	back := &httptest.Server{Listener: again, Config: &http.Server{Handler: r.serve(t).api.Handler(), ReadHeaderTimeout: time.Minute}}
	back.Start()
	t.Cleanup(back.Close)
	revision = r.edit("vip", drop("edited"))
	r.await(l, "the second edit", func(s Status) bool { return s.Revision == revision && !s.Stale })
	exact(t, l, members, Yes)
}

// A token that the replica does not know is an error that WaitReady tells, and any that it knows
// will do. Certificates of the replica are checked.
func TestTokenAndTLS(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.create("vip", lists.Spec{})
	r.publish("vip", entriesOf("a1"))
	front := httptest.NewTLSServer(r.serve(t).api.Handler())
	t.Cleanup(front.Close)
	r.replica = front.URL
	ca := filepath.Join(t.TempDir(), "ca.pem")
	r.must(os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw}), 0o600))
	for _, token := range []string{"acme-token", "root-token"} {
		l := r.open(func(c *Config) { c.Token, c.Access.CAFile = token, ca }).List("vip")
		r.ready(l)
		want(t, l.Check(bounded(t), "a1"), Yes, SourceRedis, ReasonNone)
	}
	for says, change := range map[string]func(*Config){
		"unauthenticated": func(c *Config) { c.Token, c.Access.CAFile = "stranger", ca },
		"no token":        func(c *Config) { c.Token, c.Access.CAFile = "", ca },
		"certificate":     func(*Config) {},
	} {
		l := r.open(change).List("vip")
		ctx, cancel := context.WithCancel(bounded(t))
		cancel()
		var err error
		waittest.Until(t, "an error that says "+says, func() bool { // a busy machine may first have no time to connect
			err = l.WaitReady(ctx)
			return err != nil && strings.Contains(err.Error(), says)
		}, func() any { return err })
		want(t, l.Peek("a1"), Unknown, SourceNone, ReasonNotLoaded)
	}
}

// A load balancer that vanishes and says nothing costs seconds: its connection is given up.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	back := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.ProtoMajor != 2 {
			t.Errorf("a request by %s", q.Proto)
		}
		_, _ = w.Write([]byte(`{"lists":{"vip":{}}}`)) // the client may have gone
	}))
	back.EnableHTTP2 = true
	back.StartTLS()
	t.Cleanup(back.Close)
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = front.Close() })
	var silent atomic.Bool // the first connection is
	go func() {
		for first := true; ; first = false {
			in, err := front.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", back.Listener.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _, _ = in.Close(), out.Close() })
			for _, ends := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					for part := make([]byte, 1<<16); ; {
						n, err := ends[0].Read(part)
						if err != nil {
							return
						}
						if !first || !silent.Load() {
							_, _ = ends[1].Write(part[:n]) // the next read fails
						}
					}
				}()
			}
		}
	}()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: back.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	on, err := openHTTP(Config{URL: "https://" + front.Addr().String(), Access: Access{CAFile: ca}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(on.close)
	look := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		defer cancel()
		_, _, _, err := on.poll(ctx, []string{"vip"}, false)
		return err
	}
	if err := look(); err != nil {
		t.Fatal(err)
	}
	silent.Store(true)
	waittest.Succeeds(t, "looks on a new connection", look)
}

// Checks of a list server that hangs leave room for those of other ones.
func TestChecksOfHangingServer(t *testing.T) {
	t.Parallel()
	const all = 2 * connsPerReplica
	asked := make(chan struct{}, all)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if strings.Contains(q.URL.Path, "dead") {
			asked <- struct{}{}
			_, _ = io.Copy(io.Discard, q.Body) // so that the end of the connection is seen
			<-q.Context().Done()
			return
		}
		_, _ = w.Write([]byte(`{"found":[{"member":true}]}`)) // the client may have gone
	}))
	t.Cleanup(server.Close)
	on, err := openHTTP(Config{URL: server.URL, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(on.close)
	ctx, cancel := context.WithCancel(bounded(t))
	ask := func(list string) Reason {
		v := &lists.Version{Number: 1, Build: firstBuild, Segments: 1, Server: list}
		return on.ask(ctx, list, v, []question{{id: "a"}})[0].why
	}
	answers := make(chan Reason, all)
	for range all {
		go func() { answers <- ask("dead") }()
	}
	for range checksPerServer {
		<-asked
	}
	if why := ask("other"); why != ReasonNone {
		t.Errorf("a check of another server is %s", why)
	}
	cancel()
	for range all {
		if why := <-answers; why != ReasonTimeout {
			t.Errorf("a check that hangs is %s", why)
		}
	}
	ctx = bounded(t)
	if why := ask("other"); why != ReasonNone {
		t.Errorf("a check afterwards is %s", why)
	}
}

// Changes are heard at once of more lists than one request can ask for, also of those that come
// while a request waits.
func TestPolls(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.replica = r.serve(t).url
	on, err := openHTTP(Config{URL: r.replica, Token: "acme-token", Logger: zap.NewNop()})
	r.must(err)
	t.Cleanup(on.close)
	heard := make(chan string, 10)
	for i := range lists.LookLists + 1 {
		name := fmt.Sprint("l", i)
		stop := on.follow(name, func(e lists.Event) {
			if e.Revision > 0 {
				heard <- name
			}
		})
		t.Cleanup(stop)
	}
	for _, i := range []int{0, lists.LookLists / 2, lists.LookLists} {
		name := fmt.Sprint("l", i)
		r.create(name, lists.Spec{})
		if got := waittest.Receive(t, "to hear of "+name, heard); got != name {
			t.Errorf("heard of %s, expected %s", got, name)
		}
	}
}

// A poll that may have missed a loss of edits has the client look for it.
func TestPollOfLoss(t *testing.T) {
	t.Parallel()
	marks := make(chan string, 4)
	for _, m := range []string{`"1","lists":{"vip":{"revision":7,"birth":"b"}}`, `"1","lists":{"vip":{"revision":6,"birth":"b"}}`, `"2","lists":{"vip":{"revision":6,"birth":"b"}}`} {
		marks <- m
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if text, err := io.ReadAll(q.Body); err != nil || !strings.Contains(string(text), `"history":true`) {
			t.Errorf("%s: %v; want no error, strings.Contains(string(text), `\"history\":true`)", text, err)
		}
		select {
		case m := <-marks:
			_, _ = w.Write([]byte(`{"history":` + m + `}`)) // the client may have gone
		case <-q.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	on, err := openHTTP(Config{URL: server.URL, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(on.close)
	heard := make(chan lists.Event, 4)
	t.Cleanup(on.follow("vip", func(e lists.Event) { heard <- e }))
	for i, revision := range []int64{7, 0, 0} { // 0: events may be lost
		if e := waittest.Receive(t, "an event", heard); e.Revision != revision {
			t.Errorf("event %d: %+v", i, e)
		}
	}
}

// An answer that is too long, or is none, does no harm.
func TestBadAnswers(t *testing.T) {
	t.Parallel()
	var answer atomic.Pointer[string]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(*answer.Load())) // the client may have gone
	}))
	t.Cleanup(server.Close)
	on, err := openHTTP(Config{URL: server.URL, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(on.close)
	v := &lists.Version{Number: 1, Build: firstBuild, Segments: 1, Count: 2}
	for _, text := range []string{"", "{}", "[]", "<html>", `{"head":{}}`, strings.Repeat(" ", smallAnswer+idAnswer*2+1), strings.Repeat("\x00", blockAnswer+1)} {
		answer.Store(&text)
		ctx := bounded(t)
		if _, _, _, err := on.poll(ctx, []string{"vip"}, false); err == nil {
			t.Errorf("%.20q is a mark", text)
		}
		if d, err := on.delta(ctx, "vip", 0); err == nil && d.Head.Birth != "" {
			t.Errorf("%.20q is a list", text)
		}
		if _, err := on.whole(ctx, "vip", v); err == nil {
			t.Errorf("%.20q are two ids", text)
		}
		if got := on.ask(ctx, "vip", v, []question{{id: "a"}}); len(got) != 1 || got[0].why != ReasonTimeout {
			t.Errorf("%.20q is an answer: %+v", text, got)
		}
		if _, _, err := loadBlock(ctx, on, "vip", v, 0); err == nil {
			t.Errorf("%.20q is a block", text)
		}
	}
}

// Exactly one of Redis and replicas is given, with what goes with it.
func TestConfigOfSources(t *testing.T) {
	t.Parallel()
	for fields, cfg := range map[string]Config{
		"redis_url,url": {},
		"url,redis_url": {RedisURL: "redis://127.0.0.1:1", URL: "http://127.0.0.1:1"},
		"token":         {RedisURL: "redis://127.0.0.1:1", Token: "x"},
		"url":           {URL: "127.0.0.1:1"},
		"url,":          {URL: "http://127.0.0.1:1,ftp://x"},
		"access":        {URL: "http://127.0.0.1:1", Access: Access{CAFile: "/none"}},
		"access,":       {URL: "https://127.0.0.1:1", Access: Access{Username: "u"}},
		"access,,,":     {URL: "https://127.0.0.1:1", Access: Access{KeyFile: "/none"}},
		"access,,":      {URL: "https://127.0.0.1:1", Access: Access{CertFile: "/none", KeyFile: "/none"}},
	} {
		_, err := Open(cfg)
		for field := range strings.SplitSeq(fields, ",") {
			if field != "" && (freeslot.CodeOf(err) != freeslot.CodeInvalidArgument || !strings.Contains(fmt.Sprintf("%+v", err.(*freeslot.Error).Errors), field)) { //nolint:errorlint // it is not wrapped
				t.Errorf("%+v: %v, expected %s", cfg, err, field)
			}
		}
	}
}
