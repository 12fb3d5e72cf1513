package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/process/metrics"
	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestStartWhileOneCannotServe: one of two servers takes no writes when a replica starts. The
// replica serves the other one, and also the first once it is a master.
func TestStartWhileOneCannotServe(t *testing.T) {
	t.Parallel()
	for i := range 2 {
		t.Run(fmt.Sprint("server ", i), func(t *testing.T) {
			t.Parallel()
			servers := []*redistest.Server{redistest.New(t), redistest.New(t)}
			role := func(args ...string) {
				t.Helper()
				c := servers[i].Client(t)
				if err := c.Do(t.Context(), c.B().Arbitrary("REPLICAOF").Args(args...).Build()).Error(); err != nil {
					t.Fatal(err)
				}
			}
			role("127.0.0.1", "1")
			cfg := config.DefaultReplica()
			cfg.Listen, cfg.DrainTimeout = "127.0.0.1:0", 10*time.Second
			cfg.Redis.URL, cfg.Redis.URLs, cfg.Redis.Cells = "", []string{servers[0].URL(), servers[1].URL()}, 2
			cfg.Cache.BatchRefreshInterval = 50 * time.Millisecond
			r := replica.New(cfg, zap.NewNop(), metrics.NewRegistry())
			if err := r.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			s := &system{replica: r, url: "http://" + r.Addr()}
			defer s.stop(t)
			becomes := func(degraded bool) {
				t.Helper()
				waittest.Until(t, fmt.Sprintf("readiness with a cell that has not answered: %v", degraded), func() bool {
					status, body := s.call(t, "GET", "/readyz", "")
					return status == http.StatusOK && strings.Contains(fmt.Sprint(body), "1 of 2 cells have not answered") == degraded
				})
			}
			becomes(true)
			role("NO", "ONE")
			becomes(false)
		})
	}
}
