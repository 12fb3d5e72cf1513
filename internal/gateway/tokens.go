package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// tokensLook is how often the file is read. A change takes effect once two reads have found the
// same: a single read may find a half-written file, and would end the sessions of the other half.
const tokensLook = 500 * time.Millisecond

// Tokens holds the lines of a tokens file, which it reads again when the file changes. It is safe
// for concurrent use.
type Tokens struct {
	file  string
	log   *zap.Logger
	lines atomic.Pointer[map[[sha256.Size]byte]*Token]

	// The fields from here on belong to look, which never runs twice at a time.
	data, seen []byte // what was taken or refused last; what the last look found
	unreadable string // why the last look could not read; logged once
	looked     time.Time

	others [][sha256.Size]byte

	mu      sync.Mutex // guards changed, stop and done
	changed chan struct{}
	stop    context.CancelFunc // nil before Start
	done    chan struct{}      // closed when the loop has ended
}

// OpenTokens reads the file once. secrets are the secrets of other callers: a file that has one of
// them is refused, because no token may open two doors. The error names the file.
func OpenTokens(file string, log *zap.Logger, secrets ...string) (*Tokens, error) {
	t := &Tokens{file: file, log: log, changed: make(chan struct{}), looked: time.Now()}
	for _, s := range secrets {
		t.others = append(t.others, sha256.Sum256([]byte(s)))
	}
	data, err := readTokens(file)
	if err == nil {
		err = t.take(data)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	t.seen = data
	log.Info("gateway.tokens_read", zap.Int("tokens", t.Len()))
	return t, nil
}

// Start begins to look for changes, until Stop.
func (t *Tokens) Start(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done != nil {
		return errors.New("tokens were started before")
	}
	var ctx context.Context
	ctx, t.stop = context.WithCancel(context.Background())
	t.done = make(chan struct{})
	go t.run(ctx, t.done)
	return nil
}

func (t *Tokens) run(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	tick := time.NewTicker(tokensLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			t.poll(time.Now())
		}
	}
}

// Stop waits for the loop to end. It tolerates Tokens that were never started, and a second call.
func (t *Tokens) Stop(ctx context.Context) error {
	t.mu.Lock()
	stop, done := t.stop, t.done
	t.mu.Unlock()
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

// Find returns the line with this secret; false if the secret is unknown or has expired.
func (t *Tokens) Find(secret string) (Token, bool) {
	token := (*t.lines.Load())[sha256.Sum256([]byte(secret))]
	if token == nil || token.expired(time.Now()) {
		return Token{}, false
	}
	return *token, true
}

// Holds reports whether the token with this digest is still listed, unexpired, and valid for node.
func (t *Tokens) Holds(digest [sha256.Size]byte, node string) bool {
	token := (*t.lines.Load())[digest]
	return token != nil && !token.expired(time.Now()) && token.Names(node)
}

// Changed returns a channel that is closed when lines have changed or one has expired. Get the
// channel before you read the tokens, or you may miss a change.
func (t *Tokens) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// Len returns the number of lines.
func (t *Tokens) Len() int { return len(*t.lines.Load()) }

// poll takes over the lines that the file has now. If they cannot be used, it keeps the old ones: a
// slip of the pen must not end all sessions.
func (t *Tokens) poll(now time.Time) {
	data, err := readTokens(t.file)
	switch {
	case err != nil:
		if err.Error() != t.unreadable {
			t.unreadable = err.Error()
			t.refuse(err)
		}
	case !bytes.Equal(data, t.seen):
		t.seen, t.unreadable = data, ""
	case bytes.Equal(data, t.data):
		t.seen, t.unreadable = t.data, "" // lets data be freed
	default:
		t.unreadable = ""
		if err := t.take(data); err != nil {
			t.refuse(err)
			break
		}
		t.log.Info("gateway.tokens_read", zap.Int("tokens", t.Len()))
		t.notify()
	}
	if t.expiredSince(t.looked, now) {
		t.notify()
	}
	t.looked = now
}

func (t *Tokens) refuse(err error) {
	t.log.Error("gateway.tokens_refused", zap.String("file", t.file), zap.Error(err))
}

func (t *Tokens) take(data []byte) error {
	t.data = data
	lines, err := parseTokens(data)
	if err != nil {
		return err
	}
	for _, digest := range t.others {
		if token := lines[digest]; token != nil {
			return fmt.Errorf("the token %s is also one of tokens in the configuration, expected another", token.Name)
		}
	}
	t.lines.Store(&lines)
	return nil
}

func (t *Tokens) expiredSince(before, now time.Time) bool {
	for _, token := range *t.lines.Load() {
		if token.expired(now) && !token.expired(before) {
			return true
		}
	}
	return false
}

func (t *Tokens) notify() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.changed)
	t.changed = make(chan struct{})
}

// readTokens reads one byte more than a tokens file may have.
func readTokens(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, errors.Unwrap(err) // without the name, which callers add
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxTokenBytes+1))
}
