package load

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPublished: what a Publisher publishes ends the jobs, each once, however it was put together.
func TestPublished(t *testing.T) {
	t.Parallel()
	var w Pending
	ended := make(map[string][]Outcome)
	ids := make([]string, 3*publishedAtOnce)
	for i := range ids {
		ids[i] = "job-" + strings.Repeat("x", i)
		w.Add(ids[i], func(o Outcome) { ended[ids[i]] = append(ended[ids[i]], o) })
	}
	most := 0
	var hold sync.Mutex // so that lines gather
	hold.Lock()
	publisher := NewPublisher(func(_ context.Context, message string) error {
		hold.Lock()
		defer hold.Unlock()
		most = max(most, strings.Count(message, "\n"))
		w.Published(message)
		w.Published(message) // the second time no one waits
		return nil
	})
	for _, id := range ids[:len(ids)-1] {
		publisher.Add(id, "1700000000000000000")
	}
	publisher.Add(ids[len(ids)-1], "no moment")
	hold.Unlock()
	publisher.Close()
	for i, id := range ids {
		got, bad := ended[id], i == len(ids)-1
		if len(got) != 1 || (got[0].Err != nil) != bad || !bad && !got[0].Started.Equal(time.Unix(1700000000, 0)) {
			t.Errorf("job %d ended with %v", i, got)
		}
	}
	if most < 2 || most > publishedAtOnce {
		t.Errorf("a message had up to %d results, expected up to %d", most, publishedAtOnce)
	}
}

func TestPoll(t *testing.T) {
	t.Parallel()
	var w Pending
	want := []string{"a", "b", "c", "d", "e"}
	for _, id := range want {
		w.Add(id, func(Outcome) {})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var got []string
	w.Poll(ctx, time.Microsecond, 2, func(_ context.Context, ids []string) {
		if len(ids) > 2 {
			t.Errorf("%d ids in one call", len(ids))
		}
		for _, id := range ids {
			w.End(id, Outcome{})
			got = append(got, id)
		}
		if len(got) == len(want) {
			cancel()
		}
	})
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("polled (-want +got):\n%s", diff)
	}
}
