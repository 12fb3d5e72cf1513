package faults

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/redis/rueidis"
	"github.com/rs/zerolog"

	"github.com/freeslot/freeslot/internal/cell"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

const prefix = "faults"

// fleetConfig is how a fleet is set up.
type fleetConfig struct {
	replicas int
	slots    []int // of each node
	cells    int
	// interval and limit are of heartbeats; 0 leaves the defaults.
	interval, limit time.Duration
	// programs is the folder of the binaries; empty is the folder of this build.
	programs string
	// store is the fleet's Redis where that is not a server of its own, each program with a proxy
	// to it.
	store *store
	// rate is jobs a second; 0 leaves it to the seed.
	rate float64
	// quick makes most jobs short.
	quick bool
	// varied: there are jobs of all kinds, of several tenants and classes, and an operator who
	// drains nodes.
	varied bool
	// metrics has the agents serve theirs, as replicas always do.
	metrics bool
	// replica are further settings of replicas, and each those of one of them, by its name.
	replica map[string]any
	each    func(f *fleet, name string) map[string]any
	// fsync is Redis' appendfsync; empty is always, for runs in which it is killed.
	fsync string
	// users has the programs connect as users of Redis, each with the rights of its kind. It is for
	// a Redis of the fleet's own.
	users bool
	// linked are the nodes with a token: replicas are gateways for them. Those that the fleet runs
	// reach each gateway by a proxy.
	linked []string
}

// store is a Redis that something else runs.
type store struct {
	url     string // as programs are configured with
	cluster bool
	// loses: it can lose what it has acknowledged.
	loses bool
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
	metrics  map[string]string   // name -> address
	nodes    map[string]int      // name -> slots
	classes  map[string]string   // name -> class, where the load is varied
	programs map[string]*program // replicas and nodes
	ways     map[string]*toxiproxy.Proxy
}

// newFleet starts a fleet and returns when all of it is up.
func newFleet(t *testing.T, rec *Recorder, folder string, cfg fleetConfig) *fleet {
	t.Helper()
	f := &fleet{
		t: t, cfg: cfg, rec: rec, folder: folder,
		service:  newService(t, rec),
		proxies:  toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		replicas: map[string]string{}, metrics: map[string]string{}, nodes: map[string]int{}, classes: map[string]string{}, programs: map[string]*program{}, ways: map[string]*toxiproxy.Proxy{},
	}
	if cfg.store == nil {
		f.redis = redistest.New(t, redistest.AppendOnly(cmp.Or(cfg.fsync, "always")))
	}
	t.Cleanup(func() {
		for _, way := range f.ways {
			way.Stop()
		}
	})
	if cfg.users {
		f.setUsers(f.path("schedctl"))
	}
	if len(cfg.linked) > 0 {
		f.writeTokens()
	}
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
	f.replicas[name] = f.freeAddr()
	f.metrics[name] = f.replicas[name]
	config := map[string]any{
		"listen": f.replicas[name], "redis": f.redisConfig(name), "drain_timeout": "3s",
	}
	maps.Copy(config, f.cfg.replica)
	if len(f.cfg.linked) > 0 {
		config["gateway"] = map[string]any{"tokens_file": filepath.Join(f.folder, tokensFile)}
	}
	if f.cfg.varied {
		maps.Copy(config, varied(f.cfg.cells))
	}
	if f.cfg.each != nil {
		maps.Copy(config, f.cfg.each(f, name))
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
	node := map[string]any{"id": name, "max_concurrency": slots}
	if f.cfg.varied {
		f.classes[name] = classes[len(f.classes)%len(classes)]
		node["labels"] = map[string]any{classLabel: f.classes[name]}
	}
	config := map[string]any{
		"node":         node,
		"services":     []any{map[string]any{"name": serviceName, "http": map[string]any{"url": f.service.URL + "/" + name, "timeout": "2m"}}},
		"stop_timeout": "1s",
	}
	if slices.Contains(f.cfg.linked, name) {
		config["gateway"], config["token_file"] = f.gateways(name), f.writeToken(name)
	} else {
		config["redis"] = f.redisConfig(name)
	}
	if f.cfg.interval > 0 {
		config["heartbeat_interval"] = f.cfg.interval.String()
	}
	if f.cfg.metrics {
		f.metrics[name] = f.freeAddr()
		config["metrics_listen"] = f.metrics[name]
	}
	f.programs[name] = newProgram(f.t, f.rec, f.folder, name, "agent.started", f.path("nodeagent"), "--config", f.write(name, config))
}

func (f *fleet) freeAddr() string {
	f.t.Helper()
	port, err := redisserver.FreePort()
	if err != nil {
		f.t.Fatal(err)
	}
	return "127.0.0.1:" + strconv.Itoa(port)
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

func (f *fleet) redisConfig(name string) map[string]any {
	return map[string]any{"url": f.redisURL(name), "key_prefix": prefix, "cells": f.cfg.cells}
}

// redisURL leads to Redis, where it is the fleet's own by a proxy of the program's own.
func (f *fleet) redisURL(name string) string {
	if f.cfg.store != nil {
		return f.cfg.store.url
	}
	return f.way(name)
}

// way makes a proxy to Redis and returns its URL.
func (f *fleet) way(name string) string {
	user := ""
	if f.cfg.users {
		user = userRoles[name[0]] + ":" + userPassword + "@"
	}
	return "redis://" + user + f.wayTo(name, f.redis.Process().Addr())
}

// wayTo makes a proxy to an address and returns its own.
func (f *fleet) wayTo(name, to string) string {
	f.t.Helper()
	// Not a port from the kernel's range for clients: a client of a cut way could get the way's own
	// port.
	port, err := redisserver.FreePort()
	if err != nil {
		f.t.Fatal(err)
	}
	way := toxiproxy.NewProxy(f.proxies, name, "127.0.0.1:"+strconv.Itoa(port), to)
	if err := way.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.ways[name] = way
	return way.Listen
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

// upAgain is how often awaitUp looks which process of a program is the present one.
const upAgain = 100 * time.Millisecond

// awaitUp waits until every program has logged that it is up.
func (f *fleet) awaitUp(limit time.Duration) {
	f.t.Helper()
	timeout := time.After(limit)
	for name, p := range f.programs {
		for up := false; !up; {
			select {
			case <-p.isUp():
				up = true
			case <-time.After(upAgain): // it may have ended meanwhile, and another process of it is to come up
			case <-timeout:
				f.t.Fatalf("%s is not up after %s; see %s", name, limit, f.folder)
			}
		}
	}
}

// client speaks to Redis itself, by no proxy. The caller closes it.
func (f *fleet) client() (rueidis.Client, error) {
	url := ""
	if f.cfg.store != nil {
		url = f.cfg.store.url
	} else {
		url = f.redis.Process().URL()
	}
	option, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	option.DisableCache, option.DisableRetry, option.ConnWriteTimeout = true, true, 5*time.Second
	option.ForceSingleClient = f.cfg.store == nil || !f.cfg.store.cluster
	return rueidis.NewClient(option)
}

// layout names the keys of a node's cell.
func (f *fleet) layout(node string) cell.Layout {
	layouts := cell.Layouts(prefix, f.cfg.cells, f.cfg.store != nil && f.cfg.store.cluster)
	return layouts[cell.NodeCell(node, len(layouts))]
}

// number reads one counter from Redis.
func (f *fleet) number(key string) (int, error) {
	client, err := f.client()
	if err != nil {
		return 0, fmt.Errorf("connect to Redis: %w", err)
	}
	defer client.Close()
	n, err := client.Do(f.t.Context(), client.B().Get().Key(key).Build()).AsInt64()
	return int(n), err
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
