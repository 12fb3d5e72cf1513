package cell

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// position is where a listing goes on: behind job, on the node of that name or,
// among the finished, at that microsecond, or in the queue of a class, at that score.
type position struct {
	finished   bool
	line       bool
	place, job string
}

// microsecond is place among the finished; infinite at their beginning.
func (p position) microsecond() (float64, error) {
	if p.place == "" {
		return math.Inf(1), nil
	}
	us, err := strconv.ParseUint(p.place, 10, 64)
	if err != nil {
		return 0, badCursor()
	}
	return float64(us), nil
}

// Cursors are sealed, because a position names jobs and nodes that the reader may
// have no business with. The key is a cell's, so that every replica can go on with
// what another began; which cell's is the cursor's first byte.

func badCursor() *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodeInvalidArgument, Field: "cursor",
		Message: "cursor is not one that a listing returned",
	}
}

func (c *Cell) sealCursor(ctx context.Context, at *position) (string, error) {
	if at == nil {
		return "", nil
	}
	seal, err := c.cursorSeal(ctx)
	if err != nil {
		return "", err
	}
	kind := "n"
	if at.finished {
		kind = "f"
	}
	if at.line {
		kind = "l"
	}
	nonce := make([]byte, seal.NonceSize())
	_, _ = rand.Read(nonce) // never fails (crypto/rand)
	plain := []byte(kind + "~" + at.place + "~" + at.job)
	head := append([]byte{byte(c.cfg.Index)}, nonce...)
	return base64.RawURLEncoding.EncodeToString(seal.Seal(head, nonce, plain, nil)), nil
}

// openCursor needs the cell whose key the cursor was sealed with.
func (s *Set) openCursor(ctx context.Context, cursor string) (position, error) {
	if cursor == "" {
		return position{}, nil
	}
	sealed, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(sealed) == 0 {
		return position{}, badCursor()
	}
	i := slices.IndexFunc(s.cells, func(c *Cell) bool { return c.cfg.Index == int(sealed[0]) })
	if i < 0 {
		return position{}, badCursor()
	}
	return s.cells[i].openSealed(ctx, sealed[1:])
}

func (c *Cell) openSealed(ctx context.Context, sealed []byte) (position, error) {
	seal, err := c.cursorSeal(ctx)
	if err != nil {
		return position{}, err
	}
	if len(sealed) < seal.NonceSize() {
		return position{}, badCursor()
	}
	plain, err := seal.Open(nil, sealed[:seal.NonceSize()], sealed[seal.NonceSize():], nil)
	if err != nil {
		return position{}, badCursor()
	}
	kind, rest, _ := strings.Cut(string(plain), "~")
	place, job, _ := strings.Cut(rest, "~")
	return position{finished: kind == "f", line: kind == "l", place: place, job: job}, nil
}

// cursorSeal reads the cell's key, which the first listing makes. It is written only
// where there is none: a listing must work where Redis takes no writes.
func (c *Cell) cursorSeal(ctx context.Context) (cipher.AEAD, error) {
	key := c.layout.Version()
	read := func() (string, error) {
		return c.do(ctx, "list", c.client.B().Hget().Key(key).Field("cursor_key").Build()).ToString()
	}
	text, err := read()
	if rueidis.IsRedisNil(err) {
		var fresh [16]byte
		_, _ = rand.Read(fresh[:]) // never fails (crypto/rand)
		set := c.client.B().Hsetnx().Key(key).Field("cursor_key").Value(hex.EncodeToString(fresh[:])).Build()
		if err := c.do(ctx, "list", set).Error(); err != nil {
			return nil, fmt.Errorf("make cursor key: %w", err)
		}
		text, err = read()
	}
	if err != nil {
		return nil, fmt.Errorf("read cursor key: %w", err)
	}
	secret, err := hex.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("cursor key in %s: %w", key, err)
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, fmt.Errorf("cursor key in %s: %w", key, err)
	}
	return cipher.NewGCM(block)
}
