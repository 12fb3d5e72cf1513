package main

import (
	"net/http"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot/internal/process/metrics"
	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestPauseOfAllReplicas: after the answer to a pause at one replica, jobs wait at the other one
// too. They run after the pause.
func TestPauseOfAllReplicas(t *testing.T) {
	t.Parallel()
	var cfg config.Replica
	first := startSystem(t, func(c *config.Replica) { cfg = *c })
	cfg.ReplicaID = "second"
	r := replica.New(cfg, zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)), metrics.NewRegistry())
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := &system{replica: r, url: "http://" + r.Addr()}
	t.Cleanup(func() { second.stop(t) })
	second.await(t, "node-1")

	for _, s := range []*system{first, second} {
		status, body := s.call(t, http.MethodPost, "/v1/services/echo/pause", `{"note":"a test"}`)
		if status != http.StatusOK || body["confirmed"] != true {
			t.Fatal(status, body)
		}
		var ids []string
		for _, at := range []*system{first, second} {
			status, body := at.call(t, http.MethodPost, "/v1/jobs", `{"service":"echo","payload":1}`)
			if status != http.StatusAccepted || body["state"] != "waiting" {
				t.Fatal(status, body)
			}
			ids = append(ids, body["job_id"].(string))
		}
		status, body = s.call(t, http.MethodGet, "/v1/queues", "")
		queues, _ := body["queues"].([]any)
		if q, _ := append(queues, map[string]any{})[0].(map[string]any); status != http.StatusOK || q["waiting"] != 2.0 || q["paused"] != true || q["fits"] != 1.0 {
			t.Error(status, body)
		}
		if status, body := s.call(t, http.MethodPost, "/v1/services/echo/resume", ""); status != http.StatusOK {
			t.Fatal(status, body)
		}
		for _, id := range ids {
			var state any
			waittest.Until(t, "the job's success after the pause", func() bool {
				_, body := second.call(t, http.MethodGet, "/v1/jobs/"+id, "")
				state = body["state"]
				return state == "succeeded"
			}, func() any { return state })
			if status, body := second.call(t, http.MethodDelete, "/v1/jobs/"+id, ""); status != http.StatusOK || body["state"] != "succeeded" {
				t.Error(status, body)
			}
		}
	}
}
