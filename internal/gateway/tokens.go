package gateway

import (
	"crypto/sha256"
	"fmt"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/tokenfile"
)

// Tokens holds the lines of a tokens file, which it reads again when the file changes. It is safe
// for concurrent use.
type Tokens struct{ *tokenfile.File[Token] }

// OpenTokens reads the file once. elsewhere reports whether a token is another caller's; nil means
// that none is. The error names the file.
func OpenTokens(
	file string, log *zap.Logger, elsewhere func(digest [sha256.Size]byte) bool,
) (*Tokens, error) {
	tokens, err := tokenfile.Open(tokenfile.Config[Token]{
		Read: tokenfile.OfFile(file), Parse: parseToken, Elsewhere: elsewhere,
		Name: "gateway.tokens_file", Event: "gateway", Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &Tokens{tokens}, nil
}

// Holds reports whether the token with this digest is still listed, unexpired, and valid for node
// with a certificate of these names.
func (t *Tokens) Holds(digest [sha256.Size]byte, node string, certificate []string) bool {
	token, ok := t.Get(digest)
	return ok && token.Names(node) && token.admits(certificate) == nil
}
