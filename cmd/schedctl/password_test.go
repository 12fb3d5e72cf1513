package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestNoPasswordIsPrinted: a password in --server or --redis-url is in no message.
func TestNoPasswordIsPrinted(t *testing.T) {
	t.Parallel()
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/odd") {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = w.Write([]byte("hello"))
	}))
	defer foreign.Close()
	with := strings.Replace(foreign.URL, "http://", "http://user:hunter2@", 1)
	for _, args := range [][]string{
		{"--server", with, "nodes"},
		{"--server", with + "/odd", "nodes"},
		{"--server", "http://user:hunter2@127.0.0.1:1", "nodes"},
		{"--server", "http://user:hunter2@127.0.0.1:1", "submit", "a", "{}", "--wait"},
		{"--server", "http://user:hunter2@127.0.0.1:x", "nodes"},
		{"--server", "ftp://user:hunter2@127.0.0.1", "nodes"},
		{"lock", "run", "a", "--redis-url", "redis://user:hunter2@127.0.0.1:1", "--wait", "1ms", "--", "true"},
		{"lock", "run", "a", "--redis-url", "redis://user:hunter2@127.0.0.1:x", "--", "true"},
		{"nodes", "import", "--redis-url", "redis://user:hunter2@127.0.0.1:x", "/dev/null"},
	} {
		run := command(t, "", args...)
		got := run.out + run.err
		if got == "" || strings.Contains(got, "hunter2") {
			t.Errorf("%q prints %q, expected an error without the password", args, got)
		}
	}
}
