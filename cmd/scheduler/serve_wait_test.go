package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func waitingConfig(t *testing.T, redis *redistest.Server) config.Replica {
	t.Helper()
	cfg := config.DefaultReplica()
	cfg.Listen, cfg.Redis.URL, cfg.DrainTimeout = "127.0.0.1:0", redis.URL(), 10*time.Second
	return cfg
}

// TestStartDoesNotWait: a start waits only for Redis. What is wrong with this machine ends it.
func TestStartDoesNotWait(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	dir := t.TempDir()
	file, missing := filepath.Join(dir, "file"), filepath.Join(dir, "missing")
	tokens := filepath.Join(dir, "tokens")
	token := "- {name: a, sha256: " + strings.Repeat("0", 64) + ", nodes: [a]}"
	for name, content := range map[string]string{file: "x", tokens: token} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, set := range map[string]func(*config.Replica){
		"lists.dir":      func(c *config.Replica) { c.Lists.Dir = filepath.Join(file, "lists") },
		"listen":         func(c *config.Replica) { c.Listen = listen(t) },
		"gateway.listen": func(c *config.Replica) { c.Gateway.Listen, c.Gateway.TokensFile = listen(t), tokens },
		"password file": func(c *config.Replica) {
			_, host, _ := strings.Cut(c.Redis.URL, "@")
			c.Redis.URL, c.Redis.PasswordFile = "redis://"+host, missing
		},
		"TLS file": func(c *config.Replica) {
			c.Redis.URL, c.Redis.TLS.CAFile = "rediss"+c.Redis.URL[len("redis"):], missing
		},
	} {
		cfg := waitingConfig(t, redis)
		set(&cfg)
		ctx, stop := context.WithCancel(t.Context())
		r, err := start(ctx, cfg, zap.NewNop(), false, func() {
			t.Errorf("%s: the start waits, expected an error", name)
			stop()
		})
		if stop(); err == nil {
			t.Errorf("%s: the replica started, expected an error", name)
			_ = r.Stop(waittest.Context(t))
		}
	}
}

// TestWaitingStartIsQuiet: while Redis answers and cannot serve, the attempts log nothing again.
func TestWaitingStartIsQuiet(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	client := redis.Client(t)
	require := func(replicas string) {
		t.Helper()
		cmd := client.B().ConfigSet().ParameterValue().ParameterValue("min-replicas-to-write", replicas).Build()
		if err := client.Do(t.Context(), cmd).Error(); err != nil {
			t.Fatal(err)
		}
	}
	require("1")
	cfg := waitingConfig(t, redis)
	cfg.Warnings = config.Problems{{Path: "a", Message: "b"}}
	cfg.Insecure = config.Problems{{Path: "listen", Message: "is plain"}}
	core, logs := observer.New(zap.DebugLevel)
	var r *replica.Replica
	started := make(chan error, 1)
	go func() {
		var err error
		r, err = start(t.Context(), cfg, zap.New(core), false, func() {})
		started <- err
	}()
	failures := func() any { return logs.FilterMessage("replica.connect_failed").Len() }
	waittest.Until(t, "several attempts fail", func() bool { return failures().(int) > 3 }, failures)
	require("0")
	if err := waittest.Receive(t, "the start", started, failures); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Stop(waittest.Context(t)); err != nil {
			t.Error(err)
		}
	}()
	counts := map[string]int{}
	for _, e := range logs.All() {
		if e.Level > zap.DebugLevel {
			counts[e.Message]++
		}
		if e.Message == "replica.started" {
			break
		}
	}
	// The first attempt that reached Redis says what it found. On a busy machine the cache may read
	// all nodes twice.
	for event, n := range counts {
		if n != 1 && event != "cache.replaced" {
			t.Errorf("%s was logged %d times, expected once", event, n)
		}
	}
	for _, event := range []string{"config.replaced", "config.insecure", "redis.warning", "replica.connect_failed", "replica.started"} {
		if counts[event] == 0 {
			t.Errorf("%s was not logged", event)
		}
	}
}
