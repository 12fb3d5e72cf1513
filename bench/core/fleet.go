package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// benchService is what all nodes of a benchmark have.
const benchService = "translate"

// benchPools is how many pools a fleet has.
const benchPools = 100

// languages of which each node and each pool has a pair.
var languages = []string{"de", "en", "es", "fr", "it", "ja", "ko", "pt-BR", "ru", "zh-Hant"}

func benchNodeID(i int) string { return "node-" + strconv.Itoa(i) }

// pair is the language pair of the i-th pool: the pools go round the pairs.
func pair(i int) (source, target string) {
	n := len(languages)
	return languages[i%n], languages[(i%n+1+i/n%(n-1))%n]
}

// benchNode is the i-th node of a fleet: in pool i%pools, with the pair of that pool and one more, three
// services, and labels.
func benchNode(i, pools int) freeslot.Node {
	source, target := pair(i % pools)
	return freeslot.Node{
		ID: benchNodeID(i), MaxConcurrency: 64,
		Services:  []freeslot.Service{{Name: benchService, Version: "2.1.0"}, {Name: "asr", Version: "1.4.2"}, {Name: "tts", Version: "3.0.1"}},
		Languages: freeslot.Languages{ASR: []string{source, "nl"}, TTS: []string{target, "nl"}},
		Pools:     []string{poolID(i % pools)},
		Labels:    map[string]string{"zone": fmt.Sprintf("eu-%d", i%3), "gpu": []string{"T4", "A10", "A100", "H100"}[i/pools%4]},
	}
}

func poolID(i int) string { return "pool-" + strconv.Itoa(i) }

// benchJob is a job of about 300 bytes.
func benchJob() *freeslot.Job {
	return &freeslot.Job{Service: benchService, Payload: json.RawMessage(`"` + strings.Repeat("x", 256) + `"`)}
}

// registerCallers register side by side, on one connection.
const registerCallers = 32

// registerFleet registers n nodes, under epochs, which gets its missing entries, or under any when it is nil.
func registerFleet(ctx context.Context, c *cell.Cell, n int, epochs []cell.Epoch) error {
	var callers sync.WaitGroup
	errs := make([]error, registerCallers)
	for w := range registerCallers {
		callers.Go(func() {
			for i := w; i < n && errs[w] == nil; i += registerCallers {
				epoch := cell.NewEpoch()
				if epochs != nil {
					epochs[i] = cmp.Or(epochs[i], epoch)
					epoch = epochs[i]
				}
				_, errs[w] = c.Register(ctx, benchNode(i, benchPools), epoch)
			}
		})
	}
	callers.Wait()
	return errors.Join(errs...)
}
