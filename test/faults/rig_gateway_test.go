package faults

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tokensFile is what the replicas of a fleet read.
const tokensFile = "node-tokens.yaml"

// nodeToken is the token of a linked node.
func nodeToken(node string) string { return "token-of-" + node }

// writeTokens writes a line for each linked node.
func (f *fleet) writeTokens() {
	f.t.Helper()
	lines := []any{}
	for _, node := range f.cfg.linked {
		sum := sha256.Sum256([]byte(nodeToken(node)))
		lines = append(lines, map[string]any{"name": node, "sha256": hex.EncodeToString(sum[:]), "nodes": []string{node}})
	}
	data, err := json.Marshal(lines) // JSON is YAML, too
	if err == nil {
		err = os.WriteFile(filepath.Join(f.folder, tokensFile), data, 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// writeToken writes the token of a linked node and returns the file's name.
func (f *fleet) writeToken(node string) string {
	f.t.Helper()
	file := filepath.Join(f.folder, node+".token")
	if err := os.WriteFile(file, []byte(nodeToken(node)+"\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return file
}

// gateways are the replicas as a linked node takes them, each by a proxy of the node's own.
func (f *fleet) gateways(node string) string {
	f.t.Helper()
	var list []string
	for _, replica := range slices.Sorted(maps.Keys(f.replicas)) {
		list = append(list, "ws://"+f.wayTo(node+"-"+replica, f.replicas[replica]))
	}
	return strings.Join(list, ",")
}
