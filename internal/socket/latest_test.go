package socket

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestLatestOfASlowPeer: while a client does not read, progress takes no room from results and
// does not end the session. Then the client gets all results, and only the latest progress of each
// job.
func TestLatestOfASlowPeer(t *testing.T) {
	t.Parallel()
	const jobs = 20
	o := &outbox{}
	o.init(3*jobs, 10_000)
	long := strings.Repeat("x", 4<<10)
	replaced := 0
	for seq := range 1000 {
		for job := range jobs {
			if o.putLatest(fmt.Sprint(job), []byte(fmt.Sprintf("progress %d %d %s", job, seq, long))) == Replaced {
				replaced++
			}
		}
	}
	if replaced != 999*jobs {
		t.Errorf("%d replaced", replaced)
	}
	for job := range jobs / 2 {
		o.dropLatest(fmt.Sprint(job))
		if !o.put(func(dst []byte) []byte { return append(dst, fmt.Sprintf("result %d", job)...) }, o.maxBytes) {
			t.Fatal("the client is cut off for its progress")
		}
	}
	got := drainOutbox(t, o)
	for i, message := range got {
		switch kind, rest, _ := strings.Cut(message, " "); {
		case i < jobs/2 && message != fmt.Sprintf("result %d", i):
			t.Errorf("message %d is %.20s, expected the results first", i, message)
		case i >= jobs/2 && (kind != "progress" || !strings.HasPrefix(rest, fmt.Sprintf("%d 999 ", i))):
			t.Errorf("message %d is %.20s, expected the latest of job %d", i, message, i)
		}
	}
	if len(got) != jobs || o.messages != 0 || o.bytes != 0 || o.latest.bytes != 0 || o.latest.len() != 0 {
		t.Errorf("%d messages; %d and %d bytes counted, %d of progress", len(got), o.messages, o.bytes, o.latest.bytes)
	}
}

// drainOutbox is the writer: it takes all that is there.
func drainOutbox(t fataler, o *outbox) (got []string) {
	for o.queue.len() > 0 || o.latest.len() > 0 {
		full, by := o.take()
		if by != nil {
			t.Fatalf("order %+v", by)
		}
		for frame, size := range full.arrays(0) {
			got = append(got, string(frame))
			if size.messages+size.latest != 1 {
				t.Fatalf("%s counts as %+v", frame, size)
			}
			o.written(size.messages, size.bytes)
		}
		full.release()
	}
	return got
}

type fataler interface {
	Fatalf(format string, args ...any)
}

// TestLatestTwin compares the queue of progress with a list of the latest of each job.
func TestLatestTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := &outbox{}
		o.init(1000, 1<<20)
		arrays := rapid.SampledFrom([]int{0, 30}).Draw(t, "arrays")
		latest, ended := map[string]string{}, map[string]int{}
		var order, want, got []string
		forget := func(job string) {
			delete(latest, job)
			order = slices.DeleteFunc(order, func(other string) bool { return other == job })
		}
		for i := range rapid.IntRange(1, 120).Draw(t, "steps") {
			slot := fmt.Sprint(rapid.IntRange(0, 30).Draw(t, "job"))
			job := fmt.Sprint(slot, ".", ended[slot]) // a job that has ended has no progress any more
			switch rapid.SampledFrom([]string{"report", "report", "report", "end", "take"}).Draw(t, "step") {
			case "report":
				message := fmt.Sprintf(`"p%s-%d"`, job, i)
				o.putLatest(job, []byte(message))
				if _, waits := latest[job]; !waits {
					order = append(order, job)
				}
				latest[job] = message
			case "end":
				message := fmt.Sprintf(`"r%s-%d"`, job, i)
				o.dropLatest(job)
				o.put(func(dst []byte) []byte { return append(dst, message...) }, o.maxBytes)
				forget(job)
				ended[slot]++
				want = append(want, message)
			case "take":
				if o.queue.len() == 0 && o.latest.len() == 0 {
					continue
				}
				for _, job := range order[:min(len(order), latestTurn)] {
					want = append(want, latest[job])
				}
				for _, job := range slices.Clone(order[:min(len(order), latestTurn)]) {
					forget(job)
				}
				full, _ := o.take()
				for frame, size := range full.arrays(arrays) {
					for _, message := range bytes.Split(bytes.Trim(frame, "[]"), []byte(",")) {
						got = append(got, string(message))
					}
					o.written(size.messages, size.bytes)
				}
				if d := strings.Join(got, " "); d != strings.Join(want, " ") {
					t.Fatalf("got  %s\nwant %s", d, strings.Join(want, " "))
				}
				if o.messages != 0 || o.bytes != 0 {
					t.Fatalf("%d messages and %d bytes are left", o.messages, o.bytes)
				}
			}
			if n := o.latest.len(); n != len(latest) {
				t.Fatalf("progress of %d jobs is queued, not of %d", n, len(latest))
			}
		}
	})
}

// TestLatestIsBounded: what does not fit is dropped, and the former value stays.
func TestLatestIsBounded(t *testing.T) {
	t.Parallel()
	o := &outbox{}
	o.init(10, 10)
	message := make([]byte, latestBytes/4)
	for i := range 4 {
		if out := o.putLatest(fmt.Sprint(i), message); out != Queued {
			t.Fatalf("%d: %v; want out == Queued", i, out)
		}
	}
	if o.putLatest("4", []byte("x")) != Dropped || o.putLatest("0", append(message, 'x')) != Dropped || o.putLatest("0", message) != Replaced {
		t.Error("the bound does not hold")
	}
	o.end(Order{Flush: true})
	if o.putLatest("0", message) != Dropped || o.latest.len() != 0 {
		t.Error("a session that ends takes progress")
	}
}
