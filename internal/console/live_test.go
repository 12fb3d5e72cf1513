package console

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/testing/gatewaytest"
	"github.com/freeslot/freeslot/internal/wire"
)

// api answers what topics ask.
type api struct {
	mu    sync.Mutex // guards the fields that follow
	asked map[string]int
	who   map[string]identity.Principal // the last to ask
	// answers holds what is not "{}", with a status before it. In them $TENANT stands for the tenant
	// of who asks.
	answers map[string]string
	blocks  bool
}

func (a *api) Ask(ctx context.Context, who *identity.Principal, target string) (int, []byte) {
	a.mu.Lock()
	a.asked[target]++
	a.who[target] = *who
	answer, blocks := a.answers[target], a.blocks
	a.mu.Unlock()
	if blocks {
		<-ctx.Done()
		return http.StatusServiceUnavailable, []byte(`{"code":"unavailable","message":"the store did not answer"}`)
	}
	status := http.StatusOK
	if answer == "" {
		answer = "{}"
	}
	if strings.HasPrefix(answer, "404 ") {
		status, answer = http.StatusNotFound, answer[len("404 "):]
	}
	return status, []byte(strings.ReplaceAll(answer, "$TENANT", who.Tenant))
}

func (a *api) set(target, answer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[target] = answer
}

func (a *api) block(blocks bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.blocks = blocks
}

// calls returns how often each target was asked since the last time.
func (a *api) calls() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.asked
	a.asked = map[string]int{}
	return was
}

// site is a console on a network in memory, in virtual time.
type site struct {
	*Console
	*api
	t   *testing.T
	net *gatewaytest.Network
	reg *prometheus.Registry
	// signedIn is the session of whoever connects next, if it is set.
	signedIn atomic.Pointer[session]
	// looks counts looks at nodes.
	looks atomic.Int64
}

// ServeHTTP stands for the cookie, which needs an address that connections in memory have not.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if opened := s.signedIn.Load(); opened != nil {
		who, err := s.auth.Redeem(&opened.Ticket)
		if err != nil {
			s.t.Error(err)
		}
		r = r.WithContext(context.WithValue(identity.As(r.Context(), &who), sessionKey{}, opened))
	}
	s.Console.ServeHTTP(w, r)
}

// inBubble runs a test with a console that auth guards.
func inBubble(t *testing.T, auth func(t *testing.T) *identity.Authenticator, cfg Config, test func(s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &site{t: t, net: &gatewaytest.Network{}, reg: prometheus.NewRegistry(), api: &api{
			asked: map[string]int{}, who: map[string]identity.Principal{}, answers: map[string]string{},
		}}
		cfg.Replica, cfg.Build = "r1", "v1"
		var err error
		if s.Console, err = New(cfg, Deps{Auth: auth(t), Log: zap.NewNop(), Metrics: s.reg}); err != nil {
			t.Fatal(err)
		}
		s.Start(Sources{
			Ask: s.Ask, Now: time.Now, Findings: func() finding.Report {
				return finding.Report{AtMS: 7, Findings: []finding.Finding{{ID: "nodes.none", Severity: finding.Critical, Text: "none", Next: "start one"}}}
			}, Fleet: func() Fleet {
				return Fleet{Nodes: map[string]int{"online": 3}, Replicas: []Replica{{Name: "r1", Build: "v1", Ready: true}}}
			},
			Look:  func() Look { s.looks.Add(1); return Look{SilenceLimit: time.Minute} },
			Nodes: func(see func(*Node)) { see(&Node{ID: "n1", Max: 4, Epoch: "a"}) },
			Node:  func(id string) (any, bool) { return id, true },
		})
		server := &http.Server{Handler: s}
		listener := s.net.Listen("r1")
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(listener) })
		t.Cleanup(func() {
			for range 2 {
				if err := s.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			}
			_ = server.Close()
			serving.Wait()
		})
		test(s)
	})
}

func tokens(*testing.T) *identity.Authenticator { return everyone() }

var roomy = Config{MaxViewers: 64, MaxTenantViewers: 64}

// viewed is a page's end of a WebSocket.
type viewed struct {
	*websocket.Conn
	s *site
}

// open connects as a role; header has pairs.
func (s *site) open(role identity.Role, header ...string) (*viewed, *http.Response, error) {
	transport := &http.Transport{DialContext: s.net.Dial}
	h := http.Header{"Authorization": {"Bearer " + string(role)}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	conn, resp, err := websocket.Dial(context.Background(), "http://r1/console/live", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport}, HTTPHeader: h, Subprotocols: []string{Protocol},
	})
	if err != nil {
		transport.CloseIdleConnections()
		return nil, resp, err
	}
	conn.SetReadLimit(1 << 20)
	return &viewed{conn, s}, resp, nil
}

// mustOpen connects, and takes the greeting.
func (s *site) mustOpen(role identity.Role) *viewed {
	s.t.Helper()
	p, _, err := s.open(role)
	if err != nil {
		s.t.Fatal(err)
	}
	var hello struct {
		Hello struct {
			Replica, Build string
			NowMS          int64 `json:"now_ms"`
		}
	}
	p.read(&hello)
	if hello.Hello.Replica != "r1" || hello.Hello.Build != "v1" || hello.Hello.NowMS != time.Now().UnixMilli() {
		s.t.Errorf("the greeting is %+v; want r1, v1 and the time", hello)
	}
	return p
}

func (p *viewed) read(to any) {
	p.s.t.Helper()
	_, text, err := p.Read(context.Background())
	if err != nil {
		p.s.t.Fatal(err)
	}
	if err := json.Unmarshal(text, to); err != nil {
		p.s.t.Fatalf("%s: %v; want JSON", text, err)
	}
}

func (p *viewed) send(text string) {
	p.s.t.Helper()
	if err := p.Write(context.Background(), websocket.MessageText, []byte(text)); err != nil {
		p.s.t.Fatal(err)
	}
}

// next returns the next frame.
func (p *viewed) next() (f frame) {
	p.s.t.Helper()
	p.read(&f)
	return f
}

// ended returns the close code of a connection whose frames nobody wants any more.
func (p *viewed) ended() websocket.StatusCode {
	for {
		if _, _, err := p.Read(context.Background()); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

// drain reads until the connection ends, and counts frames by topic.
func (p *viewed) drain() (count func() map[string]int) {
	var mu sync.Mutex
	counts := map[string]int{}
	go func() {
		for {
			_, text, err := p.Read(context.Background())
			if err != nil {
				return
			}
			var f frame
			_ = json.Unmarshal(text, &f)
			mu.Lock()
			counts[f.Topic]++
			mu.Unlock()
		}
	}()
	return func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		was := counts
		counts = map[string]int{}
		return was
	}
}

// TestTopics: each has its data, in frames whose numbers grow; what a page does not want any more
// does not come.
func TestTopics(t *testing.T) {
	t.Parallel()
	inBubble(t, tokens, roomy, func(s *site) {
		s.set("/v1/jobs/0-1", `{"state":"waiting"}`)
		s.set("/v1/jobs/0-1/explain", `{"why":["no slot"]}`)
		s.set("/v1/jobs/0-2", `{"state":"running"}`)
		s.set("/v1/jobs/0-3", `404 {"code":"not_found","message":"there is no job 0-3"}`)
		s.set("/v1/queues", `{"queues":[]}`)
		s.set("/v1/history?since=10s", `{"columns":["t_ms"],"rows":[[2000]]}`)
		p := s.mustOpen(identity.Viewer)
		p.send(`{"want":["overview","history","job:0-1","job:0-2","job:0-3","queues","nothing","job:","queues:x"]}`)
		got, last := map[string]string{}, uint64(0)
		for len(got) < 9 || !strings.Contains(got["overview"], "nodes.none") { // it comes first without findings
			f := p.next()
			got[f.Topic] = string(f.Data)
			if f.Error != nil {
				got[f.Topic] = string(f.Error.Code)
			}
			if f.Seq == 0 || f.AtMS == 0 {
				t.Errorf("a frame of %s has number %d, time %d; want both", f.Topic, f.Seq, f.AtMS)
			}
			last = max(last, f.Seq)
		}
		want := map[string]string{
			"overview": `{"findings":{"at_ms":7,"items":[{"id":"nodes.none","severity":"critical","since_ms":0,"text":"none","next":"start one"}]},"nodes":{"online":3},"replicas":[{"name":"r1","build":"v1","ready":true}],"cells":null}`,
			"job:0-1":  `{"job":{"state":"waiting"},"explain":{"why":["no slot"]}}`,
			"job:0-2":  `{"job":{"state":"running"},"explain":null}`,
			"job:0-3":  "not_found",
			"queues":   `{"queues":[]}`,
			"history":  `{"columns":["t_ms"],"rows":[[2000]]}`,
			"nothing":  "invalid_argument", "job:": "invalid_argument", "queues:x": "invalid_argument",
		}
		for topic, data := range want {
			if got[topic] != data {
				t.Errorf("%s is %s; want %s", topic, got[topic], data)
			}
		}
		p.send(`{"want":["queues"]}`)
		synctest.Wait()
		s.hub.mu.Lock()
		underway := s.hub.seq
		s.hub.mu.Unlock()
		for last = underway; last < underway+5; {
			f := p.next()
			if f.Seq <= underway {
				continue // it was sent before
			}
			if f.Topic != "queues" || f.Seq <= last {
				t.Errorf("%s with number %d after %d came; want the queues with a larger one", f.Topic, f.Seq, last)
			}
			last = f.Seq
		}
		p.send(`{"want":[]}`)
		synctest.Wait()
		s.calls()
		time.Sleep(time.Minute)
		s.hub.mu.Lock()
		topics := len(s.hub.topics)
		s.hub.mu.Unlock()
		if calls := s.calls(); len(calls) > 0 || topics > 0 {
			t.Errorf("while no one looks the API is asked %v for %d topics; want nothing", calls, topics)
		}
		_ = p.CloseNow()
	})
}

func abs(n int) int { return max(n, -n) }

// TestViewersShare: fifty pages cost what one costs.
func TestViewersShare(t *testing.T) {
	t.Parallel()
	measure := func(viewers int) (calls, frames map[string]int) {
		inBubble(t, tokens, roomy, func(s *site) {
			counts := make([]func() map[string]int, viewers)
			for i := range counts {
				role := identity.Roles[[]int{0, 3, 4}[i%3]] // all see the same
				p := s.mustOpen(role)
				p.send(`{"want":["overview","queues","job:0-1"]}`)
				counts[i] = p.drain()
				defer p.CloseNow()
			}
			synctest.Wait()
			s.calls()
			for _, c := range counts {
				c()
			}
			time.Sleep(time.Minute - time.Millisecond)
			calls, frames = s.calls(), counts[viewers-1]()
		})
		return calls, frames
	}
	one, oneFrames := measure(1)
	fifty, fiftyFrames := measure(50)
	for target, n := range one {
		if abs(fifty[target]-n) > 1 { // a minute begins elsewhere in their turns
			t.Errorf("fifty viewers ask %s %d times in a minute; want %d as one viewer", target, fifty[target], n)
		}
	}
	for topic, n := range oneFrames {
		if abs(fiftyFrames[topic]-n) > 1 || n < 15 {
			t.Errorf("one of fifty viewers gets %s %d times in a minute, a single one %d times; want the same, and 15 or more",
				topic,
				fiftyFrames[topic], n)
		}
	}
}

// TestPace: however many topics are wanted, they cost at most five calls a second; and a tenant
// with many does not delay another's.
func TestPace(t *testing.T) {
	t.Parallel()
	auth := func(*testing.T) *identity.Authenticator {
		var all []identity.Credential
		for _, tenant := range []string{"greedy", "modest"} {
			all = append(
				all,
				identity.Credential{Token: tenant, Principal: identity.Principal{Tenant: tenant, Role: identity.TenantOperator}},
			)
		}
		return identity.NewAuthenticator(all, "default", false)
	}
	inBubble(t, auth, roomy, func(s *site) {
		open := func(tenant string, jobs ...string) func() map[string]int {
			for i, id := range jobs {
				s.set("/v1/jobs/"+id, `{"state":"waiting"}`)
				jobs[i] = `"job:` + id + `"`
			}
			p := s.mustOpen(identity.Role(tenant))
			p.send(`{"want":[` + strings.Join(jobs, ",") + `]}`)
			s.t.Cleanup(func() { _ = p.CloseNow() })
			return p.drain()
		}
		greedy := map[string]int{}
		for i := range 8 {
			var jobs []string
			for j := range maxWanted {
				jobs = append(jobs, fmt.Sprintf("%d-%d", i, j))
			}
			open("greedy", jobs...)
		}
		modest := open("modest", "9-9")
		synctest.Wait()
		s.calls()
		modest()
		time.Sleep(time.Minute)
		calls := 0
		for target, n := range s.calls() {
			calls += n
			if strings.HasSuffix(target, "/explain") {
				calls += n * (explainCalls - 1)
			} else if !strings.HasSuffix(target, "9-9") {
				greedy[target] = n
			}
		}
		if got := modest()["job:9-9"]; calls > 5*60+4 || got < 20 || len(greedy) < 20 {
			t.Errorf("%d calls in a minute, %d frames for the modest tenant, %d topics for the greedy one; want at most 304, "+
				"and at least 20 of each", calls, got, len(greedy))
		}
	})
}

// TestCostlyTopic: a topic of very many calls comes less often, and does not hold up the others
// until Redis has had the time of its calls.
func TestCostlyTopic(t *testing.T) {
	t.Parallel()
	inBubble(t, tokens, roomy, func(s *site) {
		var all []string
		for i := range 50 {
			all = append(all, fmt.Sprintf(`{"state":"pending","tenant":"t%d"}`, i))
		}
		s.set("/v1/list-requests", `{"requests":[`+strings.Join(all, ",")+`]}`)
		s.set("/v1/jobs/9-9", `{"state":"running"}`)
		p := s.mustOpen(identity.Admin)
		defer p.CloseNow()
		p.send(`{"want":["list-requests","job:9-9"]}`)
		frames := p.drain()
		synctest.Wait()
		s.calls()
		frames()
		time.Sleep(10 * time.Second)
		if n := frames()["job:9-9"]; n < 4 {
			t.Errorf("%d frames of a job in 10 s beside a topic of 103 calls; want 4 or more", n)
		}
		time.Sleep(5*time.Minute - 10*time.Second)
		got := s.calls()
		calls := got["/v1/list-requests"]*(requestCalls+2*50) + got["/v1/jobs/9-9"]
		if n := frames()["job:9-9"]; calls > 5*300+requestCalls+2*50 || got["/v1/list-requests"] < 3 || n < 120 {
			t.Errorf("%d calls in five minutes, %d looks at the requests, %d frames of the job; want at most 1603 calls, "+
				"and 3 and 120 or more", calls, got["/v1/list-requests"], n)
		}
	})
}

// TestOutage: while Redis does not answer, the overview goes on, and the other topics say since
// when they are old. They come back by themselves.
func TestOutage(t *testing.T) {
	t.Parallel()
	inBubble(t, tokens, roomy, func(s *site) {
		p := s.mustOpen(identity.Operator)
		p.send(`{"want":["overview","queues"]}`)
		until := func(what string, ok func(f *frame) bool) {
			t.Helper()
			for range 100 {
				if f := p.next(); ok(&f) {
					return
				}
			}
			t.Fatal("no frame of a hundred has " + what)
		}
		good := int64(0)
		until("queues", func(f *frame) bool { good = f.AtMS; return f.Topic == "queues" && f.Error == nil })
		s.block(true)
		until("an error of queues", func(f *frame) bool {
			return f.Topic == "queues" && f.Error != nil && f.Error.Code == freeslot.CodeUnavailable && f.GoodMS >= good
		})
		count := 0
		began := time.Now()
		until("the overviews of 20 s", func(f *frame) bool {
			if f.Topic == "overview" {
				count++
			}
			return time.Since(began) >= 20*time.Second
		})
		if count < 9 {
			t.Errorf("%d overviews in 20 s of an outage; want one each 2 s", count)
		}
		s.block(false)
		until("queues again", func(f *frame) bool { return f.Topic == "queues" && f.Error == nil })
		_ = p.CloseNow()
	})
}

// TestTopicsByRole: who may see what, and whose jobs; what a client asks is answered for its
// tenant.
func TestTopicsByRole(t *testing.T) {
	t.Parallel()
	inBubble(t, tokens, roomy, func(s *site) {
		s.set("/v1/jobs/0-1", `{"state":"waiting"}`)
		for _, role := range identity.Roles {
			p := s.mustOpen(role)
			p.send(`{"want":["overview","queues","job:0-1"]}`)
			denied := map[string]bool{}
			for len(denied) < 3 {
				f := p.next()
				denied[f.Topic] = f.Error != nil && f.Error.Code == freeslot.CodePermissionDenied
				if explained := strings.Contains(string(f.Data), `"explain":{`); f.Topic == "job:0-1" &&
					explained != (role != identity.Client) {
					t.Errorf("%s gets the job as %s; want an explanation for all but clients", role, f.Data)
				}
			}
			sees := role != identity.Client && role != identity.TenantOperator
			if denied["overview"] == sees || denied["queues"] == sees || denied["job:0-1"] {
				t.Errorf("%s is denied %v; want overview and queues %v, the job never", role, denied, !sees)
			}
			_ = p.CloseNow()
			time.Sleep(time.Minute) // until the topics are forgotten
			asked := s.who["/v1/jobs/0-1"]
			if asked.Role != role || asked.Tenant != "acme" {
				t.Errorf("for %s the job is asked as %+v; want this role", role, asked)
			}
		}
	})
}

// TestMessages: what a page sends that is no list of topics ends its connection.
func TestMessages(t *testing.T) {
	t.Parallel()
	inBubble(t, tokens, roomy, func(s *site) {
		many := `"x"` + strings.Repeat(`,"x"`, maxWanted)
		for name, text := range map[string]string{
			"no JSON": "want", "no list": `{}`, "null": `{"want":null}`, "numbers": `{"want":[1]}`,
			"too many": `{"want":[` + many + `]}`,
			"long":     `{"want":[],"x":"` + strings.Repeat("x", maxWantBytes) + `"}`,
		} {
			p := s.mustOpen(identity.Viewer)
			p.send(text)
			if got := p.ended(); got != websocket.StatusPolicyViolation {
				t.Errorf("%s: the connection ends with %d; want %d", name, got, websocket.StatusPolicyViolation)
			}
		}
		p := s.mustOpen(identity.Viewer)
		p.send(`{"want":["` + strings.Repeat("x", maxTopic+1) + `"]}`)
		if f := p.next(); f.Error == nil || f.Error.Code != freeslot.CodeInvalidArgument {
			t.Errorf("a topic with a long name is answered %+v; want its refusal alone", f)
		}
		if err := p.Write(context.Background(), websocket.MessageBinary, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if got := p.ended(); got != websocket.StatusPolicyViolation {
			t.Errorf("a binary message ends the connection with %d; want %d", got, websocket.StatusPolicyViolation)
		}
		synctest.Wait()
		if n := s.viewers.Len(); n != 0 {
			t.Errorf("%d viewers are left; want none", n)
		}
	})
}

// TestDoor: who is let in, how many, and how many of one tenant.
func TestDoor(t *testing.T) {
	t.Parallel()
	two := func(*testing.T) *identity.Authenticator {
		return identity.NewAuthenticator([]identity.Credential{
			{Token: "a", Principal: identity.Principal{Tenant: "a", Role: identity.Viewer}},
			{Token: "b", Principal: identity.Principal{Tenant: "b", Role: identity.Viewer}},
		}, "default", false)
	}
	inBubble(t, two, Config{MaxViewers: 3, MaxTenantViewers: 2}, func(s *site) {
		refused := func(what string, want int, role identity.Role, header ...string) {
			t.Helper()
			p, resp, err := s.open(role, header...)
			if err == nil {
				_ = p.CloseNow()
				t.Errorf("%s is let in; want %d", what, want)
				return
			}
			if resp == nil || resp.StatusCode != want {
				t.Errorf("%s: %v, %v; want %d", what, resp, err, want)
			}
		}
		refused("a foreign page", http.StatusForbidden, "a", "Origin", "https://evil.example")
		refused("a page without an origin of its own", http.StatusForbidden, "a", "Origin", "null")
		refused("an unknown token", http.StatusUnauthorized, "nobody")
		r := httptest.NewRequest("GET", "/console/live", nil)
		r.Header.Set("Authorization", "Bearer a")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != http.StatusUpgradeRequired {
			t.Errorf("a plain request is answered %d; want %d", w.Code, http.StatusUpgradeRequired)
		}
		var pages []*viewed
		enter := func(role identity.Role) {
			t.Helper()
			p, _, err := s.open(role, "Origin", "http://R1")
			if err != nil {
				t.Fatal(err)
			}
			pages = append(pages, p)
		}
		enter("a")
		enter("a")
		refused("a third page of a tenant", http.StatusServiceUnavailable, "a")
		enter("b")
		refused("a fourth page", http.StatusServiceUnavailable, "b")
		_ = pages[0].CloseNow()
		synctest.Wait()
		enter("a")
		for _, p := range pages {
			_ = p.CloseNow()
		}
		synctest.Wait()
		if len(s.places.taken) != 0 {
			t.Errorf("places %v stay taken; want none", s.places.taken)
		}
	})
}

// TestStalledPage: a page that stops reading has one pending frame of each topic, is cut off after
// ten seconds, and leaves nothing behind. Others go on.
func TestStalledPage(t *testing.T) {
	t.Parallel()
	inBubble(t, tokens, roomy, func(s *site) {
		stalled, other := s.mustOpen(identity.Viewer), s.mustOpen(identity.Viewer)
		stalled.send(`{"want":["overview","queues"]}`)
		other.send(`{"want":["overview","queues"]}`)
		count := other.drain()
		time.Sleep(9 * time.Second)
		if n := s.viewers.Len(); n != 2 {
			t.Errorf("%d viewers after 9 s; want both", n)
		}
		for _, v := range s.viewers.All() {
			if pending := len(v.conn.Take()); pending > 2 {
				t.Errorf("%d frames wait for a viewer; want one a topic", pending)
			}
		}
		time.Sleep(4 * time.Second)
		if n := s.viewers.Len(); n != 1 {
			t.Errorf("%d viewers after 13 s; want the other one alone", n)
		}
		count()
		time.Sleep(10 * time.Second)
		if got := count()["overview"]; got < 4 {
			t.Errorf("the other page got %d overviews in 10 s; want one each 2 s", got)
		}
		_, _ = stalled.CloseNow(), other.CloseNow()
	})
}

// TestSilentPage: a page whose machine is gone is found by pings.
func TestSilentPage(t *testing.T) {
	t.Parallel()
	inBubble(t, tokens, roomy, func(s *site) {
		p := s.mustOpen(identity.Viewer)
		p.drain()
		s.net.Cut("r1")
		time.Sleep(pingInterval + readTimeout + closeTimeout + time.Second)
		if n := s.viewers.Len(); n != 0 {
			t.Errorf("%d viewers after the limit of silence; want none", n)
		}
		_ = p.CloseNow()
	})
}

// TestStop: pages are told that the replica goes, and it does not wait for those that do not hear.
func TestStop(t *testing.T) {
	t.Parallel()
	inBubble(t, tokens, roomy, func(s *site) {
		p, deaf := s.mustOpen(identity.Viewer), s.mustOpen(identity.Viewer)
		ended := make(chan websocket.StatusCode, 1)
		go func() { ended <- p.ended() }()
		began := time.Now()
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > closeTimeout+time.Second {
			t.Errorf("the stop took %s; want at most %s", took, closeTimeout)
		}
		if got := <-ended; got != websocket.StatusGoingAway {
			t.Errorf("the page's connection ends with %d; want %d", got, websocket.StatusGoingAway)
		}
		if _, resp, err := s.open(identity.Viewer); err == nil || resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("after the stop a page gets %v, %v; want 503", resp, err)
		}
		_ = deaf.CloseNow()
	})
}

// TestSnapshot: the same frames for pages without a WebSocket, and bounds as for those with one.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	inBubble(t, tokens, Config{MaxViewers: 1, MaxTenantViewers: 1}, func(s *site) {
		get := func(query string, role identity.Role) (int, []frame) {
			t.Helper()
			w := ask(s.Console, "GET", "/console/snapshot?"+query, "Authorization", "Bearer "+string(role))
			var answer struct{ Frames []frame }
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
				t.Fatalf("%s: %v; want frames", w.Body, err)
			}
			return w.Code, answer.Frames
		}
		code, frames := get("topic=queues&topic=nothing&topic=overview&topic=queues", identity.Viewer)
		if code != http.StatusOK || len(frames) != 4 || string(frames[0].Data) != "{}" || frames[1].Error == nil ||
			len(frames[2].Data) == 0 || frames[3].Seq != frames[0].Seq {
			t.Errorf("%d %+v; want the queues, a refusal, the overview, and the same queues", code, frames)
		}
		s.block(true)
		time.Sleep(time.Minute)
		if code, frames := get("topic=queues&topic=overview", identity.Viewer); code != http.StatusOK ||
			frames[0].Error == nil ||
			frames[0].Error.Code != freeslot.CodeUnavailable || frames[1].Error != nil {
			t.Errorf("in an outage %d %+v; want unavailable queues and the overview", code, frames)
		}
		for query, role := range map[string]identity.Role{
			"": identity.Viewer, strings.Repeat("topic=x&", maxWanted+1): identity.Viewer, "topic=queues": "nobody",
		} {
			if code, _ := get(query, role); code != http.StatusBadRequest && code != http.StatusUnauthorized {
				t.Errorf("%.20q for %s is answered %d; want a refusal", query, role, code)
			}
		}
		p := s.mustOpen(identity.Viewer)
		if code, _ := get("topic=queues", identity.Viewer); code != http.StatusTooManyRequests {
			t.Errorf("beyond the limit of viewers a snapshot is answered %d; want 429", code)
		}
		_ = p.CloseNow()
	})
}

// TestRightsEnd: a removed token ends its connections within two seconds, and an expired one in
// time. Others stay.
func TestRightsEnd(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	auth := func(t *testing.T) *identity.Authenticator {
		ends := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		writeText(t, file, tokenLine("stays", "")+tokenLine("goes", "")+tokenLine("ends", ", expires: "+ends))
		return fileTokens(t, file)
	}
	inBubble(t, auth, roomy, func(s *site) {
		ended := map[identity.Role]chan websocket.StatusCode{}
		for _, secret := range []identity.Role{"stays", "goes", "ends"} {
			p := s.mustOpen(secret)
			code := make(chan websocket.StatusCode, 1)
			ended[secret] = code
			go func() { code <- p.ended() }()
		}
		time.Sleep(time.Minute)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		writeText(t, file, strings.Replace(string(text), tokenLine("goes", ""), "", 1))
		removed := time.Now()
		if got := <-ended["goes"]; got != wire.CloseRights || time.Since(removed) > 2*time.Second {
			t.Errorf(
				"the removed token's page ends with %d after %s; want %d within 2s", got, time.Since(removed), wire.CloseRights,
			)
		}
		began := time.Now()
		if got := <-ended["ends"]; got != wire.CloseRights || time.Since(began) > time.Hour {
			t.Errorf("the expired token's page ends with %d after %s; want %d in time", got, time.Since(began), wire.CloseRights)
		}
		synctest.Wait()
		if n := s.viewers.Len(); n != 1 {
			t.Errorf("%d pages are left; want the one of the token that stays", n)
		}
	})
}

// tokenLine is the line of a viewer whose name is its secret.
func tokenLine(secret, more string) string {
	return fmt.Sprintf(
		"- {name: %s, role: viewer, tenant: acme, sha256: %x%s}\n", secret, sha256.Sum256([]byte(secret)), more,
	)
}

func writeText(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fileTokens follows the tokens of a file until the end of the test.
func fileTokens(t *testing.T, file string) *identity.Authenticator {
	t.Helper()
	a, err := identity.New(identity.Config{TokensFile: file, OpenTenant: "default", Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return a
}
