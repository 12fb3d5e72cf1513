package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// system is a Redis with a key prefix. The prefix keeps the fleets of tests apart.
type system struct {
	t      *testing.T
	redis  *redistest.Target
	prefix string
	// more are further standalone servers, over which the cells are spread.
	more  []*redistest.Target
	cells int // 0 is 1
	// gateway is the block of the replicas' configurations, nil for none. token is the file with the
	// agents' token; see serveNodes.
	gateway map[string]any
	token   string
	// lists is added to the block of name lists. callers is the file with callers' tokens, "" for
	// none.
	lists   map[string]any
	callers string
	// byGateway connects agents to the replicas, which have been started in this order; see bothWays.
	byGateway bool
	replicas  []*replica
}

// targets are all servers.
func (s *system) targets() []*redistest.Target {
	return append([]*redistest.Target{s.redis}, s.more...)
}

// redisConfig is the redis block of a configuration file.
func (s *system) redisConfig() map[string]any {
	block := map[string]any{"key_prefix": s.prefix, "cells": max(s.cells, 1)}
	if len(s.more) == 0 {
		block["url"] = s.redis.URL()
		return block
	}
	var urls []string
	for _, r := range s.targets() {
		urls = append(urls, r.URL())
	}
	block["urls"] = urls
	return block
}

func newSystem(t *testing.T) *system {
	t.Helper()
	redis := redistest.Shared(t)
	return &system{t: t, redis: redis, prefix: redis.Prefix(t)}
}

// replica is a scheduler process.
type replica struct {
	*process
	id, addr string
}

// startReplica starts `scheduler serve` on a free port and waits until it is ready.
func (s *system) startReplica(id string, env ...string) *replica {
	s.t.Helper()
	r := &replica{id: id}
	file := filepath.Join(s.t.TempDir(), id+".yaml")
	lists := map[string]any{"dir": s.t.TempDir()} // else replicas of several tests share one
	maps.Copy(lists, s.lists)
	config := map[string]any{"replica_id": id, "redis": s.redisConfig(), "lists": lists}
	if s.callers != "" {
		config["tokens_file"] = s.callers
	}
	if s.gateway != nil {
		config["gateway"] = s.gateway
	}
	writeConfig(s.t, file, config)
	r.process = start(s.t, env, "scheduler", "serve", "--listen", "127.0.0.1:0", "--config", file)
	r.addr = r.started()
	eventually(s.t, func() error { return r.ready() })
	s.replicas = append(s.replicas, r)
	return r
}

// startReplicas starts the replicas r1 to r<count> and waits until each of them sees exactly so
// many nodes.
func (s *system) startReplicas(count, nodes int, env ...string) []*replica {
	s.t.Helper()
	replicas := make([]*replica, count)
	for i := range replicas {
		replicas[i] = s.startReplica(fmt.Sprintf("r%d", i+1), env...)
	}
	for _, r := range replicas {
		r.awaitNodes(nodes)
	}
	return replicas
}

// writeConfig writes a configuration file.
func writeConfig(t *testing.T, file string, config map[string]any) {
	t.Helper()
	data, err := json.Marshal(config) // JSON is YAML, too
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// started reads the address from the line that logs the start.
func (r *replica) started() string {
	r.t.Helper()
	for position := 0; ; {
		line, next, err := r.stderr.line(r.t, position)
		if err != nil {
			r.t.Fatalf("replica %s did not start: %v", r.id, err)
		}
		position = next
		var event struct{ Event, Address string }
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			r.t.Errorf("replica %s logs a line that is not JSON: %s", r.id, line)
		}
		if event.Event == "replica.started" {
			return event.Address
		}
	}
}

func (r *replica) ws() string   { return "ws://" + r.addr }
func (r *replica) http() string { return "http://" + r.addr }

// ready is nil when /readyz is green.
func (r *replica) ready() error {
	var body struct{ Ready bool }
	status, err := r.get("/readyz", &body)
	if err == nil && (status != http.StatusOK || !body.Ready) {
		err = fmt.Errorf("/readyz of %s says %d, ready %t", r.id, status, body.Ready)
	}
	return err
}

// get decodes what a path answers.
func (r *replica) get(path string, v any) (status int, err error) {
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.http()+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	return do(req, v)
}

var httpClient = &http.Client{Timeout: waittest.Limit, Transport: &http.Transport{DisableKeepAlives: true}}

func do(req *http.Request, v any) (status int, err error) {
	resp, err := httpClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return resp.StatusCode, fmt.Errorf("%s answers %q: %w", req.URL, data, err)
	}
	return resp.StatusCode, nil
}

// nodeView is a node as a replica shows it.
type nodeView struct {
	ID     string `json:"node_id"`
	Status string `json:"status"`
	Used   int    `json:"used"`
	// Connection is empty for agents that are connected to Redis.
	Connection struct {
		Replica string `json:"replica"`
	} `json:"connection"`
}

// nodes are the nodes as a replica sees them.
func (r *replica) nodes() (map[string]nodeView, error) {
	var page struct {
		Nodes []nodeView `json:"nodes"`
	}
	if status, err := r.get("/v1/nodes", &page); err != nil || status != http.StatusOK {
		return nil, fmt.Errorf("nodes of %s: status %d: %w", r.id, status, err)
	}
	nodes := make(map[string]nodeView)
	for _, n := range page.Nodes {
		nodes[n.ID] = n
	}
	return nodes, nil
}

// status is nil when the replica sees the node with this status.
func (r *replica) status(node string, want freeslot.Status) error {
	nodes, err := r.nodes()
	if err == nil && nodes[node].Status != string(want) {
		err = fmt.Errorf("replica %s sees %s %q, expected %s", r.id, node, nodes[node].Status, want)
	}
	return err
}

// awaitNodes waits until the replica sees exactly so many nodes.
func (r *replica) awaitNodes(n int) {
	r.t.Helper()
	eventually(r.t, func() error {
		nodes, err := r.nodes()
		if err == nil && len(nodes) != n {
			err = fmt.Errorf("replica %s sees %d nodes, expected %d", r.id, len(nodes), n)
		}
		return err
	})
}

// idle is nil when no node has a slot in use, as this replica sees it.
func (r *replica) idle() error {
	nodes, err := r.nodes()
	for _, n := range nodes {
		if n.Used != 0 {
			err = errors.Join(err, fmt.Errorf("replica %s sees %d slots in use on %s", r.id, n.Used, n.ID))
		}
	}
	return err
}
