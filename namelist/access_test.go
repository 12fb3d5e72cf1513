package namelist

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	lists "github.com/freeslot/freeslot/internal/namelist"
	segments "github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/redis/acl"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// allow makes a user for readers of lists, and returns its name and the URL to connect as it.
func (r *rig) allow(redis *redistest.Target, names ...string) (user, url string) {
	r.t.Helper()
	var rights acl.Rights
	for _, name := range names {
		more, err := acl.Of(script.RoleListReader, name, []script.Layout{r.Layout()}, lists.Access, segments.Access)
		r.must(err)
		rights = more.With(rights)
	}
	user = "reader-" + r.prefix
	for _, addr := range redis.Addrs() {
		args := append([]string{"ACL", "SETUSER", user, "on", ">secret"}, rights.Rules()...)
		r.must(redistest.Ask(bounded(r.t), addr, args...).Error())
	}
	return user, strings.Replace(redis.AdminURL(), "redis://", "redis://"+user+":secret@", 1)
}

// A reader of two lists answers from them, and knows nothing of a third one. It says so, with what
// its user lacks.
func TestReaderOfGivenLists(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		for _, list := range []string{"vip", "vip2", "deny"} {
			r.create(list, lists.Spec{})
			r.publish(list, entriesOf("a1", "a2"))
		}
		user, url := r.allow(redis, "vip", "deny")
		c := r.open(func(cfg *Config) { cfg.RedisURL = url })
		for _, list := range []string{"vip", "deny"} {
			l := c.List(list)
			r.ready(l)
			want(t, l.Check(bounded(t), "a1"), Yes, SourceRedis, ReasonNone)
			r.awaitReport(list, l.Status().Version, l.Status().Version)
			revision := r.edit(list, add("b1"))
			r.await(l, "the edit", func(s Status) bool { return s.Revision >= revision })
		}
		other := c.List("vip2")
		var failure error
		r.must(redistest.Await(func(context.Context) bool { failure = c.failure(); return failure != nil }))
		want(t, other.Peek("a1"), Unknown, SourceNone, ReasonNotLoaded)
		r.must(redistest.Await(func(context.Context) bool { return c.failure() == nil })) // the other lists are heard of
		ctx, cancel := context.WithCancel(bounded(t))
		cancel()
		ready := other.WaitReady(ctx)
		on, err := openRedis(bounded(t), Config{RedisURL: url, KeyPrefix: "strange"}.withDefaults())
		r.must(err)
		t.Cleanup(on.close)
		_, _, _, look := on.poll(bounded(t), []string{"vip", "deny"}, false)
		advice := fmt.Sprintf("schedctl acl --role list-reader --list vip2 --user %s --key-prefix %s --add", user, r.prefix)
		for err, advice := range map[error]string{
			failure: advice, ready: advice,
			look: fmt.Sprintf("schedctl acl --role list-reader --list vip --list deny --user %s --key-prefix strange --add", user),
		} {
			if err == nil || !strings.Contains(err.Error(), advice) {
				t.Errorf("%v, expected %s", err, advice)
			}
		}
	})
}

// A reader of one list reads no other one, also none whose name begins the same, and changes nothing
// but reports.
func TestReaderChangesNothing(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	r := newRig(t, redis)
	user, _ := r.allow(redis, "vip")
	c := redis.Client(t, func(o *rueidis.ClientOption) {
		o.Username, o.Password, o.ClientSetInfo = user, "secret", rueidis.DisableClientSetInfo
	})
	segment := func(list string) string { return lists.SegmentKey(r.prefix, list, 1, 0) }
	key := func(kind, list string) string { return r.Layout().Key(kind, list) }
	for _, test := range []struct {
		allowed bool
		args    []string
	}{
		{true, []string{"HMGET", segment("vip"), "", "a"}},
		{true, []string{"HGETALL", key("lists:record", "vip")}},
		{true, []string{"HGETALL", key("lists:index", "")}},
		{true, []string{"HSET", key("lists:clients", "vip"), "c", "x"}},
		{true, []string{"EVAL_RO", "return redis.call('HGETALL', KEYS[1])", "1", segment("vip")}},
		{false, []string{"HMGET", segment("vip2"), "", "a"}},
		{false, []string{"HMGET", segment("deny"), "", "a"}},
		{false, []string{"GET", lists.BlockKey(r.prefix, "deny", 1, 0)}},
		{false, []string{"HGETALL", key("lists:record", "vip2")}},
		{false, []string{"HGETALL", key("lists:versions", "deny")}},
		{false, []string{"XRANGE", key("lists:edits", "deny"), "-", "+"}},
		{false, []string{"HGETALL", key("lists:clients", "deny")}},
		{false, []string{"EVAL", "return redis.call('HGETALL', ARGV[1])", "0", segment("deny")}},
		{false, []string{"HSET", segment("vip"), "b", ""}},
		{false, []string{"HSET", key("lists:record", "vip"), "serving", "1"}},
		{false, []string{"HSET", key("lists:index", ""), "vip", "x"}},
		{false, []string{"HSET", key("lists:servers", ""), "data", "{}"}},
		{false, []string{"EVAL", "return redis.call('HSET', ARGV[1], 'b', '')", "0", segment("vip")}},
		{false, []string{"DEL", segment("vip")}},
		{false, []string{"DEL", key("lists:clients", "vip")}},
		{false, []string{"PEXPIRE", segment("vip"), "1"}},
		{false, []string{"PUBLISH", lists.Channel(r.Layout(), "vip"), "{}"}},
		{false, []string{"SCAN", "0"}},
		{false, []string{"FLUSHALL"}},
	} {
		err := c.Do(bounded(t), c.B().Arbitrary(test.args...).Build()).Error()
		// Of a command in a script Redis says it in other words.
		denied := err != nil && (strings.Contains(err.Error(), "NOPERM") || strings.Contains(err.Error(), "The user executing the script can't"))
		if denied == test.allowed {
			t.Errorf("%q: allowed is %v, want %v: %v", test.args, !denied, test.allowed, err)
		}
	}
	hear := c.B().Subscribe().Channel(lists.Channel(r.Layout(), "deny")).Build()
	if err := c.Receive(bounded(t), hear, func(rueidis.PubSubMessage) {}); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("subscribe: %v", err)
	}
}
