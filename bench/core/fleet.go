package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/cell"
)

const (
	// benchService is a service of all nodes.
	benchService = "translate"
	// benchPools is how many pools a fleet has.
	benchPools = 100
	// registerCallers register side by side, on one connection.
	registerCallers = 32
)

// languages: each node and each pool has a pair of them.
var languages = []string{"de", "en", "es", "fr", "it", "ja", "ko", "pt-BR", "ru", "zh-Hant"}

func benchNodeID(i int) string { return "node-" + strconv.Itoa(i) }

func poolID(i int) string { return "pool-" + strconv.Itoa(i) }

// pair is the language pair of the i-th pool: the pools go round the pairs.
func pair(i int) (source, target string) {
	n := len(languages)
	return languages[i%n], languages[(i%n+1+i/n%(n-1))%n]
}

// benchNode is the i-th node of a fleet: in pool i%benchPools, with the pair of that pool and one
// more language, three services, and labels.
func benchNode(i int) freeslot.Node {
	source, target := pair(i % benchPools)
	return freeslot.Node{
		ID: benchNodeID(i), MaxConcurrency: 64,
		Services:  []freeslot.Service{{Name: benchService, Version: "2.1.0"}, {Name: "asr", Version: "1.4.2"}, {Name: "tts", Version: "3.0.1"}},
		Languages: freeslot.Languages{ASR: []string{source, "nl"}, TTS: []string{target, "nl"}},
		Pools:     []string{poolID(i % benchPools)},
		Labels:    map[string]string{"zone": fmt.Sprintf("eu-%d", i%3), "gpu": []string{"T4", "A10", "A100", "H100"}[i/benchPools%4]},
	}
}

// startRedis starts a server without an append-only file and notes its version.
func startRedis(ctx context.Context, b *tool.Bench, args ...string) (*system.Redis, error) {
	s, err := system.StartRedis(ctx, system.AOFOff, args...)
	if err != nil {
		return nil, err
	}
	version, err := measure.RedisVersion(ctx, s.Client)
	b.Result.Servers = version + ", append-only file off"
	return s, err
}

// newCell makes a started cell on client. Nodes of a benchmark send no heartbeats unless these are
// measured, so they may be silent for long.
func newCell(ctx context.Context, client rueidis.Client) (*cell.Cell, error) {
	c, err := cell.New(cell.Config{HeartbeatLimit: time.Hour, CallTimeout: measure.CallTimeout}, client, zap.NewNop(), nil)
	if err != nil {
		return nil, err
	}
	return c, c.Start(ctx)
}

func stopCell(c *cell.Cell) {
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	_ = c.Stop(ctx) // nothing is under way
}

// registerFleet registers n nodes and returns their epochs.
func registerFleet(ctx context.Context, c *cell.Cell, n int) ([]cell.Epoch, error) {
	epochs := make([]cell.Epoch, n)
	return epochs, inParallel(registerCallers, n, func(i int) error {
		epochs[i] = cell.NewEpoch()
		_, err := c.Register(ctx, benchNode(i), epochs[i])
		return err
	})
}
