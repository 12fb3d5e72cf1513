package e2e

import (
	"fmt"
	"net/http"
	"testing"
)

// TestRetention has a replica that keeps the records of finished jobs for a second, and an agent
// that has no such setting: it is the replica's that counts.
func TestRetention(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.startAgent(nodeSpec{id: "node-a", slots: 1}, newService(t, nil))
	r := s.startReplicas(1, 1, "FREESLOT_RETENTION=1s")[0]
	ours := submitOurs(t, r.ws(), anyJobs(1))
	waitOurs(t, ours)
	eventually(t, func() error {
		var body any
		status, err := r.get("/v1/jobs/"+ours[0].ID(), &body)
		if err == nil && status != http.StatusNotFound {
			err = fmt.Errorf("the record is still there (status %d)", status)
		}
		return err
	})
}
