package replica

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/listener"
	"github.com/freeslot/freeslot/internal/testing/certtest"
)

// said returns severity, id and text of each finding, a line each.
func said(found []finding.Finding) string {
	lines := make([]string, len(found))
	for i, f := range found {
		lines[i] = string(f.Severity) + " " + f.ID + ": " + f.Text
	}
	return strings.Join(lines, "\n")
}

func TestUnready(t *testing.T) {
	t.Parallel()
	is := func(ok bool, detail string) func() (bool, string) { return func() (bool, string) { return ok, detail } }
	got := said(unready([]api.Check{
		{Name: "cache", Ready: is(true, "")},
		{Name: "redis", Ready: is(true, "degraded: 1 of 2 cells")},
		{Name: "writes", Ready: is(false, "Redis refuses writes: READONLY")},
	}))
	const want = "warning replica.redis: 1 of 2 cells\ncritical replica.writes: Redis refuses writes: READONLY"
	if got != want {
		t.Errorf("findings %q; want %q", got, want)
	}
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	now := time.Now()
	queue := func(service string, waiting, fits, paused int, oldest time.Duration) dispatch.Queue {
		return dispatch.Queue{
			Queue:   cell.Queue{Waiting: waiting, OldestMS: now.Add(-oldest).UnixMilli(), First: "job-" + service},
			Service: service, Fits: fits, PausedNodes: paused,
		}
	}
	expected := queue("expected", 9, 0, 0, time.Second)
	expected.Expected = []string{"gpu"}
	found := waiting([]dispatch.Queue{
		expected,
		queue("none", 3, 0, 0, time.Second), queue("paused", 2, 4, 4, time.Hour), queue("partly", 5, 4, 3, time.Second),
		queue("late", 1, 2, 0, time.Hour), queue("nothing", 1, 0, 0, time.Minute),
	}, now.Add(-5*time.Minute))
	const want = "critical queues.unserved: 4 jobs wait, and no node fits\n" +
		"warning queues.paused: 2 jobs wait, and none begins because something is paused\n" +
		"warning queues.late: 1 job waits, and the oldest has waited for 1h0m0s"
	if got := said(found); got != want {
		t.Fatalf("findings\n%s\nwant\n%s", got, want)
	}
	if want := []string{"none (job job-none)", "nothing (job job-nothing)"}; !slices.Equal(found[0].Names, want) {
		t.Errorf("names %q; want %q", found[0].Names, want)
	}
	if want := now.Add(-time.Minute).UnixMilli(); found[0].SinceMS != want {
		t.Errorf("since %d; want %d, when the oldest was submitted", found[0].SinceMS, want)
	}
}

func TestNodesFound(t *testing.T) {
	t.Parallel()
	at := time.Now()
	nodes := []cache.LostNode{
		{ID: "back", At: []time.Time{at}, Back: true},
		{ID: "flaps", At: []time.Time{at, at, at}, Back: true},
		{ID: "gone", At: []time.Time{at}},
	}
	const want = "warning nodes.lost: 1 node fell silent within the last hour and did not come back\n" +
		"warning nodes.flapping: 1 node fell silent 3 times or more within the last hour"
	if got := said(lost(nodes, 3)); got != want {
		t.Errorf("findings %q; want %q", got, want)
	}
	if got := said(lost(nodes[:1], 3)); got != "" {
		t.Errorf("findings %q for a node that is back; want none", got)
	}
	many := []cache.SilentNode{{ID: "a"}, {ID: "b"}}
	if got, want := said(silent(many, false)), "warning nodes.silent: 2 nodes are silent and get no jobs"; got != want {
		t.Errorf("findings %q; want %q", got, want)
	}
	if got := silent(many, true); got[0].Severity != finding.Critical {
		t.Errorf("severity %s while too many are silent at a time; want critical", got[0].Severity)
	}
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	authority := certtest.NewAuthority(t)
	authority.Write(t, cert, key, "localhost")
	served := listener.NewTLS("tls", listener.Files{Cert: cert, Key: key}, zap.NewNop(), nil)
	files, err := served.Config()
	if err != nil {
		t.Fatal(err)
	}
	expiry, _ := served.Expiry()
	left := time.Until(expiry)
	if got := said(certificates(left-time.Minute, []*listener.TLS{nil, served})); got != "" {
		t.Errorf("findings %q before the time; want none", got)
	}
	if got := said(certificates(left+time.Minute, []*listener.TLS{served})); !strings.HasPrefix(got, "warning certificate.tls: ") {
		t.Errorf("findings %q; want a warning about tls", got)
	}
	authority.WriteFor(t, cert, key, "localhost", -time.Minute)
	connect := func() {
		t.Helper()
		if _, err := files.GetConfigForClient(nil); err != nil {
			t.Fatal(err)
		}
	}
	connect()
	if got := said(certificates(time.Hour, []*listener.TLS{served})); !strings.HasPrefix(got, "critical certificate.tls: ") ||
		!strings.Contains(got, " expired at ") {
		t.Errorf("findings %q after the end; want it critical", got)
	}
	authority.WriteFor(t, cert, key, "localhost", 2*time.Hour)
	connect()
	if got := said(certificates(time.Hour, []*listener.TLS{served})); got != "" {
		t.Errorf("findings %q with a new certificate; want none", got)
	}
}
