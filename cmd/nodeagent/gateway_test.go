package main

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/gateway"
)

// serveGateway is a gateway for the node of prepare, and arguments of an agent that connects to it.
func serveGateway(t *testing.T, token gateway.Token) (n *node, args []string) {
	t.Helper()
	n, _, _ = prepare(t)
	secret, digest := gateway.NewSecret()
	token.Digest = digest
	line, err := token.Line()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	tokensFile, tokenFile := filepath.Join(folder, "tokens.yaml"), filepath.Join(folder, "token")
	for file, text := range map[string]string{tokensFile: line + "\n", tokenFile: secret + "\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tokens, err := gateway.OpenTokens(tokensFile, zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := gateway.New(gateway.Config{
		Replica: "replica-1", Version: "v1", HeartbeatLimit: 8 * time.Second, MaxAgents: 10,
		Cells: func(string) gateway.Cell { return n.cell }, Tokens: tokens,
	}, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		if err := h.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return n, []string{
		"--node-id=node-1", "--set=gateway=ws://" + server.Listener.Addr().String(), "--set=token_file=" + tokenFile,
		"--set=services=[{name: wait, command: {argv: [cat]}}]",
	}
}

// TestCheckGateway: --check says what the token may do, and registers nothing.
func TestCheckGateway(t *testing.T) {
	t.Parallel()
	n, args := serveGateway(t, gateway.Token{Name: "gpu", Nodes: []string{"node-*"}, Services: []string{"wait", "tts*"}, Slots: 4})
	code, out, said := command(t, append(args, "--check")...)
	const want = "the configuration is valid\ntoken gpu may be node node-*; services wait, tts*; at most 4 slots\n"
	if code != exitOK || out != want || said != "" {
		t.Errorf("exit code %d\n got %s%s\nwant %s", code, out, said, want)
	}
	changes, err := n.cell.Changes(t.Context(), 0, 10)
	if err != nil || len(changes.Nodes) > 0 {
		t.Errorf("--check has registered %+v: %v", changes.Nodes, err)
	}
}

// TestPlainGateway: the start and --check warn once of a token that goes over the network in the
// clear, unless the configuration says that this is meant.
func TestPlainGateway(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("fsn_secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing is dialled
	for _, scheme := range []string{"ws", "wss", "insecure"} {
		for flag, want := range map[string]string{"--exit-unreachable": "gateway.plain", "--check": "nodeagent: the token goes to ws://gateway.example.com:7480 in the clear; use wss://"} {
			var out, said output
			args := []string{
				flag, "--node-id=node-1", "--set=gateway=" + strings.ReplaceAll(scheme, "insecure", "ws") + "://gateway.example.com:7480", "--set=token_file=" + token,
				"--set=services=[{name: wait, command: {argv: [cat]}}]",
			}
			if scheme == "insecure" {
				args = append(args, "--set=gateway_insecure=true")
			}
			run(args, &environment{ctx: ctx, hurry: ctx, out: &out, err: &said, environ: []string{}})
			times := 1
			if scheme != "ws" {
				times = 0
			}
			if n := strings.Count(said.String(), want); n != times {
				t.Errorf("%s, %s: %q came %d times, expected %d, in\n%s", scheme, flag, want, n, times, said.String())
			}
			if strings.Contains(said.String(), "secret") {
				t.Errorf("the token is in %s", said.String())
			}
		}
	}
}

// TestGatewayFailures: --check and the start fail with one line, which names the key.
func TestGatewayFailures(t *testing.T) {
	t.Parallel()
	_, args := serveGateway(t, gateway.Token{Name: "gpu", Nodes: []string{"node-*"}, Services: []string{"tts"}})
	stranger := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(stranger, []byte("fsn_unknown\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := strings.TrimPrefix(args[1], "--set=gateway=ws://")
	for name, test := range map[string]struct {
		more []string
		want string
	}{
		"no gateway":    {[]string{"--set=gateway=ws://127.0.0.1:1", "--exit-unreachable"}, "nodeagent: unavailable: gateway 127.0.0.1:1 cannot be used: connection refused\n"},
		"unknown token": {[]string{"--set=token_file=" + stranger}, "nodeagent: unauthenticated: token_file is refused by gateway " + at},
		"another node":  {[]string{"--node-id=gpu-1"}, "nodeagent: permission_denied: token_file is refused by gateway " + at + ": token gpu is not for node gpu-1\n"},
	} {
		for _, check := range [][]string{nil, {"--check"}} {
			code, _, got := command(t, slices.Concat(args, test.more, check, []string{"--log-level=error"})...)
			if code != exitFailure || !strings.HasPrefix(got, test.want) || strings.Count(got, "\n") != 1 {
				t.Errorf("%s, %v: exit code %d\n got %s\nwant %s", name, check, code, got, test.want)
			}
		}
	}
	// What the profile offers beyond the token is refused at the registration.
	code, _, got := command(t, append(args, "--log-level=error")...)
	const want = `nodeagent: register node node-1: permission_denied: profile.installed_services has "wait", and the token gpu allows tts` + "\n"
	if code != exitFailure || got != want {
		t.Errorf("exit code %d\n got %s\nwant %s", code, got, want)
	}
}

func TestTokensExampleFile(t *testing.T) {
	t.Parallel()
	tokens, err := gateway.OpenTokens("../../deploy/node-tokens.example.yaml", zap.NewNop(), nil)
	if err != nil || tokens.Len() != 4 {
		t.Errorf("%d tokens, expected 4: %v", tokens.Len(), err)
	}
}
