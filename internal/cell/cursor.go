package cell

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// position is where a listing goes on: behind job, on the node of that name or,
// among the finished, at that microsecond.
type position struct {
	finished   bool
	place, job string
}

// Cursors are sealed, because a position names jobs and nodes that the reader may
// have no business with. The key is the cell's, so that every replica can go on
// with what another began.

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
	nonce := make([]byte, seal.NonceSize())
	_, _ = rand.Read(nonce) // never fails (crypto/rand)
	plain := []byte(kind + "~" + at.place + "~" + at.job)
	return base64.RawURLEncoding.EncodeToString(seal.Seal(nonce, nonce, plain, nil)), nil
}

func (c *Cell) openCursor(ctx context.Context, cursor string) (position, error) {
	if cursor == "" {
		return position{}, nil
	}
	sealed, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return position{}, badCursor()
	}
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
	return position{finished: kind == "f", place: place, job: job}, nil
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
