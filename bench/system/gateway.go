package system

import (
	"os"
	"path/filepath"

	"github.com/freeslot/freeslot/internal/gateway"
)

// Tokens is a tokens file for gateways, in a folder that goes away with it.
type Tokens struct {
	// Secret is the token of its one line. It may be any node.
	Secret string
	// File is the file's path.
	File string
}

// WriteTokens makes a tokens file; the caller removes it.
func WriteTokens() (*Tokens, error) {
	secret, digest := gateway.NewSecret()
	line, err := (&gateway.Token{Name: "bench", Digest: digest, Nodes: []string{"*"}}).Line()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "freeslot-tokens-")
	if err != nil {
		return nil, err
	}
	t := &Tokens{Secret: secret, File: filepath.Join(folder, "tokens.yaml")}
	return t, os.WriteFile(t.File, []byte(line+"\n"), 0o600)
}

// Remove removes the file and its folder.
func (t *Tokens) Remove() error { return os.RemoveAll(filepath.Dir(t.File)) }
