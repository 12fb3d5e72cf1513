package replica

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestAutoscaleExec: a job that waits for the first node of its pool has the command told to start
// one.
func TestAutoscaleExec(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "told")
	cfg := configured(t)
	cfg.HeartbeatInterval, cfg.HeartbeatLimit = 100*time.Millisecond, 200*time.Millisecond
	cfg.Pools = selection.Pools{{
		ID: "gpu", Services: []string{"asr"}, TargetWait: "1s", Expects: &selection.Expects{Services: []string{"asr"}, Slots: 4},
	}}
	command := &cfg.Autoscale.Exec
	command.Argv = []string{"sh", "-c", `echo "$1 $2" >"$3"`, "sh", "{pool}", "{nodes}", file}
	command.Pools, command.MaxNodes = []string{"gpu"}, 5
	r := began(t, cfg)
	if got := sendBody(t, r, http.MethodPost, "/v1/jobs", `{"service": "asr"}`, ""); got.status >= 300 {
		t.Fatalf("the submit answers %d %s", got.status, got.text)
	}
	waittest.Until(t, "the command to be told of one node", func() bool {
		told, _ := os.ReadFile(file)
		return string(told) == "gpu 1\n"
	})
}
