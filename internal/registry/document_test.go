package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/redis/acl"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

func (r *rig) store() *Store { return &Store{r.conn} }

// write puts a version, and has it be the one expected.
func (r *rig) write(name string, seen int64, content string, want int64) {
	r.t.Helper()
	got, err := r.store().PutDocument(bounded(r.t), name, seen, content, "ann", "why")
	if err != nil || got != want {
		r.t.Fatalf("version %d, %v, expected %d", got, err, want)
	}
}

func refused(t testing.TB, err error, code freeslot.Code, text string) {
	t.Helper()
	if freeslot.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		t.Fatalf("%v, expected %s with %q", err, code, text)
	}
}

func (r *rig) versions(name string) (out []int64) {
	r.t.Helper()
	found, err := r.store().DocumentHistory(bounded(r.t), name)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, v := range found {
		out = append(out, v.Version)
	}
	return out
}

// TestDocument: each code of both scripts, and what they leave.
func TestDocument(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		s, ctx := r.store(), bounded(t)
		heard := r.hear(r.keys("limits").configChange("limits"))
		_, err := s.Document(ctx, "limits", 0)
		refused(t, err, freeslot.CodeNotFound, "limits")
		_, err = s.DocumentHistory(ctx, "limits")
		refused(t, err, freeslot.CodeNotFound, "limits")
		refused(t, s.DeleteDocument(ctx, "limits", 0), freeslot.CodeNotFound, "limits") // {4}
		_, err = s.PutDocument(ctx, "limits", 3, "a", "", "")
		refused(t, err, freeslot.CodeConflict, "does not exist") // {3}

		r.write("limits", 0, "a", 1) // {1}
		receive(t, heard)
		r.unchanged("the same content", func() { r.write("limits", 0, "a", 1) }) // {2}
		_, err = s.PutDocument(ctx, "limits", 0, "b", "", "")
		refused(t, err, freeslot.CodeConflict, "version 1")
		r.write("limits", 1, "b", 2)
		receive(t, heard)
		got, err := s.RollbackDocument(ctx, "limits", 2, 1, "bob", "back")
		if err != nil || got != 3 {
			t.Fatal(got, err)
		}
		d, err := s.Document(ctx, "limits", 0)
		if err != nil || d.Content != "a" || d.Version != 3 || d.Restores != 1 || d.Author != "bob" || d.Note != "back" || d.At.IsZero() || d.Bytes != 1 {
			t.Fatalf(`%+v, %v; want no error, d.Content == "a", d.Version == 3, d.Restores == 1, d.Author == "bob", d.Note == "back", not d.At.IsZero(), d.Bytes == 1`, d, err)
		}
		old, err := s.Document(ctx, "limits", 3)
		if err != nil || old != d {
			t.Fatalf("%+v, expected %+v, %v", old, d, err)
		}
		_, err = s.Document(ctx, "limits", 9)
		refused(t, err, freeslot.CodeNotFound, "no version 9")
		if all, err := s.Documents(ctx, "", 10); err != nil || len(all) != 1 || all[0].Name != "limits" || all[0].Version != 3 {
			t.Fatal(all, err)
		}

		refused(t, s.DeleteDocument(ctx, "limits", 2), freeslot.CodeConflict, "version 3")
		if err := s.DeleteDocument(ctx, "limits", 3); err != nil {
			t.Fatal(err)
		}
		if all, err := s.Documents(ctx, "", 10); err != nil || len(all) > 0 {
			t.Fatal(all, err)
		}
		// A writer who saw the old one does not overwrite the new one.
		r.write("limits", 0, "new", 4)
		_, err = s.PutDocument(ctx, "limits", 3, "c", "", "")
		refused(t, err, freeslot.CodeConflict, "version 4")
		if ttl := r.do("PTTL", r.keys("limits").config("limits")); ttl.String() == "" {
			t.Fatal("no answer")
		} else if n, _ := ttl.AsInt64(); n != -1 {
			t.Fatalf("the new document ends in %d ms", n)
		}
		// A record that an operator removed goes on behind the history.
		r.do("DEL", r.keys("limits").config("limits"))
		r.write("limits", 0, "again", 5)
	})
}

// TestDocumentInput: every mistake is named, and reaches no key.
func TestDocumentInput(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.unchanged("bad input", func() {
			_, err := r.store().PutDocument(bounded(t), "a b", -1, "\xff", "x\n", strings.Repeat("n", 257))
			var fields []string
			if e := new(freeslot.Error); errors.As(err, &e) {
				for _, f := range e.Errors {
					fields = append(fields, f.Field)
				}
			}
			if !slices.Equal(fields, []string{"name", "version", "content", "author", "note"}) {
				t.Fatal(fields, err)
			}
			_, err = r.store().PutDocument(bounded(t), "a", 0, strings.Repeat("x", MaxDocument+1), "", "")
			refused(t, err, freeslot.CodeInvalidArgument, "content")
			_, err = r.store().RollbackDocument(bounded(t), "a", 0, 0, "", "")
			refused(t, err, freeslot.CodeInvalidArgument, "restore")
		})
	})
}

// TestDocumentRacers: of many that saw one version one wins.
func TestDocumentRacers(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		for round := range int64(5) {
			var wins atomic.Int64
			var racers sync.WaitGroup
			for i := range 16 {
				racers.Go(func() {
					_, err := r.store().PutDocument(bounded(t), "one", round, fmt.Sprint(round, " ", i), "", "")
					if err == nil {
						wins.Add(1)
					} else if freeslot.CodeOf(err) != freeslot.CodeConflict {
						t.Error(err)
					}
				})
			}
			racers.Wait()
			if wins.Load() != 1 {
				t.Fatalf("%d won, expected 1", wins.Load())
			}
		}
	})
}

// TestDocumentTrim: the history keeps 100 versions and 10 MiB.
func TestDocumentTrim(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		for v := range int64(105) {
			r.write("many", v, fmt.Sprint(v), v+1)
		}
		if got := r.versions("many"); len(got) != 100 || got[0] != 105 || got[99] != 6 {
			t.Fatal(got)
		}
		for v := range int64(12) {
			r.write("large", v, strings.Repeat(string(rune('a'+v)), MaxDocument), v+1)
		}
		if got := r.versions("large"); len(got) != 10 || got[0] != 12 || got[9] != 3 {
			t.Fatal(got)
		}
		if n := len(r.hash(r.keys("large").configHistory("large"))); n != 20 {
			t.Fatalf("%d fields, expected 20", n)
		}
	})
}

// TestDocumentMemory: without memory a write is refused and changes nothing, and reads go on.
func TestDocumentMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t).Target)
	r.write("a", 0, "one", 1)
	r.do("CONFIG", "SET", "maxmemory", "1")
	_, err := r.store().PutDocument(bounded(t), "a", 1, "two", "", "")
	refused(t, err, freeslot.CodeOverloaded, "memory")
	if d, err := r.store().Document(bounded(t), "a", 0); err != nil || d.Content != "one" || d.Version != 1 {
		t.Fatalf(`%+v, %v; want no error, d.Content == "one", d.Version == 1`, d, err)
	}
	if err := r.store().DeleteDocument(bounded(t), "a", 1); err != nil {
		t.Fatal(err) // that frees memory
	}
	r.do("CONFIG", "SET", "maxmemory", "0")
}

// watch collects what a watcher gets.
func watch(t testing.TB, c *Consumer, name string) (got chan Document, stop func()) {
	t.Helper()
	got = make(chan Document, 64)
	stop, err := c.WatchDocument(name, func(d Document) { got <- d })
	if err != nil {
		t.Fatal(err)
	}
	return got, stop
}

func next(t testing.TB, got chan Document, version int64, content string) {
	t.Helper()
	if d := receive(t, got); d.Version != version || d.Content != content {
		t.Fatalf("%+v, expected version %d with %q", d, version, content)
	}
}

// TestDocumentWatch: watchers see what is there, each change and the end, and a lost message heals.
func TestDocumentWatch(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		c := newConsumer(t, r.redis, r.prefix, quickLooks)
		got, stop := watch(t, c, "w")
		next(t, got, 0, "")
		r.write("w", 0, "a", 1)
		next(t, got, 1, "a")
		second, stopSecond := watch(t, c, "w")
		next(t, second, 1, "a")
		stopSecond()
		r.write("w", 1, "b", 2)
		next(t, got, 2, "b")
		// No message: as if it had been lost.
		r.do("HSET", r.keys("w").config("w"), "version", "3", "content", "c", "at", "1")
		next(t, got, 3, "c")
		if err := r.store().DeleteDocument(bounded(t), "w", 3); err != nil {
			t.Fatal(err)
		}
		next(t, got, 0, "")
		stop()
		r.write("w", 0, "d", 4)
		d, err := c.AwaitDocument(bounded(t), "w", 3)
		if err != nil || d.Version != 4 {
			t.Fatal(d, err)
		}
		if d, err = c.Document(bounded(t), "w"); err != nil || d.Content != "d" {
			t.Fatal(d, err)
		}
		if len(got)+len(second) > 0 {
			t.Fatal("a watcher was called after its stop")
		}
		c.documents.mu.Lock()
		defer c.documents.mu.Unlock()
		if n := len(c.documents.watched) + len(c.documents.byChannel); n > 0 {
			t.Fatalf("%d left, expected none", n)
		}
	})
}

// TestDocumentWatchMessage: changes come by message, as there are no looks.
func TestDocumentWatchMessage(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		c := newConsumer(t, r.redis, r.prefix, func(o *ConsumerOptions) { o.look = time.Hour })
		got, _ := watch(t, c, "w")
		next(t, got, 0, "")
		await(t, "the subscription", func() bool { return r.subscribers(r.keys("w").configChange("w")) == 1 })
		for v := range int64(10) {
			r.write("w", v, fmt.Sprint(v), v+1)
			next(t, got, v+1, fmt.Sprint(v))
		}
	})
}

// TestDocumentWatchRestart: a watcher outlives Redis and the loss of its data.
func TestDocumentWatchRestart(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	r := newRig(t, redis.Target)
	r.write("w", 0, "a", 1)
	c := newConsumer(t, r.redis, r.prefix, quickLooks)
	got, _ := watch(t, c, "w")
	next(t, got, 1, "a")
	redis.Kill()
	redis.Restart()
	next(t, got, 0, "")
	if err := redistest.Await(func(context.Context) bool {
		_, err := r.store().PutDocument(bounded(t), "w", 0, "b", "", "")
		return err == nil
	}); err != nil {
		t.Fatal(err)
	}
	next(t, got, 1, "b")
}

// TestDocumentRights: the role registry reads and watches documents, and writes none by any
// command.
func TestDocumentRights(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	rights, err := acl.Of(script.RoleRegistry, "", []script.Layout{{Prefix: r.prefix}}, Access)
	if err != nil {
		t.Fatal(err)
	}
	user := acl.User{Name: "reader", Rights: rights, Password: "secret"}
	r.do(append([]string{"ACL", "SETUSER", user.Name}, user.Rules()...)...)
	c := newConsumer(t, r.redis, r.prefix, func(o *ConsumerOptions) { o.RedisURL = "redis://reader:secret@" + server.Addrs()[0] })
	got, _ := watch(t, c, "w")
	next(t, got, 0, "")
	r.write("w", 0, "a", 1)
	next(t, got, 1, "a")
	if d, err := c.Document(bounded(t), "w"); err != nil || d.Content != "a" {
		t.Error(d, err)
	}
	r.unchanged("the role registry", func() {
		if _, err := c.PutDocument(bounded(t), "w", 1, "b", "", ""); !script.IsRefused(err) {
			t.Error(err)
		}
		commands := c.redis.on.Load().commands
		if err := commands.Do(bounded(t), commands.B().Hset().Key(r.keys("w").config("w")).FieldValue().FieldValue("content", "b").Build()).Error(); !script.IsRefused(err) {
			t.Error(err)
		}
	})
}

// TestDocumentClosed: calls before the start and after the end say so.
func TestDocumentClosed(t *testing.T) {
	t.Parallel()
	c, err := NewConsumer(ConsumerOptions{RedisURL: "redis://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Document(bounded(t), "a"); !errors.Is(err, ErrNotStarted) {
		t.Error(err)
	}
	if _, err := c.WatchDocument("a b", func(Document) {}); freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
		t.Error(err)
	}
	if _, err := c.WatchDocument("a", func(Document) { t.Error("called without Redis") }); err != nil {
		t.Error(err)
	}
	if err := c.Stop(bounded(t)); err != nil {
		t.Error(err)
	}
	if _, err := c.WatchDocument("a", func(Document) {}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// subscribers counts those of a channel, on the server of its slot.
func (r *rig) subscribers(channel string) (n int64) {
	r.t.Helper()
	kind := "NUMSUB"
	if r.redis.IsCluster() {
		kind = "SHARDNUMSUB"
	}
	for _, node := range r.client.Nodes() {
		counts, err := node.Do(bounded(r.t), node.B().Arbitrary("PUBSUB", kind, channel).Build()).ToArray()
		if err != nil || len(counts) != 2 {
			r.t.Fatal(counts, err)
		}
		one, err := counts[1].AsInt64()
		if err != nil {
			r.t.Fatal(err)
		}
		n += one
	}
	return n
}
