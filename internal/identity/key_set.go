package identity

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"
)

const (
	// keysInterval is how often the issuer's keys are read, so that a key which it has withdrawn is
	// no longer accepted. A file of keys costs less to read.
	keysInterval     = 30 * time.Second
	keysFileInterval = time.Second
	// keysPause is the least time between two reads: tokens with invented keys must not make this
	// replica ask the issuer for each of them.
	keysPause   = 5 * time.Second
	keysTimeout = 5 * time.Second
	maxKeyBytes = 1 << 20
)

// keySet holds the keys of an issuer, and reads them again. What is known goes on while the issuer
// is away. It implements oidc.KeySet.
type keySet struct {
	cfg     OIDC
	log     *zap.Logger
	changed func()
	keys    atomic.Pointer[issuerKeys] // nil before the first read
	problem atomic.Pointer[string]     // of the last read; nil: none

	mu   sync.Mutex // held while keys are read; guards read
	read time.Time  // the begin of the last read

	stop context.CancelFunc // nil before Start
	done chan struct{}
}

// issuerKeys holds the keys of one read. It does not change.
type issuerKeys struct {
	jose.JSONWebKeySet
	// prints has each key's thumbprint: the same id can come with another key.
	prints map[string]bool
}

// signing tells what VerifySignature found out, beside its result.
type signing struct {
	key string // the thumbprint of the key that has signed
	// unread is true if the key may be one that could not be read.
	unread bool
}

type signingKey struct{}

func newKeySet(cfg OIDC, log *zap.Logger, changed func()) *keySet {
	return &keySet{cfg: cfg, log: log, changed: changed, done: make(chan struct{})}
}

// VerifySignature implements oidc.KeySet. The context has a *signing.
func (k *keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	algorithms := make([]jose.SignatureAlgorithm, len(k.cfg.Algorithms))
	for i, a := range k.cfg.Algorithms {
		algorithms[i] = jose.SignatureAlgorithm(a)
	}
	signature, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, err
	}
	if len(signature.Signatures) != 1 {
		return nil, errors.New("it has several signatures, expected one")
	}
	id := signature.Signatures[0].Header.KeyID
	keys := k.find(id)
	if len(keys) == 0 {
		k.refresh(ctx, keysPause)
		keys = k.find(id)
	}
	found := ctx.Value(signingKey{}).(*signing)
	for i := range keys {
		if payload, err := signature.Verify(&keys[i]); err == nil {
			found.key = thumbprint(&keys[i])
			return payload, nil
		}
	}
	found.unread = k.problem.Load() != nil && (len(keys) == 0 || id == "")
	return nil, errors.New("no key of the issuer has signed it")
}

// find returns the keys with this id; all keys for a token that names none.
func (k *keySet) find(id string) []jose.JSONWebKey {
	set := k.keys.Load()
	switch {
	case set == nil:
		return nil
	case id == "":
		return set.Keys
	default:
		return set.Key(id)
	}
}

// has reports whether a key with this thumbprint is among the issuer's keys.
func (k *keySet) has(key string) bool {
	set := k.keys.Load()
	return set != nil && set.prints[key]
}

// thumbprint returns an empty text for a key that no signature can be checked with.
func thumbprint(key *jose.JSONWebKey) string {
	sum, err := key.Thumbprint(crypto.SHA256)
	if err != nil {
		return ""
	}
	return string(sum)
}

// refresh reads the keys, unless that was done within the last pause.
func (k *keySet) refresh(ctx context.Context, pause time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.read.IsZero() && time.Since(k.read) < pause {
		return
	}
	defer func() { k.read = time.Now() }() // those that waited for this read make none of their own
	// A caller that leaves must not spoil the read for the others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysTimeout)
	defer cancel()
	set, err := k.load(ctx)
	if err != nil {
		text := "auth.oidc: the keys of " + k.cfg.Issuer + " cannot be read: " + err.Error()
		if before := k.problem.Swap(&text); before == nil || *before != text {
			k.log.Warn("auth.keys_failed", zap.String("issuer", k.cfg.Issuer), zap.Error(err))
		}
		return
	}
	if k.problem.Swap(nil) != nil || k.keys.Load() == nil {
		k.log.Info("auth.keys_read", zap.String("issuer", k.cfg.Issuer), zap.Int("keys", len(set.Keys)))
	}
	if before := k.keys.Swap(set); before != nil && !reflect.DeepEqual(before.Keys, set.Keys) {
		k.changed()
	}
}

// load reads the keys from the file, or from the issuer.
func (k *keySet) load(ctx context.Context) (*issuerKeys, error) {
	var text []byte
	var err error
	if k.cfg.JWKSFile != "" {
		text, err = os.ReadFile(k.cfg.JWKSFile)
	} else {
		text, err = k.ask(ctx)
	}
	if err != nil {
		return nil, err
	}
	set := &issuerKeys{prints: make(map[string]bool)}
	if err := json.Unmarshal(text, &set.JSONWebKeySet); err != nil {
		return nil, err
	}
	if len(set.Keys) == 0 {
		return nil, errors.New("there are none")
	}
	for i := range set.Keys {
		set.prints[thumbprint(&set.Keys[i])] = true
	}
	return set, nil
}

// ask finds the address of the keys, and reads them.
func (k *keySet) ask(ctx context.Context) ([]byte, error) {
	provider, err := oidc.NewProvider(ctx, k.cfg.Issuer)
	if err != nil {
		return nil, err
	}
	var known struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&known); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, known.Keys, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", known.Keys, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxKeyBytes))
}

// start begins to read the keys, until halt: often until they are known.
func (k *keySet) start() {
	var ctx context.Context
	ctx, k.stop = context.WithCancel(context.Background())
	go func() {
		defer close(k.done)
		for {
			k.refresh(ctx, 0)
			interval := keysInterval
			switch {
			case k.cfg.JWKSFile != "":
				interval = keysFileInterval
			case k.problem.Load() != nil:
				interval = keysPause
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(interval):
			}
		}
	}()
}

// halt waits for the loop to end. It tolerates a keySet that was never started.
func (k *keySet) halt(ctx context.Context) error {
	if k.stop == nil {
		return nil
	}
	k.stop()
	select {
	case <-k.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
