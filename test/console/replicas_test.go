package console

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestReplicasView: the replicas and their Redis are on the page, and one of another release stands
// out.
func TestReplicasView(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.redis = redistest.New(t, redistest.Args("--maxmemory", "1gb"))
	r := f.replica("r1", "")
	p := newBrowser(t).tab(wide)
	p.open(r.console())
	p.the("navigation", "Views")
	p.press("g", "r")
	p.the("heading", "Replicas")
	p.shows("1 replica,")
	p.shows("master")
	p.shows("of 1 GiB")
	p.lacks("differ")
	p.accessible("a replica")
	if out := r.shell("", p.shown()); !strings.Contains(out, "r1") || !strings.Contains(out, "master") {
		t.Errorf("the line of the view prints %q; want r1 and its master", out)
	}

	f.otherRelease().replica("r2", "")
	p.shows("Replicas run different builds")
	p.shows("differs")
	p.shows("2 replicas,")
	p.accessible("replicas of two releases")
	p.clean(r.addr)

	small := newBrowser(t).tab(narrow)
	small.open(r.console() + "#/replicas")
	small.shows(other)
	small.fits("replicas of two releases")
}

const other = "v99.0.0-other"

// otherScheduler is the same source, built as another release.
var otherScheduler = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	file := filepath.Join(programs, "other-scheduler")
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false",
		"-ldflags", "-X github.com/freeslot/freeslot/internal/process/version.stamped="+other, "-o", file, "./cmd/scheduler")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go build: %w\n%s", err, out)
	}
	return file, err
})

// otherRelease makes further replicas run another release of the same source.
func (f *fleet) otherRelease() *fleet {
	f.t.Helper()
	file, err := otherScheduler()
	if err != nil {
		f.t.Fatal(err)
	}
	f.scheduler = file
	return f
}
