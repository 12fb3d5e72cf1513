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

// startSystem starts this scheduler's processes on a Redis without an append-only file.
func startSystem(ctx context.Context, b *tool.Bench, shape system.Shape) *system.System {
	shape.AOF = system.AOFOff
	return b.StartSystem(ctx, shape)
}

// silentCell is of nodes that send no heartbeats unless these are measured, and may be silent for
// long.
var silentCell = cell.Config{HeartbeatLimit: time.Hour, CallTimeout: measure.CallTimeout}

// newCell makes a started cell on client, and returns how to stop it.
func newCell(ctx context.Context, client rueidis.Client, cfg cell.Config) (c *cell.Cell, stop func()) {
	c = tool.Must(cell.New(cfg, client, zap.NewNop(), nil))
	tool.Check(c.Start(ctx))
	return c, func() { stopQuietly(c.Stop) }
}

// stopQuietly stops what has nothing under way.
func stopQuietly(stop func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	_ = stop(ctx)
}

// registerFleet registers n nodes and returns their epochs.
func registerFleet(ctx context.Context, c *cell.Cell, n int) []cell.Epoch {
	epochs := make([]cell.Epoch, n)
	tool.Together(registerCallers, n, func(i int) {
		epochs[i] = cell.NewEpoch()
		tool.Must(c.Register(ctx, benchNode(i), epochs[i]))
	})
	return epochs
}

// onlineNodes is how many nodes Redis has.
func onlineNodes(ctx context.Context, redis *system.Redis) int64 {
	key := cell.Layout{Prefix: cell.DefaultPrefix}.Online()
	return tool.Must(redis.Client.Do(ctx, redis.Client.B().Scard().Key(key).Build()).AsInt64())
}
