package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/gateway"
)

// find opens a tokens file with the line, and finds the token in it.
func find(t *testing.T, line, secret string) gateway.Token {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	must(t, os.WriteFile(file, []byte(line), 0o600))
	tokens, err := gateway.OpenTokens(file, zap.NewNop(), nil)
	must(t, err)
	token, ok := tokens.Find(secret)
	if !ok {
		t.Fatalf("the token is not of the line %s", line)
	}
	return token
}

func TestNodesToken(t *testing.T) {
	t.Parallel()
	got := command(t, "", "nodes", "token", "gpu-7").expect(t, exitOK)
	token := find(t, got.err, strings.TrimSpace(got.out))
	if token.Name != "gpu-7" || !token.Names("gpu-7") || token.Names("gpu-70") || !token.Expires.IsZero() {
		t.Errorf("the token is %+v", token)
	}
	if strings.Contains(got.err, strings.TrimSpace(got.out)) || !strings.HasPrefix(got.err, "# ") {
		t.Errorf("standard error has %q, expected a heading and a line without the token", got.err)
	}

	got = command(t, "", "-o", "json", "nodes", "token", "gpu-*", "--name", "gpus", "--node", "cpu-1,cpu-2", "--expires", "2160h",
		"--service", "tts", "--service", "asr*", "--pool", "eu", "--label", "zone=eu-1", "--label", "zone=a=b, c", "--capability", "de,en*", "--slots", "16", "--certificate", "*.nodes.example.com").expect(t, exitOK)
	var both struct{ Token, Line string }
	must(t, json.Unmarshal([]byte(got.out), &both))
	token = find(t, both.Line, both.Token)
	if !token.Names("gpu-9") || !token.Names("cpu-2") || token.Names("cpu-3") || token.Expires.IsZero() || token.Certificate != "*.nodes.example.com" {
		t.Errorf("the token is %+v", token)
	}
	node := freeslot.Node{ID: "gpu-9", MaxConcurrency: 16, Services: []freeslot.Service{{Name: "asr-1"}}, Labels: map[string]string{"zone": "a=b, c"}}
	if err := token.Check(&node); err != nil {
		t.Error(err)
	}
	node.MaxConcurrency++
	if token.Check(&node) == nil {
		t.Error("the token allows 17 slots")
	}
	if got.err != "" {
		t.Errorf("with -o json standard error has %q", got.err)
	}
}

func TestNodesTokenUsage(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`"gpu-*" is a pattern, which needs --name`: {"gpu-*"},
		`nodes has "a:b"`:                          {"a:b", "--name", "x"},
		`name has ' '`:                             {"gpu-7", "--name", "a b"},
		`slots is 1025, expected 1 to 1024`:        {"gpu-7", "--slots", "1025"},
		`slots is -1`:                              {"gpu-7", "--slots=-1"},
		`--expires is -1h0m0s`:                     {"gpu-7", "--expires=-1h"},
		`--label is "zone", expected NAME=`:        {"gpu-7", "--label", "zone"},
		`services has "a b"`:                       {"gpu-7", "--service", "a b"},
	} {
		if got := command(t, "", append([]string{"nodes", "token"}, args...)...).expect(t, exitUsage, want); got.out != "" {
			t.Errorf("%s: a token was printed", args)
		}
	}
}

func TestNodeRowsVia(t *testing.T) {
	t.Parallel()
	rows := nodeRows([]api.NodeStatus{{}, {Connection: &api.NodeConnection{Replica: "r-1"}}})
	last := len(rows[0]) - 1
	if rows[0][last] != "VIA" || rows[1][last] != "-" || rows[2][last] != "r-1" {
		t.Errorf(`%s; want rows[0][last] == "VIA", rows[1][last] == "-", rows[2][last] == "r-1"`, rows)
	}
}

func TestNodeConnection(t *testing.T) {
	t.Parallel()
	connection := &api.NodeConnection{Replica: "r-1", RoundTripMS: 1.25, Version: "0.4.0", Token: "gpus"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.NodeStatus{Node: freeslot.Node{ID: "gpu-7", MaxConcurrency: 1}, Connection: connection})
	}))
	t.Cleanup(server.Close)
	got := command(t, "", "--server", server.URL, "nodes", "gpu-7").expect(t, exitOK)
	for _, row := range []string{`via +r-1`, `round trip +1\.25 ms`, `agent +0\.4\.0`, `token +gpus`} {
		if !regexp.MustCompile(`(?m)^` + row + ` *$`).MatchString(got.out) {
			t.Errorf("no row %q in\n%s", row, got.out)
		}
	}
}
