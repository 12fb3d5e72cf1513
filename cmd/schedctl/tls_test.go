package main

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/certtest"
)

// schedctl calls a replica that has a private authority and asks for certificates, over HTTP and
// over WebSocket, with its files from flags or from the environment.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	authority, other := certtest.NewAuthority(t), certtest.NewAuthority(t)
	authority.Write(t, at("server.crt"), at("server.key"), "replica")
	authority.Write(t, at("ann.crt"), at("ann.key"), "ann")
	authority.WriteCA(t, at("ca.crt"))
	other.WriteCA(t, at("other.crt"))
	l := startWith(t, func(c *config.Replica) {
		c.TLS = config.ListenTLS{CertFile: at("server.crt"), KeyFile: at("server.key"), ClientCAFile: at("ca.crt")}
	})
	server := "https://" + l.server.Addr()
	files := []string{"--server", server, "--ca-file", at("ca.crt"), "--cert-file", at("ann.crt"), "--key-file", at("ann.key")}
	ctl := func(flags []string, args ...string) result { return command(t, "", slices.Concat(flags, args)...) }
	ctl(files, "nodes").expect(t, exitOK, "node-1")
	ctl(files, "submit", "echo", `{"a":1}`, "--wait").expect(t, exitOK, `{"a":1}`)
	ctl(append(files, "--server-name", "127.0.0.1"), "nodes").expect(t, exitOK, "node-1")

	ctl([]string{"--server", server}, "nodes").expect(t, exitFailure, "unknown authority")
	ctl(append(files, "--ca-file", at("other.crt")), "nodes").expect(t, exitFailure, "unknown authority")
	ctl(files[:4], "nodes").expect(t, exitFailure, "certificate required")
	ctl(files[:4], "submit", "echo", "1", "--wait").expect(t, exitFailure, "certificate required")
	ctl(append(files, "--server-name", "example.org"), "nodes").expect(t, exitFailure, "example.org")
	ctl(files[:6], "nodes").expect(t, exitUsage, "--cert-file and --key-file go together")
	ctl(append(files, "--key-file", at("none")), "nodes").expect(t, exitUsage, "--key-file cannot be read: "+at("none"))
	ctl([]string{"--ca-file", at("ca.crt")}, "nodes").expect(t, exitUsage, "expected https://")

	for name, file := range map[string]string{
		"FREESLOT_CA_FILE": "ca.crt", "FREESLOT_CERT_FILE": "ann.crt", "FREESLOT_KEY_FILE": "ann.key",
	} {
		t.Setenv(name, at(file))
	}
	ctl([]string{"--server", server}, "nodes").expect(t, exitOK, "node-1")
}
