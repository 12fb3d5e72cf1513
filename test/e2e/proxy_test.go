package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestProxyExample runs deploy/Caddyfile with addresses of this machine and an authority of Caddy's
// own: clients and agents reach two replicas by TLS, over HTTP and WebSockets, and one replica is
// enough.
func TestProxyExample(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("caddy"); err != nil {
		t.Skip("no caddy is installed (Debian: apt-get install caddy); cmd/scheduler checks the example's structure")
	}
	s := newSystem(t)
	s.serveNodes()
	env := []string{"FREESLOT_BEHIND_PROXY=true", "FREESLOT_TRUSTED_PROXIES=[127.0.0.1]"}
	replicas := s.startReplicas(2, 0, env...)
	address, caFile := s.startProxy(replicas)
	config := map[string]any{
		"node":     map[string]any{"id": "node-a", "max_concurrency": 1},
		"services": []any{map[string]any{"name": shoutService, "command": map[string]any{"argv": []string{"cat"}}}},
		"gateway":  "wss://" + address, "token_file": s.token, "gateway_tls": map[string]any{"ca_file": caFile},
		"heartbeat_interval": heartbeatInterval.String(),
	}
	file := filepath.Join(t.TempDir(), "node-a.yaml")
	writeConfig(t, file, config)
	start(t, nil, "nodeagent", "--config", file)
	for _, r := range replicas {
		r.awaitNodes(1)
	}
	submit := func(payload string) {
		t.Helper()
		out, errs, code := run(t, nil, "schedctl", "--server", "https://"+address, "--ca-file", caFile,
			"submit", shoutService, payload, "--wait", "--timeout", "1m")
		if code != 0 || !strings.Contains(out, payload) {
			t.Errorf("submit by the proxy ends with %d: %s%s; want the payload", code, out, errs)
		}
	}
	submit(`"both"`)
	replicas[0].signal(syscall.SIGTERM)
	if code := replicas[0].wait(); code != 0 {
		t.Errorf("the replica ended with %d; want 0", code)
	}
	submit(`"one"`)
}

// startProxy starts Caddy and returns its address, and the file with its authority.
func (s *system) startProxy(replicas []*replica) (address, caFile string) {
	s.t.Helper()
	example, err := os.ReadFile("../../deploy/Caddyfile")
	if err != nil {
		s.t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(s.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	address = fmt.Sprintf("localhost:%d", l.Addr().(*net.TCPAddr).Port)
	_ = l.Close()
	text := string(example)
	for from, to := range map[string]string{
		"scheduler.example.com {": "https://" + address + " {\n\ttls internal",
		"10.0.0.11:7480":          replicas[0].addr, "10.0.0.12:7480": replicas[1].addr,
	} {
		if strings.Count(text, from) != 1 {
			s.t.Fatalf("the example has %q %d times; want it once", from, strings.Count(text, from))
		}
		text = strings.Replace(text, from, to, 1)
	}
	text = "{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n" + text
	dir := s.t.TempDir()
	file := writeFile(s.t, "Caddyfile", text)
	caddy := start(s.t, []string{"XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "HOME=" + dir},
		"caddy", "run", "--config", file, "--adapter", "caddyfile")
	caFile = filepath.Join(dir, "caddy", "pki", "authorities", "local", "root.crt")
	waittest.Until(s.t, "the proxy to serve", func() bool {
		if caddy.ended() {
			s.t.Fatalf("caddy ended: %s", caddy.stderr.String())
		}
		_, _, code := run(s.t, nil, "schedctl", "--server", "https://"+address, "--ca-file", caFile, "nodes")
		return code == 0
	})
	return address, caFile
}
