package tokenfile

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"
)

// look is how often the file is read. A change takes effect once two reads have found the same: a
// single read may find a half-written file, and would end the sessions of the other half.
const look = 500 * time.Millisecond

// maxTold bounds what Problems returns.
const maxTold = 100

// Head holds what every token has.
type Head struct {
	// Name is the owner. Several tokens may have one name, so that a secret can be changed.
	Name    string
	Digest  [sha256.Size]byte // of the secret
	Expires time.Time         // zero: never
}

func (h *Head) expired(now time.Time) bool { return !h.Expires.IsZero() && !now.Before(h.Expires) }

// Config describes a file. L is what a token allows.
type Config[L any] struct {
	// Read returns the text of the file; OfFile reads one.
	Read func() ([]byte, error)
	// Parse converts an item. Its error begins with the field, and quotes no secret.
	Parse func(item *yaml.Node) (L, Head, error)
	// Elsewhere reports whether a token opens another door; such an item is a slip. It may be nil.
	Elsewhere func(digest [sha256.Size]byte) bool
	// Signal tells of changes; nil: the file has one of its own. Files can share one.
	Signal *Signal
	// Unnumbered is true if the lines are not the author's, so that problems do not name them.
	Unnumbered bool
	// Name is the configuration key of the file, for Ready and the metric. Event begins the names of
	// log lines: with "gateway" they are gateway.tokens_read and gateway.tokens_refused.
	Name, Event string
	Log         *zap.Logger
}

// File holds the tokens of a file. It is safe for concurrent use.
type File[L any] struct {
	cfg    Config[L]
	tokens atomic.Pointer[map[[sha256.Size]byte]*token[L]]
	// problem is what Ready says; nil if there is nothing to say. problems counts bad items, and
	// a file that cannot be used. told has the first of them.
	problem  atomic.Pointer[string]
	problems atomic.Int64
	told     atomic.Pointer[[]string]

	// The fields from here on belong to poll, which never runs twice at a time.
	data, seen []byte // what was taken or refused last; what the last look found
	parts      []*part[L]
	slipped    bool   // whether some tokens of parts were left out
	unreadable string // why the last look could not read; logged once
	looked     time.Time

	*Signal
	mu   sync.Mutex         // guards stop and done
	stop context.CancelFunc // nil before Start
	done chan struct{}      // closed when the loop has ended
}

// Open reads a file once. It is refused if an item is bad.
func Open[L any](cfg Config[L]) (*File[L], error) {
	f := &File[L]{cfg: cfg, Signal: cmp.Or(cfg.Signal, NewSignal()), looked: time.Now()}
	f.tokens.Store(&map[[sha256.Size]byte]*token[L]{})
	data, err := cfg.Read()
	if err == nil {
		err = f.take(data)
	}
	if err != nil {
		return nil, err
	}
	f.seen = data
	cfg.Log.Info(cfg.Event+".tokens_read", zap.Int("tokens", f.Len()))
	return f, nil
}

// OfFile returns a function that reads a file of this name, at most one byte more than a file may
// have.
func OfFile(name string) func() ([]byte, error) {
	return func() ([]byte, error) {
		f, err := os.Open(name)
		if err != nil {
			return nil, errors.Unwrap(err) // without the name, which callers add
		}
		defer f.Close()
		return io.ReadAll(io.LimitReader(f, maxBytes+1))
	}
}

// Start begins to look for changes, until Stop.
func (f *File[L]) Start(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done != nil {
		return errors.New("tokens were started before")
	}
	var ctx context.Context
	ctx, f.stop = context.WithCancel(context.Background())
	f.done = make(chan struct{})
	go f.run(ctx, f.done)
	return nil
}

func (f *File[L]) run(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f.poll(time.Now())
		}
	}
}

// Stop waits for the loop to end. It tolerates a File that was never started, and a second call.
func (f *File[L]) Stop(ctx context.Context) error {
	f.mu.Lock()
	stop, done := f.stop, f.done
	f.mu.Unlock()
	if stop == nil {
		return nil
	}
	stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Find returns the token with this secret; false if it is unknown or has expired. The time that it
// takes does not depend on how much of a secret is right: the secret is hashed first.
func (f *File[L]) Find(secret string) (L, bool) { return f.Get(sha256.Sum256([]byte(secret))) }

// Get returns the token with this digest; false if it is unknown or has expired.
func (f *File[L]) Get(digest [sha256.Size]byte) (line L, ok bool) {
	t := (*f.tokens.Load())[digest]
	now := time.Now()
	if t == nil || t.expired(now) {
		return line, false
	}
	if second := now.Unix(); t.seen.Load() != second { // callers of one token do not fight for it
		t.seen.Store(second)
	}
	return t.line, true
}

// Listed is a token as its file has it.
type Listed[L any] struct {
	Head
	Line L
	// Seen is the second when Get returned it last; zero: not since the file was opened.
	Seen time.Time
}

// All returns the tokens of the file, in no order, also expired ones.
func (f *File[L]) All() []Listed[L] {
	tokens := *f.tokens.Load()
	all := make([]Listed[L], 0, len(tokens))
	for _, t := range tokens {
		one := Listed[L]{Head: t.Head, Line: t.line}
		if second := t.seen.Load(); second != 0 {
			one.Seen = time.Unix(second, 0)
		}
		all = append(all, one)
	}
	return all
}

// Problems returns the first 100 things that are wrong with the file.
func (f *File[L]) Problems() []string {
	if told := f.told.Load(); told != nil {
		return *told
	}
	return nil
}

// Lists reports whether there is a token with this digest, even an expired one.
func (f *File[L]) Lists(digest [sha256.Size]byte) bool {
	return (*f.tokens.Load())[digest] != nil
}

// Len returns the number of tokens.
func (f *File[L]) Len() int { return len(*f.tokens.Load()) }

// Ready is a condition of readiness that always holds: the tokens that can be used work.
func (f *File[L]) Ready() (ok bool, detail string) {
	if p := f.problem.Load(); p != nil {
		return true, "degraded: " + *p
	}
	return true, ""
}

// Register registers the metric of problems.
func (f *File[L]) Register(reg prometheus.Registerer) {
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "freeslot_token_file_problems",
		Help: "Tokens of a file that cannot be used and are left out; 1 if the file cannot be used at all, so that the " +
			"tokens from before hold. Of the configuration (tokens) all problems count.",
		ConstLabels: prometheus.Labels{"file": f.cfg.Name},
	}, func() float64 { return float64(f.problems.Load()) })
}

// poll takes over the tokens that the file has now.
func (f *File[L]) poll(now time.Time) {
	data, err := f.cfg.Read()
	switch {
	case err != nil:
		if err.Error() != f.unreadable {
			f.unreadable = err.Error()
			f.refuse(err, []string{err.Error()}, 1)
		}
	case !bytes.Equal(data, f.seen):
		f.seen = data
	case bytes.Equal(data, f.data) && f.unreadable == "":
		f.seen = f.data // lets data be freed
		f.collectAgain()
	default:
		f.unreadable = ""
		if err := f.take(data); errors.Is(err, errUnusable) {
			break
		}
		f.cfg.Log.Info(f.cfg.Event+".tokens_read", zap.Int("tokens", f.Len()))
		f.Notify()
	}
	if f.expiredSince(f.looked, now) {
		f.Notify()
	}
	f.looked = now
}

// refuse tells of problems. err sums up what the first of them are.
func (f *File[L]) refuse(err error, first []string, problems int) {
	text := f.cfg.Name + " " + err.Error()
	if f.cfg.Unnumbered {
		text = f.cfg.Name + ": " + err.Error()
	}
	f.problem.Store(&text)
	f.told.Store(&first)
	f.problems.Store(int64(problems))
	f.cfg.Log.Error(f.cfg.Event+".tokens_refused", zap.String("file", f.cfg.Name), zap.Error(err))
}

// errUnusable is returned if nothing of a file is taken.
var errUnusable = errors.New("changes nothing")

// take replaces the tokens. The error tells what is wrong with the file; unless it is errUnusable,
// the good tokens have been taken.
func (f *File[L]) take(data []byte) error {
	f.data = data
	var parts, fresh []*part[L]
	var err error
	if len(data) > maxBytes {
		err = fmt.Errorf("is larger than %d bytes", maxBytes)
	} else {
		parts, fresh = split(data, f.parts, f.cfg.Parse)
		err = tooMany(parts)
	}
	if err != nil {
		f.slipped = false // the parts are older than the problem
		f.refuse(err, []string{err.Error()}, 1)
		return fmt.Errorf("%w, and %w", err, errUnusable)
	}
	f.parts = parts
	before := *f.tokens.Load()
	for _, p := range fresh {
		for _, t := range p.tokens {
			if old := before[t.Digest]; old != nil {
				t.seen.Store(old.seen.Load())
			}
		}
	}
	return f.use(f.collect(parts))
}

// collectAgain takes tokens that were refused only because they opened another door. They may have
// moved here from there.
func (f *File[L]) collectAgain() {
	if !f.slipped || f.cfg.Elsewhere == nil {
		return
	}
	if tokens, slips := f.collect(f.parts); !maps.Equal(tokens, *f.tokens.Load()) {
		_ = f.use(tokens, slips)
		f.cfg.Log.Info(f.cfg.Event+".tokens_read", zap.Int("tokens", f.Len()))
		f.Notify()
	}
}

// use replaces the tokens. It returns an error that tells of the slips.
func (f *File[L]) use(tokens map[[sha256.Size]byte]*token[L], slips []slip) error {
	f.tokens.Store(&tokens)
	f.slipped = len(slips) > 0
	if !f.slipped {
		f.problem.Store(nil)
		f.told.Store(nil)
		f.problems.Store(0)
		return nil
	}
	var first []string
	for _, s := range slips[:min(len(slips), maxTold)] {
		first = append(first, f.placed(s).Error())
	}
	err := f.placed(slips[0])
	if more := len(slips) - 1; more > 0 {
		err = fmt.Errorf("%w (and %d more)", err, more)
	}
	f.refuse(err, first, len(slips))
	return err
}

// placed returns what is wrong with a line, with its number if the author knows it.
func (f *File[L]) placed(s slip) error {
	if f.cfg.Unnumbered {
		return s.err
	}
	return fmt.Errorf("line %d: %w", s.line, s.err)
}

// Check returns the number of tokens in the text of a file, and all that is wrong with it.
func Check[L any](data []byte, parse func(*yaml.Node) (L, Head, error)) (tokens int, problems []error) {
	f := &File[L]{}
	if len(data) > maxBytes {
		return 0, []error{fmt.Errorf("is larger than %d bytes", maxBytes)}
	}
	parts, _ := split(data, nil, parse)
	if err := tooMany(parts); err != nil {
		problems = append(problems, err)
	}
	good, slips := f.collect(parts)
	for _, s := range slips {
		problems = append(problems, fmt.Errorf("line %d: %w", s.line, s.err))
	}
	return len(good), problems
}

func tooMany[L any](parts []*part[L]) error {
	count := 0
	for i := range parts {
		count += len(parts[i].tokens)
	}
	if count > maxTokens {
		return fmt.Errorf("has %d tokens, expected at most %d", count, maxTokens)
	}
	return nil
}

// collect puts the tokens of all parts together. The slips have the lines of the whole file.
func (f *File[L]) collect(parts []*part[L]) (map[[sha256.Size]byte]*token[L], []slip) {
	tokens, slips := make(map[[sha256.Size]byte]*token[L], len(parts)), []slip(nil)
	for i := range parts {
		for _, t := range parts[i].tokens {
			switch {
			case tokens[t.Digest] != nil:
				slips = append(slips, slip{
					lineOf(parts[:i], t.place), errors.New("sha256 is also in another line, expected each once"),
				})
			case f.cfg.Elsewhere != nil && f.cfg.Elsewhere(t.Digest):
				slips = append(slips, slip{
					lineOf(parts[:i], t.place),
					fmt.Errorf("the token %s also opens another door: one of nodes and one of callers must differ", t.Name),
				})
			default:
				tokens[t.Digest] = t
			}
		}
		for _, s := range parts[i].slips {
			slips = append(slips, slip{lineOf(parts[:i], s.line), s.err})
		}
	}
	return tokens, slips
}

// lineOf returns the line in the file of a line of the part that follows these.
func lineOf[L any](before []*part[L], line int) int {
	for i := range before {
		line += bytes.Count(before[i].text, []byte{'\n'})
	}
	return line
}

func (f *File[L]) expiredSince(before, now time.Time) bool {
	for _, t := range *f.tokens.Load() {
		if t.expired(now) && !t.expired(before) {
			return true
		}
	}
	return false
}

// NewSecret makes the secret of a token, and its digest for the file.
func NewSecret(prefix string) (secret string, digest [sha256.Size]byte) {
	var random [32]byte
	rand.Read(random[:])
	secret = prefix + base64.RawURLEncoding.EncodeToString(random[:])
	return secret, sha256.Sum256([]byte(secret))
}
