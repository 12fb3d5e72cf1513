package cell

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// testLink is the connection of this number of an agent, through a gateway that knows it by token.
func testLink(number int64, token string) Link {
	return Link{
		Connection: number, Stream: NodeStream, Session: fmt.Sprint("session-", number), Token: token, Replica: "replica-1", Version: "0.4.0",
		RoundTrip: 1500 * time.Microsecond,
	}
}

func mustEncode(t *testing.T, l Link) string {
	t.Helper()
	text, err := l.encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestLinkText: what is written is read again, and stands behind a time that readers of the time
// alone find.
func TestLinkText(t *testing.T) {
	t.Parallel()
	name := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,20}`)
	rapid.Check(t, func(t *rapid.T) {
		want := Link{
			Connection: rapid.Int64Range(1, maxConnection).Draw(t, "connection"), Stream: rapid.OneOf(rapid.Just(NodeStream), name).Draw(t, "stream"),
			Session: name.Draw(t, "session"), Token: name.Draw(t, "token"), Replica: name.Draw(t, "replica"),
			Version:   rapid.OneOf(rapid.Just(""), name).Draw(t, "version"),
			RoundTrip: time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "round trip")) * time.Microsecond,
		}
		text, err := want.encode()
		if err != nil {
			t.Fatal(err)
		}
		if heard, got := parseLoad("1700000000123 " + text); heard != 1700000000123 || got != want {
			t.Fatalf("%q is read as %d, %+v, expected %+v", text, heard, got, want)
		}
	})
	odd := testLink(1, "t")
	odd.Version, odd.RoundTrip = "1.2+ü \n"+strings.Repeat("x", 200), -time.Second
	if _, got := parseLoad("1700000000123 " + mustEncode(t, odd)); !strings.HasPrefix(got.Version, "1.2__") || got.RoundTrip != 0 {
		t.Errorf(`%+v; want strings.HasPrefix(got.Version, "1.2__"), got.RoundTrip == 0`, got)
	}
}

func TestLoadsOfOthers(t *testing.T) {
	t.Parallel()
	for load, want := range map[string]int64{
		"": 0, "{}": 0, "170000000012": 0, "17000000001x3": 0, "-170000000012": 0, "+170000000012": 0,
		"1700000000123": 1700000000123, "1700000000123 {}": 1700000000123, "1700000000123 1 - s t r v": 1700000000123,
		"1700000000123 0 - s t r v 1": 1700000000123, "1700000000123 x - s t r v 1": 1700000000123, "1700000000123 1 - s t r v 1 2": 1700000000123,
	} {
		if heard, link := parseLoad(load); heard != want || link != (Link{}) {
			t.Errorf("%q is read as %d, %+v", load, heard, link)
		}
	}
}

func TestLinkRefused(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(l *Link){
		"connection": func(l *Link) { l.Connection = 0 },
		"stream":     func(l *Link) { l.Stream = "" },
		"session":    func(l *Link) { l.Session = "a b" },
		"token":      func(l *Link) { l.Token = "-" },
		"replica":    func(l *Link) { l.Replica = "" },
	} {
		l := testLink(1, "t")
		change(&l)
		_, err := l.encode()
		wantErr(t, err, freeslot.CodeInvalidArgument)
		if !strings.Contains(fmt.Sprint(err), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
	l := testLink(maxConnection+1, "t")
	_, err := l.encode()
	wantErr(t, err, freeslot.CodeInvalidArgument)
}

// TestLink: what a gateway finds of a node before it lets its agent in.
func TestLink(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		find := func(what string, want NodeLink) {
			t.Helper()
			got, err := r.Link(r.ctx(), "n1")
			if d := cmp.Diff(want, got); err != nil || d != "" {
				t.Errorf("%s: %v (-want +got):\n%s", what, err, d)
			}
		}
		find("no record", NodeLink{})
		epoch := r.register(testNode("n1", 1))
		find("registered, never heard", NodeLink{Epoch: epoch, Alive: true})
		r.do("HSET", r.l.Node("n1"), "registered_at_ms", "1700000000123")
		find("registered long ago, never heard", NodeLink{Epoch: epoch})
		r.beat("n1", epoch, "")
		find("heard", NodeLink{Epoch: epoch, Alive: true})
		link := testLink(7, "t")
		r.silence("n1")
		if _, err := r.HeartbeatLinked(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch}, link); err != nil {
			t.Fatal(err)
		}
		find("heard through a gateway", NodeLink{Epoch: epoch, Link: link, Alive: true})
		r.do("SET", r.l.Load("n1"), "1700000000123 "+mustEncode(t, link))
		find("silent", NodeLink{Epoch: epoch, Link: link})
		r.do("SET", r.l.Load("n1"), "{}")
		find("an operator's load", NodeLink{Epoch: epoch})
		r.do("DEL", r.l.Load("n1"))
		r.do("HSET", r.l.Load("n1"), "a", "b")
		find("a load of another type", NodeLink{Epoch: epoch})
		r.do("DEL", r.l.Load("n1"), r.l.Node("n1"))
		r.do("SET", r.l.Node("n1"), "x")
		if got, err := r.Link(r.ctx(), "n1"); err == nil {
			t.Errorf("a profile of another type: %+v", got)
		}
		_, err := r.Link(r.ctx(), "a b")
		wantErr(t, err, freeslot.CodeInvalidArgument)
	})
}

// TestLinks: an operator sees the nodes that are behind gateways, whatever the others are.
func TestLinks(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		s, want, nodes := newSet(t, redis.Prefix(t), 4, redis), make(map[string]Link), []string{"nobody", "imported"}
		for i := range 12 {
			node, epoch := fmt.Sprint("n", i), NewEpoch()
			c := s.OfNode(node)
			_, err := c.Register(t.Context(), testNode(node, 1), epoch)
			must(t, err)
			hb := Heartbeat{Node: node, Epoch: epoch}
			switch {
			case i%3 > 0:
				want[node] = testLink(int64(i), "t")
				_, err = c.HeartbeatLinked(t.Context(), hb, want[node])
			default:
				_, err = c.Heartbeat(t.Context(), hb)
			}
			must(t, err)
			nodes = append(nodes, node)
		}
		if d := cmp.Diff(want, s.Links(t.Context(), nodes)); d != "" {
			t.Errorf("links (-want +got):\n%s", d)
		}
		if got := s.Links(t.Context(), nil); len(got) != 0 {
			t.Errorf("links of no nodes: %v", got)
		}
	})
}

// TestLinksOfCellsThatAnswer: a cell that does not answer costs the others' nodes nothing.
func TestLinksOfCellsThatAnswer(t *testing.T) {
	t.Parallel()
	first, second := redistest.New(t), redistest.New(t)
	s := newSet(t, first.Prefix(t), 2, first.Target, second.Target)
	want, nodes := make(map[string]Link), []string(nil)
	for i := range 8 {
		node, epoch, link := fmt.Sprint("n", i), NewEpoch(), testLink(1, "t")
		_, err := s.OfNode(node).RegisterLinked(t.Context(), testNode(node, 1), epoch, link, "")
		must(t, err)
		if nodes = append(nodes, node); s.OfNode(node).Index() == 0 {
			want[node] = link
		}
	}
	second.Kill()
	if d := cmp.Diff(want, s.withTimeout(t, 300*time.Millisecond).Links(t.Context(), nodes)); d != "" || len(want) == len(nodes) {
		t.Errorf("links (-want +got):\n%s", d)
	}
}
