package script

import (
	"context"
	"embed"
	"io/fs"
	"testing"

	"github.com/redis/rueidis"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// patience bounds a single call.
const patience = waittest.Limit

func TestMain(m *testing.M) { redistest.Main(m) }

//go:embed testdata
var testdata embed.FS

// lists are the scripts of a feature as others have theirs.
var lists = func() Set {
	files, err := fs.Sub(testdata, "testdata")
	if err != nil {
		panic(err)
	}
	return MustLoad(files)
}()

// rig is a runner with keys of its own, and a client beside it that shows what is really in Redis.
type rig struct {
	*Runner
	t   *testing.T
	raw rueidis.Client
	key string // of a list
}

func newRig(t *testing.T, redis *redistest.Target, change ...func(*Config)) *rig {
	t.Helper()
	cfg := Config{Layout: Layouts(redis.Prefix(t), 1, redis.IsCluster())[0], CallTimeout: patience}
	for _, f := range change {
		f(&cfg)
	}
	r := &rig{Runner: NewRunner(cfg, redis.Client(t), zaptest.NewLogger(t), nil), t: t, raw: redis.Client(t)}
	r.Add(lists)
	r.key = cfg.Layout.Key("list", "a")
	return r
}

func (r *rig) ctx() context.Context { return r.t.Context() }

// appends returns the length of the list behind values.
func appends(ctx context.Context, r *Runner, key string, values ...string) (int64, error) {
	reply, err := r.Call(ctx, lists["append"], []string{key}, values).AsIntSlice()
	if err != nil {
		return 0, err
	}
	return reply[1], nil
}

func (r *rig) values() []string {
	r.t.Helper()
	values, err := r.raw.Do(context.WithoutCancel(r.ctx()), r.raw.B().Lrange().Key(r.key).Start(0).Stop(-1).Build()).AsStrSlice()
	if err != nil {
		r.t.Fatal(err)
	}
	return values
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	return waittest.Receive(t, "the next signal", c)
}
