package console

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// sealBytes is the length of a key: of AES-256.
	sealBytes = 32
	// sealLife is how long a key seals. It opens for as long again, which is longer than a session.
	sealLife = 24 * time.Hour
	// sealInterval is how often the keys are read. sealPause is the least time between two reads for
	// cookies with a key that is not known here yet.
	sealInterval = time.Minute
	sealPause    = time.Second
	sealTimeout  = 2 * time.Second
	idBytes      = 4
)

// errSeal is returned for a text that no known key has sealed.
var errSeal = errors.New("it was not sealed by a key that is known here")

// sealer seals texts with keys that all replicas share: others can neither read nor change a sealed
// text. It is safe for concurrent use.
type sealer struct {
	// read returns the shared keys, the newest first, and adds fresh if one is due.
	read func(ctx context.Context, fresh []byte, limit time.Duration) ([][]byte, error)
	log  *zap.Logger

	cancel  context.CancelFunc
	running sync.WaitGroup

	reading sync.Mutex // held while keys are read; guards at
	at      time.Time  // when they were read last

	mu sync.Mutex // guards the fields that follow
	// shared are the keys of Redis, which stay known while it is away. own is this replica's, for
	// the time before it has read any.
	shared []seal
	own    seal
	failed bool // the last read
}

// seal is a key, with the id that texts name it by.
type seal struct {
	id   [idBytes]byte
	aead cipher.AEAD
}

func newSeal(key []byte) seal {
	sum := sha256.Sum256(key)
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the key has the right length
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return seal{id: [idBytes]byte(sum[:]), aead: aead}
}

func newKey() []byte {
	key := make([]byte, sealBytes)
	rand.Read(key)
	return key
}

func newSealer(
	read func(ctx context.Context, fresh []byte, limit time.Duration) ([][]byte, error), log *zap.Logger,
) *sealer {
	return &sealer{read: read, log: log, own: newSeal(newKey())}
}

// ownKeys is the read of a replica that shares no keys.
func ownKeys(context.Context, []byte, time.Duration) ([][]byte, error) { return nil, nil }

// start reads the keys now, and then again and again until stop.
func (s *sealer) start() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.running.Go(func() {
		ticker := time.NewTicker(sealInterval)
		defer ticker.Stop()
		for {
			s.refresh(ctx, 0)
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
}

func (s *sealer) stop() {
	if s.cancel != nil {
		s.cancel()
	}
	s.running.Wait()
}

// refresh reads the keys, unless that was done within the last pause. What is known stays if it
// fails.
func (s *sealer) refresh(ctx context.Context, pause time.Duration) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if !s.at.IsZero() && time.Since(s.at) < pause {
		return
	}
	defer func() { s.at = time.Now() }() // those that waited for this read make none of their own
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sealTimeout)
	defer cancel()
	all, err := s.read(ctx, newKey(), sealLife)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(all) == 0 {
		if err != nil && !s.failed {
			s.log.Warn("console.keys_failed", zap.Error(err))
		}
		s.failed = true
		return
	}
	s.failed = false
	s.shared = s.shared[:0:0]
	for _, key := range all {
		s.shared = append(s.shared, newSeal(key))
	}
}

// seal returns a text for a cookie.
func (s *sealer) seal(plain []byte) string {
	s.mu.Lock()
	by := s.own
	if len(s.shared) > 0 {
		by = s.shared[0]
	}
	s.mu.Unlock()
	return base64.RawURLEncoding.EncodeToString(by.aead.Seal(by.id[:], nil, plain, by.id[:]))
}

// open returns what was sealed, here or at another replica.
func (s *sealer) open(ctx context.Context, text string) ([]byte, error) {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(data) < idBytes {
		return nil, errSeal
	}
	id := [idBytes]byte(data)
	by, ok := s.find(id)
	if !ok {
		s.refresh(ctx, sealPause) // another replica may have a new one
		if by, ok = s.find(id); !ok {
			return nil, errSeal
		}
	}
	plain, err := by.aead.Open(nil, nil, data[idBytes:], id[:])
	if err != nil {
		return nil, errSeal
	}
	return plain, nil
}

func (s *sealer) find(id [idBytes]byte) (seal, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own.id == id {
		return s.own, true
	}
	i := slices.IndexFunc(s.shared, func(k seal) bool { return k.id == id })
	if i < 0 {
		return seal{}, false
	}
	return s.shared[i], true
}
