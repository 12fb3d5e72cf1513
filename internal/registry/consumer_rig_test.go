package registry

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"

	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func consumerContext(t testing.TB) context.Context {
	t.Helper()
	return waittest.Context(t)
}

// writer writes to a registry as providers do.
type writer struct {
	t    testing.TB
	conn *conn
}

func newWriter(t testing.TB, redis *redistest.Target, prefix string) *writer {
	t.Helper()
	var c *conn
	var closeAll func()
	waittest.Succeeds(t, "a connection", func() (err error) {
		c, closeAll, err = dial(consumerContext(t), redisclient.Config{URL: redis.URL()}, prefix, zap.NewNop(), nil)
		return err
	})
	t.Cleanup(closeAll)
	return &writer{t: t, conn: c}
}

// register registers instances with one epoch, all alike but for the id. A holder is replaced.
func (w *writer) register(service, epoch string, ids []string, change ...func(*Registration)) {
	w.t.Helper()
	for len(ids) > 0 {
		n := min(len(ids), callItems)
		items := make([]registerItem, n)
		for i, id := range ids[:n] {
			r := Registration{Service: service, ID: id, Host: "10.0.0.1", Port: 80}
			for _, c := range change {
				c(&r)
			}
			fields, _ := r.WithDefaults().fields()
			items[i] = registerItem{id: id, epoch: epoch, fields: fields}
		}
		for again := true; again; {
			var answers []answer
			waittest.Succeeds(w.t, "a registration", func() (err error) { // again, if a busy machine breaks the call off
				answers, err = w.conn.register(consumerContext(w.t), service, false, items)
				return err
			})
			again = false
			for i, a := range answers {
				switch a.code {
				case codeDone, codeSame:
				case codeHolder:
					items[i].replaces, again = a.holder.Epoch, true
				default:
					w.t.Fatalf("register %s: code %d", ids[i], a.code)
				}
			}
		}
		ids = ids[n:]
	}
}

func (w *writer) deregister(service string, ids ...string) {
	w.t.Helper()
	for len(ids) > 0 {
		n := min(len(ids), callItems)
		items := make([]deregisterItem, n)
		for i, id := range ids[:n] {
			items[i] = deregisterItem{id: id}
		}
		waittest.Succeeds(w.t, "a deregistration", func() error {
			_, err := w.conn.deregister(consumerContext(w.t), service, reasonDeregistered, items)
			return err
		})
		ids = ids[n:]
	}
}

func newConsumer(t testing.TB, redis *redistest.Target, prefix string, change ...func(*ConsumerOptions)) *Consumer {
	t.Helper()
	opts := ConsumerOptions{RedisURL: redis.URL(), KeyPrefix: prefix}
	for _, c := range change {
		c(&opts)
	}
	c, err := NewConsumer(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(consumerContext(t)); err != nil {
			t.Error(err)
		}
	})
	if err := c.Start(consumerContext(t)); err != nil {
		t.Fatal(err)
	}
	return c
}

// seen has the lists that a consumer gave out, as text.
type seen struct {
	t     testing.TB
	lists chan *List
}

func subscribe(t testing.TB, c *Consumer, service string) *seen {
	t.Helper()
	s := &seen{t: t, lists: make(chan *List, 100_000)}
	if _, err := c.Subscribe(service, func(l *List) { s.lists <- l }); err != nil {
		t.Fatal(err)
	}
	return s
}

// until waits for a list that is as wanted.
func (s *seen) until(what string, is func(*List) bool) *List {
	s.t.Helper()
	last := "none"
	for {
		l := waittest.Receive(s.t, "a list that is "+what, s.lists, func() any { return last })
		if last = describe(l); is(l) {
			return l
		}
	}
}

// untilText waits for a list by its description.
func (s *seen) untilText(want string) *List {
	s.t.Helper()
	return s.until(want, func(l *List) bool { return describe(l) == want })
}

// describe is state, why of an empty one, and ids with marks.
func describe(l *List) string {
	var b strings.Builder
	b.WriteString(string(l.State))
	if l.State == StateEmpty {
		fmt.Fprintf(&b, " (%s)", l.Why)
	}
	for i, in := range l.Instances {
		if i == 10 {
			fmt.Fprintf(&b, " and %d more", len(l.Instances)-i)
			break
		}
		b.WriteString(" " + in.ID)
		for mark, is := range map[string]bool{"!late": in.Late} {
			if is {
				b.WriteString(mark)
			}
		}
		if in.Unconfirmed {
			b.WriteString("?")
		}
	}
	return b.String()
}

func ids(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("i%06d", i)
	}
	return out
}
