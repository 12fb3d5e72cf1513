//go:build unix

package nodeagent

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/node/collector"
)

// figures is a collector of the output of a shell script.
func figures(t *testing.T, script string, change ...func(*MetricsCommand)) *commandCollector {
	t.Helper()
	m := Metrics{Commands: []MetricsCommand{{Name: "own", Argv: []string{"sh", "-c", script}}}}
	for _, c := range change {
		c(&m.Commands[0])
	}
	m.resolve()
	c, err := newCommandCollector(&m.Commands[0])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestMetricsCommand(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		want   collector.Metrics
		says   string
	}{
		"object":            {script: `echo '{"queue": 3, "share": 0.5, "model": "a", "ready": true, "x": null}'`, want: collector.Metrics{"queue": int64(3), "share": 0.5, "model": "a", "ready": true}},
		"stderr is no part": {script: `echo noise >&2; echo '{}'`, want: collector.Metrics{}},
		"nothing on stdin":  {script: `cat; echo '{}'`, want: collector.Metrics{}},
		"not flat":          {script: `echo '{"a": {"b": 1}}'`, says: "the command's output: field a is a list or an object"},
		"text":              {script: `echo hello`, says: "the command's output: expected a JSON object"},
		"nothing":           {script: `true`, says: "the command's output: expected a JSON object"},
		"exit code":         {script: `echo '{}'; echo why >&2; exit 3`, says: "the command failed: exit status 3: why"},
		"too much":          {script: `cat /dev/zero`, says: "the command wrote more than 16384 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := figures(t, test.script).Collect(t.Context())
			if test.says != "" {
				if err == nil || !strings.HasPrefix(err.Error(), test.says) || got != nil {
					t.Fatalf("got %v and %v", got, err)
				}
				return
			}
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Fatalf("%v, (- expected, + got):\n%s", err, diff)
			}
		})
	}
}

func TestMetricsCommandEnvironment(t *testing.T) {
	t.Setenv("FREESLOT_TEST_SECRET", "secret")
	t.Setenv("FREESLOT_TEST_PASSED", "passed")
	script := `echo "{\"secret\": \"$FREESLOT_TEST_SECRET\", \"passed\": \"$FREESLOT_TEST_PASSED\", \"own\": \"$OWN\"}"`
	got, err := figures(t, script, func(c *MetricsCommand) {
		c.PassEnv, c.Env = []string{"PATH", "FREESLOT_TEST_PASSED"}, map[string]string{"OWN": "own"}
	}).Collect(t.Context())
	if diff := cmp.Diff(collector.Metrics{"secret": "", "passed": "passed", "own": "own"}, got); diff != "" || err != nil {
		t.Errorf("%v, (- expected, + got):\n%s", err, diff)
	}
	got, err = figures(t, script, func(c *MetricsCommand) { c.PassEnv = []string{} }).Collect(t.Context())
	if diff := cmp.Diff(collector.Metrics{"secret": "", "passed": "", "own": ""}, got); diff != "" || err != nil {
		t.Errorf("nothing passed: %v, (- expected, + got):\n%s", err, diff)
	}
}

// expired is a context whose deadline comes when the test ends it.
type expired struct{ context.Context }

func (e expired) Err() error {
	if e.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

func TestMetricsCommandGroupEndsAtTheTimeLimit(t *testing.T) {
	t.Parallel()
	path := fifo(t)
	c := figures(t, `exec 3>"$FIFO"; trap '' TERM; sleep 1000 & echo $! >&3; wait`, func(c *MetricsCommand) { c.Env = map[string]string{"FIFO": path} })
	cancelled, end := context.WithCancelCause(t.Context())
	ctx := expired{cancelled}
	failed := make(chan error, 1)
	go func() {
		_, err := c.Collect(ctx)
		failed <- err
	}()
	f := begin(t, path)
	end(context.DeadlineExceeded)
	if err := <-failed; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	f.ended(t)
	if _, err := c.Collect(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a context that has ended: %v", err)
	}
}
