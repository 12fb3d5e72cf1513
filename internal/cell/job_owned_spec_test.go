package cell

import (
	"testing"

	"github.com/freeslot/freeslot"
)

// TestOwnedSpec: a node reads the jobs that it owns, and no others.
func TestOwnedSpec(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch, other := r.register(testNode("n1", 4)), r.register(testNode("n2", 1))
		own, ended, foreign := r.place("", 2, "n1"), r.place("", 1, "n1"), r.place("", 1, "n2")
		r.end("n1", epoch, ended)
		cancelling := r.place("", 1, "n1")
		if _, err := r.Cancel(r.ctx(), "", cancelling); err != nil {
			t.Fatal(err)
		}
		waiting := r.waits("")
		r.unchanged("reading", func() {
			for _, job := range []string{own, cancelling} {
				spec, tenant, err := r.OwnedSpec(r.ctx(), "n1", epoch, job)
				if err != nil || tenant != "acme" || spec.Service != "echo" || string(spec.Payload) != `{"n":1}` {
					t.Errorf("own job: %+v of %q, %v", spec, tenant, err)
				}
			}
			for name, of := range map[string]struct {
				node  string
				epoch Epoch
				job   string
			}{
				"another node's job":       {"n1", epoch, foreign},
				"own job, as another node": {"n2", other, own},
				"own job, another epoch":   {"n1", other, own},
				"a job that has ended":     {"n1", epoch, ended},
				"a job that waits":         {"n1", epoch, waiting},
				"no job":                   {"n1", epoch, NewJobID(0)},
				"no node":                  {"n3", epoch, own},
			} {
				if job, tenant, err := r.OwnedSpec(r.ctx(), of.node, of.epoch, of.job); job != nil || tenant != "" || freeslot.CodeOf(err) != freeslot.CodeNotFound {
					t.Errorf("%s: %+v of %q, %v", name, job, tenant, err)
				}
			}
		}, nil)
		// A new epoch takes the node over: the former one reads nothing any more.
		r.register(testNode("n1", 4))
		_, _, err := r.OwnedSpec(r.ctx(), "n1", epoch, own)
		wantErr(t, err, freeslot.CodeNotFound)
		// What an operator left of a record.
		r.do("HDEL", r.l.Job(foreign), "spec")
		_, _, err = r.OwnedSpec(r.ctx(), "n2", other, foreign)
		wantErr(t, err, freeslot.CodeNotFound)
	})
}
