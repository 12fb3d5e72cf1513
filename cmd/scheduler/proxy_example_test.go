package main

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/replica/config"
)

// The two examples of a proxy with Let's Encrypt fit each other, and the scheduler's is valid also
// for the next release. test/e2e runs them with a real Caddy.
func TestProxyExample(t *testing.T) {
	t.Parallel()
	const file, tokens = "../../deploy/scheduler-proxy.example.yaml", "../../deploy/tokens.example.yaml"
	code, out, errs := command(t, "serve", "--check", "--strict", "--config", file, "--set", "tokens_file="+tokens)
	if code != exitOK || out != "the configuration is valid\n" || errs != "" {
		t.Errorf("the check ends with %d, %q and %q; want a valid configuration and no warning", code, out, errs)
	}
	cfg, err := config.LoadReplica(config.Options{
		File: file, Environ: []string{}, Flags: []config.Flag{{Name: "test", Path: "tokens_file", Value: tokens}},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(cfg.Listen)
	if err != nil || !cfg.BehindProxy || len(cfg.TrustedProxies) != 1 || cfg.MetricsListen == "" {
		t.Errorf("listen %s, %+v; want an address behind one trusted proxy, and metrics elsewhere", cfg.Listen, cfg.TrustedProxies)
	}
	proxy := directives(t, "../../deploy/Caddyfile")
	upstreams := proxy["reverse_proxy"]
	if len(upstreams) < 2 {
		t.Errorf("the proxy leads to %v; want several replicas", upstreams)
	}
	for _, to := range upstreams {
		host, at, err := net.SplitHostPort(to)
		if err != nil || net.ParseIP(host) == nil || at != port {
			t.Errorf("the proxy leads to %s, %v; want addresses with the port %s, at which replicas listen", to, err, port)
		}
	}
	if got := proxy["health_uri"]; !slices.Equal(got, []string{"/readyz"}) {
		t.Errorf("the proxy asks for %v; want /readyz", got)
	}
	for name := range proxy {
		if strings.HasPrefix(name, "header") || name == "trusted_proxies" {
			t.Errorf("the proxy has %s; want no change of headers: Caddy sets X-Forwarded-For by itself", name)
		}
	}
}

// directives returns the arguments of each directive of a Caddyfile, without its blocks.
func directives(t *testing.T, file string) map[string][]string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found, depth := map[string][]string{}, 0
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		words := strings.Fields(line)
		depth += strings.Count(line, "{") - strings.Count(line, "}")
		if len(words) == 0 || words[0] == "}" {
			continue
		}
		found[words[0]] = slices.DeleteFunc(words[1:], func(w string) bool { return w == "{" })
	}
	if depth != 0 {
		t.Errorf("%s has %d blocks that do not end; want none", file, depth)
	}
	return found
}
