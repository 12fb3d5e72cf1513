package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestLockedPictureServesJobs: a replica that chooses from the lock-based picture serves jobs as any
// other: it fills all slots, lets the next job wait for a slot, and refuses what no node fits.
func TestLockedPictureServesJobs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte("[lockless_cache]\nenabled = false\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := (&serveCmd{configFlags: configFlags{Config: file}}).load([]string{})
	if err != nil || !loaded.Locked.Enabled {
		t.Fatalf("loaded %+v and %v, expected the lock-based picture to be chosen from", loaded.Locked, err)
	}
	s := startSystem(t, func(cfg *config.Replica) { cfg.Locked = loaded.Locked })

	for i := range 20 {
		status, body := s.call(t, http.MethodPost, "/v1/jobs?wait_ms=60000", fmt.Sprintf(`{"service":"echo","payload":%d}`, i))
		if status != http.StatusOK || body["state"] != "succeeded" || body["result"] != float64(i) {
			t.Fatalf("job %d: %d %v, expected it to succeed with its payload", i, status, body)
		}
	}
	for i := range 4 {
		status, body := s.call(t, http.MethodPost, "/v1/jobs", `{"service":"block"}`)
		if status != http.StatusAccepted || body["state"] != "running" {
			t.Fatalf("job %d of 4 slots: %d %v, expected running", i+1, status, body)
		}
	}
	status, body := s.call(t, http.MethodPost, "/v1/jobs", `{"service":"echo","payload":"next"}`)
	if status != http.StatusAccepted || body["state"] != "waiting" {
		t.Fatalf("the job that comes when all slots are taken: %d %v, expected waiting", status, body)
	}
	close(s.release)
	state := func() any {
		_, now := s.call(t, http.MethodGet, fmt.Sprintf("/v1/jobs/%v", body["job_id"]), "")
		return now["state"]
	}
	waittest.Until(t, "the job that waited to succeed", func() bool { return state() == "succeeded" }, state)
	if status, body := s.call(t, http.MethodPost, "/v1/jobs", `{"service":"nobody-has-it"}`); status == http.StatusAccepted {
		t.Errorf("a job that no node fits: %d %v, expected a refusal", status, body)
	}
}
