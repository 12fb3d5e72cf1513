package faults

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestRefusedWrites has Redis answer reads and refuse writes for longer than the heartbeat limit,
// because it cannot save its data. The nodes live all the while: none is reaped, and no job begins
// again for that. Readiness is red and names the reason.
func TestRefusedWrites(t *testing.T) {
	for _, nodes := range []int{1, 20} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			if nodes > 1 && os.Getenv("SHORT") == "1" {
				t.Skip("left out by SHORT=1")
			}
			t.Parallel()
			const limit = 4 * time.Second
			redis := redistest.New(t)
			folder := runFolder(t, strings.ReplaceAll(t.Name(), "/", "-"))
			f := newFleet(t, NewRecorder(), folder, fleetConfig{
				replicas: 2, slots: slices.Repeat([]int{max(3, 12/nodes)}, nodes), cells: 1,
				interval: limit / 4, limit: limit, store: &store{url: redis.Process().URL()},
			})
			history, rested := runLoad(t, f, 1, restLimit, func(ctx context.Context, _ func(string)) {
				pause(ctx, limit+steady) // replicas reap only after a limit of contact
				f.fault("Redis refuses writes")
				undo := redistest.FailSaves(t, redis)
				for name := range f.replicas {
					f.unready(ctx, name, "MISCONF")
				}
				pause(ctx, 2*limit)
				undo()
				up := f.rec.Now()
				f.fault("Redis takes writes again")
				f.resumed(ctx, up, func(string) bool { return true })
				pause(ctx, limit+steady) // by then a replica would have reaped
			})
			judge(t, history, rested, folder, refusedAfter(history, 0)...)
			for name := range f.replicas {
				log, err := os.ReadFile(filepath.Join(folder, name+".log"))
				if err != nil {
					t.Fatal(err)
				}
				if n := strings.Count(string(log), "node.reaped"); n > 0 {
					t.Errorf("%s has reaped %d nodes, all of which live", name, n)
				}
			}
		})
	}
}

// unready waits until a replica is not ready for a reason.
func (f *fleet) unready(ctx context.Context, replica, reason string) {
	f.t.Helper()
	limit, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	said := ""
	for pause(limit, roleInterval) {
		req, err := http.NewRequestWithContext(limit, http.MethodGet, "http://"+f.replicas[replica]+"/readyz", nil)
		if err != nil {
			f.t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			said = err.Error()
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if said = resp.Status + " " + string(text); resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(said, reason) {
			return
		}
	}
	f.t.Errorf("%s says %s, expected it to be unready for the reason %s", replica, said, reason)
}

// TestDemotion has master and replica change their roles behind one address, under load. The former
// master keeps all its connections and refuses writes. Replicas, agents and gateways leave it for
// the new one.
func TestDemotion(t *testing.T) {
	t.Parallel()
	servers := redistest.NewWithReplicas(t, 1)
	address := redistest.NewAddress(t, servers.Target)
	f, folder := newFailover(t, fleetConfig{
		slots: []int{2, 3, 4, 3}, cells: 1, store: &store{url: address.URL(), loses: true}, linked: []string{"n3", "n4"},
	})
	var loss Loss
	history, rested := runLoad(t, f, 1, restLimit, func(ctx context.Context, _ func(string)) {
		pause(ctx, steady)
		loss.From = f.rec.Now() - beforeLoss
		f.fault("master and replica change their roles")
		redistest.Swap(t, servers.Server, servers.Replicas[0])
		address.Lead(servers.Replicas[0].Target)
		loss.To = f.rec.Now()
		f.resumed(ctx, loss.To, func(string) bool { return true })
		pause(ctx, steady)
	})
	history.Losses = []Loss{loss}
	judge(t, history, rested, folder)
}
