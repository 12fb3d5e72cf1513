package dev

import (
	"os"
	"path/filepath"

	"github.com/freeslot/freeslot/internal/gateway"
)

// writeToken makes a token for gatewayNode, and the replica's file of tokens with its line. Each
// start makes another one.
func writeToken(dir string) (secret, file string, err error) {
	secret, digest := gateway.NewSecret()
	line, err := (&gateway.Token{Name: "dev", Digest: digest, Nodes: []string{gatewayNode}}).Line()
	if err != nil {
		return "", "", err
	}
	file = filepath.Join(dir, "node-tokens.yaml")
	return secret, file, os.WriteFile(file, []byte(line+"\n"), 0o600)
}
