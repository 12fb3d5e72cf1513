package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/redis/rueidis"
	"github.com/rs/zerolog"

	"github.com/freeslot/freeslot/internal/redisproc"
	"github.com/freeslot/freeslot/internal/redistest"
)

const prefix = "faults"

// fleetConfig is how a fleet is set up.
type fleetConfig struct {
	replicas int
	slots    []int // of each node
	cells    int
	// interval and limit are of heartbeats; 0 leaves the defaults.
	interval, limit time.Duration
	// programs is the folder of the binaries; empty is that of this build.
	programs string
}

// fleet is everything that runs, beside the clients.
type fleet struct {
	t        *testing.T
	cfg      fleetConfig
	rec      *Recorder
	folder   string // for configurations and logs
	redis    *redistest.Server
	service  *httptest.Server
	proxies  *toxiproxy.ApiServer
	replicas map[string]string   // name -> address
	nodes    map[string]int      // name -> slots
	programs map[string]*program // replicas and nodes
	ways     map[string]*toxiproxy.Proxy
}

// newFleet starts a fleet and returns when all of it is up.
func newFleet(t *testing.T, rec *Recorder, folder string, cfg fleetConfig) *fleet {
	t.Helper()
	f := &fleet{
		t: t, cfg: cfg, rec: rec, folder: folder,
		redis: redistest.New(t, redistest.AppendOnly("always")), service: newService(t, rec),
		proxies:  toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		replicas: map[string]string{}, nodes: map[string]int{}, programs: map[string]*program{}, ways: map[string]*toxiproxy.Proxy{},
	}
	t.Cleanup(func() {
		for _, way := range f.ways {
			way.Stop()
		}
	})
	for i := range cfg.replicas {
		f.addReplica("r" + strconv.Itoa(i+1))
	}
	for i, slots := range cfg.slots {
		f.addNode("n"+strconv.Itoa(i+1), slots)
	}
	for _, p := range f.programs {
		p.start()
	}
	f.awaitUp(startLimit)
	return f
}

func (f *fleet) addReplica(name string) {
	port, err := redisproc.FreePort()
	if err != nil {
		f.t.Fatal(err)
	}
	f.replicas[name] = "127.0.0.1:" + strconv.Itoa(port)
	config := map[string]any{
		"listen": f.replicas[name], "redis": f.redisConfig(name), "drain_timeout": "3s",
	}
	if name == "r1" { // the others have a new name at each start
		config["replica_id"] = name
	}
	if f.cfg.limit > 0 {
		config["heartbeat_interval"], config["heartbeat_limit"] = f.cfg.interval.String(), f.cfg.limit.String()
	}
	f.programs[name] = newProgram(f.t, f.rec, f.folder, name, "replica.started", f.path("scheduler"), "serve", "--config", f.write(name, config))
}

func (f *fleet) addNode(name string, slots int) {
	f.nodes[name] = slots
	config := map[string]any{
		"node":         map[string]any{"id": name, "max_concurrency": slots},
		"services":     []any{map[string]any{"name": serviceName, "http": map[string]any{"url": f.service.URL + "/" + name, "timeout": "2m"}}},
		"redis":        f.redisConfig(name),
		"stop_timeout": "1s",
	}
	if f.cfg.interval > 0 {
		config["heartbeat_interval"] = f.cfg.interval.String()
	}
	f.programs[name] = newProgram(f.t, f.rec, f.folder, name, "agent.started", f.path("nodeagent"), "--config", f.write(name, config))
}

func (f *fleet) path(program string) string {
	if f.cfg.programs != "" {
		return filepath.Join(f.cfg.programs, program)
	}
	return filepath.Join(programs, program)
}

// write writes a configuration file and returns its name.
func (f *fleet) write(name string, config map[string]any) string {
	data, err := json.Marshal(config) // JSON is YAML, too
	if err != nil {
		f.t.Fatal(err)
	}
	file := filepath.Join(f.folder, name+".yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		f.t.Fatal(err)
	}
	return file
}

// redisConfig leads to Redis by a proxy of the program's own.
func (f *fleet) redisConfig(name string) map[string]any {
	// Not one that the kernel gives to those who connect: whoever dials a way that is cut could be given its own port.
	port, err := redisproc.FreePort()
	if err != nil {
		f.t.Fatal(err)
	}
	way := toxiproxy.NewProxy(f.proxies, name, "127.0.0.1:"+strconv.Itoa(port), f.redis.Process().Addr())
	if err := way.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.ways[name] = way
	return map[string]any{"url": "redis://" + way.Listen, "key_prefix": prefix, "cells": f.cfg.cells}
}

// urls are the replicas as clients take them, the named one first.
func (f *fleet) urls(first string) string {
	list := []string{"ws://" + f.replicas[first]}
	for name, addr := range f.replicas {
		if name != first {
			list = append(list, "ws://"+addr)
		}
	}
	return strings.Join(list, ",")
}

// awaitUp waits until every program has told that it is up.
func (f *fleet) awaitUp(limit time.Duration) {
	f.t.Helper()
	timeout := time.After(limit)
	for name, p := range f.programs {
		select {
		case <-p.isUp():
		case <-timeout:
			f.t.Fatalf("%s is not up after %s; see %s", name, limit, f.folder)
		}
	}
}

// client speaks to Redis itself, by no proxy. The caller closes it.
func (f *fleet) client() (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{f.redis.Process().Addr()}, DisableCache: true, DisableRetry: true, ConnWriteTimeout: 5 * time.Second,
	})
}

// do sends one command to Redis.
func (f *fleet) do(ctx context.Context, command ...string) error {
	client, err := f.client()
	if err != nil {
		return fmt.Errorf("connect to Redis: %w", err)
	}
	defer client.Close()
	return client.Do(ctx, client.B().Arbitrary(command...).Build()).Error()
}
