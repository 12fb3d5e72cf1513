package reader

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/form"
	"github.com/freeslot/freeslot/internal/namelist/version"
)

const (
	// knownBuilds bounds the builds that a replica remembers.
	knownBuilds = 1000
	// loadsAtOnce bounds the blocks and whole versions that are read, or written to clients, at the
	// same time: each may have some megabytes.
	loadsAtOnce = 8
	// writeTime is how long a client may take to read one block or whole version.
	writeTime = 10 * time.Second
)

// Config holds what a reader works with.
type Config struct {
	// Subscriptions is a client for subscriptions to the control server. The caller keeps and
	// closes it.
	Subscriptions rueidis.Client
	// Server opens a list server by its name; the empty name is the control server.
	Server func(ctx context.Context, name string) (*version.Segments, error)
	Log    *zap.Logger
}

// Reader answers readers over HTTP. It is safe for concurrent use.
type Reader struct {
	cfg     Config
	control *namelist.Control
	hub     *hub
	loads   chan struct{} // holds a token for each load, until its answer is written

	cancel context.CancelFunc
	loops  sync.WaitGroup

	mu     sync.Mutex
	builds map[buildID]*known // guarded by mu
}

// buildID is a build as requests name it.
type buildID struct {
	list, build string
	number      int64
}

// known is the part of a build that does not change.
type known struct {
	version namelist.Version
	form    form.Form
	seed    uint64
}

// New makes a reader. It does no I/O.
func New(cfg Config, control *namelist.Control) *Reader {
	return &Reader{
		cfg: cfg, control: control, loads: make(chan struct{}, loadsAtOnce), builds: make(map[buildID]*known),
		cancel: func() {},
		hub: &hub{
			poll: control.Look, lists: make(map[string]*watched),
			follow: func(list string, heard func(namelist.Event)) (stop func()) {
				return control.Follow(cfg.Subscriptions, list, cfg.Log, heard)
			},
		},
	}
}

// Start starts the looks at the lists that requests wait for. Call it once.
func (r *Reader) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.loops.Go(func() { r.hub.loop(ctx) })
	return nil
}

// Stop ends the looks and the subscriptions.
func (r *Reader) Stop(context.Context) error {
	r.cancel()
	r.loops.Wait()
	return nil
}

// errMoved returns the error for a build that is not the version's, or has gone.
func errMoved(id buildID) error {
	return &freeslot.Error{Code: freeslot.CodeConflict, Field: "build", Message: fmt.Sprintf(
		"build %.64q of version %d of list %s has moved or gone: read the head again", id.build, id.number, id.list)}
}

// build returns what is known of a build. It remembers what it has found, so that checks go on
// while the control server is away. again makes it look even for a remembered build.
func (r *Reader) build(ctx context.Context, id buildID, again bool) (*known, error) {
	r.mu.Lock()
	k := r.builds[id]
	r.mu.Unlock()
	if k != nil && !again {
		return k, nil
	}
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	if err := namelist.ValidateName("list", id.list); err != nil {
		return nil, err
	}
	// If the list was made again meanwhile, the seed would be another list's.
	before, err := r.control.Head(ctx, id.list)
	var v namelist.Version
	if err == nil {
		v, err = r.control.Version(ctx, id.list, id.number)
	}
	var h namelist.Head
	if err == nil {
		h, err = r.control.Head(ctx, id.list)
	}
	if freeslot.CodeOf(err) == freeslot.CodeNotFound || err == nil && (v.Build != id.build || h.Birth != before.Birth) {
		err = errMoved(id)
	}
	if err != nil {
		return nil, err
	}
	k = &known{version: v, form: h.Form, seed: h.Seed}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.builds) >= knownBuilds {
		clear(r.builds) // builds in use come back
	}
	r.builds[id] = k
	return k, nil
}

// check looks up ids in the segments of a build.
func (r *Reader) check(ctx context.Context, id buildID, ids []string) ([]namelist.ListFound, error) {
	k, err := r.build(ctx, id, false)
	if err != nil {
		return nil, err
	}
	server, err := r.cfg.Server(ctx, k.version.Server)
	if err != nil {
		return nil, err
	}
	out := make([]namelist.ListFound, len(ids))
	var at []int
	var clean []string
	var hashes []uint64
	for i, id := range ids {
		if id, err := k.form.Clean(id); err == nil {
			at, clean, hashes = append(at, i), append(clean, id), append(hashes, form.Sum(k.seed, id))
		} else {
			out[i].Why = namelist.WhyInvalid
		}
	}
	missing := false
	for i, f := range server.Ask(ctx, id.list, &k.version, clean, hashes) {
		out[at[i]] = f
		missing = missing || f.Why == namelist.WhySegment
	}
	if missing { // lost, or the version has gone
		if _, err := r.build(ctx, id, true); freeslot.CodeOf(err) == freeslot.CodeConflict ||
			freeslot.CodeOf(err) == freeslot.CodeNotFound {
			return nil, errMoved(id)
		}
	}
	return out, nil
}

// slot counts a request among those that may load at the same time.
type slot struct {
	control *http.ResponseController
	taken   bool
}

type slotKey struct{}

// hold gives a request a slot, and keeps the slot until the answer is written, because what was
// loaded stays in memory until then.
func (r *Reader) hold(ctx huma.Context, next func(huma.Context)) {
	_, w := humago.Unwrap(ctx)
	s := &slot{control: http.NewResponseController(w)}
	defer func() {
		if s.taken {
			<-r.loads
		}
	}()
	next(huma.WithValue(ctx, slotKey{}, s))
}

// load calls do with a build and its server, while only a few others load. Its request must come
// through hold.
func load[T any](
	ctx context.Context, r *Reader, id buildID,
	do func(ctx context.Context, k *known, server *version.Segments) (T, error),
) (out T, err error) {
	k, err := r.build(ctx, id, false)
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*api.CallTimeout)
	defer cancel()
	select {
	case r.loads <- struct{}{}:
		s := ctx.Value(slotKey{}).(*slot)
		s.taken = true
		// Slow clients must not keep others out. The writer of httptest has no deadlines.
		_ = s.control.SetWriteDeadline(time.Now().Add(2*api.CallTimeout + writeTime))
	case <-ctx.Done():
		return out, ctx.Err()
	}
	server, err := r.cfg.Server(ctx, k.version.Server)
	if err != nil {
		return out, err
	}
	return do(ctx, k, server)
}
