package console

import (
	"fmt"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// busy gives the fleet two nodes and a job in each state that a list shows, and returns the jobs'
// ids by what became of them.
func (f *fleet) busy(r *replica, token string) map[string]string {
	f.t.Helper()
	f.node(freeslot.Node{
		ID: "node-en", MaxConcurrency: 4, Services: services("echo", "break", "fail"), Labels: map[string]string{"gpu": "a100"},
	})
	f.node(freeslot.Node{ID: "node-de", MaxConcurrency: 1, Services: services("hold")})
	r.nodes(token, 2)
	ids := map[string]string{
		"succeeded": r.submit(token, `{"service":"echo","payload":{"hello":"world","n":9007199254740993}}`),
		"dead":      r.submit(token, `{"service":"break","payload":"m7","max_attempts":2}`),
		"failed":    r.submit(token, `{"service":"fail","payload":[1,2]}`),
		"running":   r.submit(token, `{"service":"hold"}`),
	}
	r.state(token, ids["running"], "running")
	ids["waiting"] = r.submit(token, `{"service":"hold","priority":3}`)
	for _, state := range []string{"succeeded", "dead", "failed", "waiting"} {
		r.state(token, ids[state], state)
	}
	return ids
}

// nodes waits until the replica knows that many nodes.
func (r *replica) nodes(token string, want int) {
	r.t.Helper()
	waittest.Succeeds(r.t, fmt.Sprintf("%d nodes", want), func() error {
		var page struct{ Nodes []struct{} }
		if err := r.get("/v1/nodes", token, &page); err != nil || len(page.Nodes) == want {
			return err
		}
		return fmt.Errorf("the replica knows %d", len(page.Nodes))
	})
}
