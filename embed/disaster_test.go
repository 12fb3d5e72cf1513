package embed_test

import (
	"context"
	"os"
	"strconv"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/embed"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/worker"
)

// cellNode starts a node in a cell, which alone has the services echo-<cell> and hold-<cell>.
func (f *fleet) cellNode(url string, of int) {
	f.t.Helper()
	id := ""
	for i := 0; id == "" || cell.NodeCell(id, f.cfg.Cells) != of; i++ {
		id = "node-" + strconv.Itoa(i)
	}
	w, err := worker.New(worker.Config{
		RedisURL: url, KeyPrefix: f.cfg.KeyPrefix, Cells: f.cfg.Cells, Node: freeslot.Node{ID: id, MaxConcurrency: 4},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	w.Handle("echo-"+strconv.Itoa(of), func(_ context.Context, job *worker.Job) (any, error) { return job.Payload, nil })
	w.Handle("hold-"+strconv.Itoa(of), func(ctx context.Context, _ *worker.Job) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if err := w.Start(deadline(f.t)); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		ended, end := context.WithCancel(context.Background())
		end()
		_ = w.Stop(ended)
	})
}

// TestDisasterMasterLost: a master of a cluster is gone with its data, and has no replica. Other
// cells go on meanwhile. Once a server has its hash slots again, its jobs are answered as lost, and
// its node comes back by itself. docs/disaster.md says what this shows.
func TestDisasterMasterLost(t *testing.T) {
	t.Parallel()
	if os.Getenv("FREESLOT_DISASTER") != "1" {
		t.Skip("it takes some ten seconds: make disaster-test")
	}
	cluster := redistest.NewCluster(t)
	for _, addr := range cluster.Addrs() { // as deploy/redis/cluster.conf has it
		set := redistest.Ask(deadline(t), addr, "CONFIG", "SET", "cluster-require-full-coverage", "no")
		if err := set.Error(); err != nil {
			t.Fatal(err)
		}
	}
	f := &fleet{t: t, cfg: embed.Config{RedisURL: cluster.AdminURL(), KeyPrefix: "lost", Cells: 3}}
	for of := range f.cfg.Cells {
		f.cellNode(cluster.AdminURL(), of)
	}
	r := f.start(nil)
	run := func(of int) {
		t.Helper()
		waittest.Succeeds(t, "a job to run in cell "+strconv.Itoa(of), func() error {
			status, err := r.Run(deadline(t), freeslot.Job{Service: "echo-" + strconv.Itoa(of)})
			if err == nil && status.State != freeslot.StateSucceeded {
				t.Errorf("the job is %s; want succeeded", status.State)
			}
			return err
		})
	}
	for of := range f.cfg.Cells {
		run(of)
	}
	const last = 2 // the first cell has what operators have set up
	held := submit(t, r, freeslot.Job{Service: "hold-" + strconv.Itoa(last)})
	<-held.Assigned()
	slot, _ := cell.Layouts(f.cfg.KeyPrefix, f.cfg.Cells, true)[last].Slot()
	masters := cluster.Processes() // in the order of their hash slots
	master := masters[slot*len(masters)/16384]
	if err := master.Kill(); err != nil {
		t.Fatal(err)
	}
	run(0)
	run(1)
	if err := master.Restart(deadline(t)); err != nil { // without its data
		t.Fatal(err)
	}
	run(last)
	if s := wait(t, held); s.Error == nil || s.Error.Code != freeslot.JobErrorLost {
		t.Errorf("the job of the lost cell ended as %+v; want the error lost", s)
	}
	run(0)
}
