package socket

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestChunkArrays: whatever the sizes, the arrays hold all messages once and in order, keep to the
// limit, and count what they take.
func TestChunkArrays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 60).Draw(t, "limit")
		var c chunk
		var want []string
		for i := range rapid.IntRange(0, 30).Draw(t, "messages") {
			text := fmt.Sprintf(`{"n":%d,"x":"%s"}`, i, strings.Repeat("x", rapid.IntRange(0, 40).Draw(t, "length")))
			want = append(want, text)
			c.add(func(dst []byte) []byte { return append(dst, text...) })
		}
		total, messages := len(c.buf), 0
		var got []string
		for frame, size := range c.arrays(limit) {
			var list []json.RawMessage
			if frame[0] != '[' {
				list = []json.RawMessage{append([]byte(nil), frame...)}
			} else if err := json.Unmarshal(frame, &list); err != nil {
				t.Fatalf("%s: %v; want no error", frame, err)
			}
			if len(list) != size.messages {
				t.Fatalf("%s counts as %d messages", frame, size.messages)
			}
			if len(list) > 1 && len(frame) > limit+1 {
				t.Fatalf("a frame of %d bytes, the limit is %d", len(frame), limit)
			}
			total -= size.bytes
			messages += size.messages
			for _, m := range list {
				got = append(got, string(m))
			}
		}
		if total != 0 || messages != len(want) || strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Fatalf("%d bytes and %d of %d messages are left\ngot  %v\nwant %v", total, len(want)-messages, len(want), got, want)
		}
	})
}

func BenchmarkOutbox(b *testing.B) {
	o := &outbox{}
	o.init(1<<20, 1<<30)
	message := []byte(strings.Repeat("x", 120))
	b.ReportAllocs()
	for b.Loop() {
		for range 3 {
			o.put(func(dst []byte) []byte { return append(dst, message...) }, o.maxBytes)
		}
		taken, _ := o.take()
		for _, size := range taken.arrays(256 << 10) {
			o.written(size.messages, size.bytes)
		}
		taken.release()
	}
}

func zero(dst []byte) []byte { return append(dst, '0') }

// TestQueueOverflowsByMessages: many small messages count too.
func TestQueueOverflowsByMessages(t *testing.T) {
	t.Parallel()
	o := &outbox{}
	o.init(3, 1<<20)
	for i := range 4 {
		if got := o.put(zero, o.maxBytes); got != (i < 3) {
			t.Errorf("message %d: put returned %v", i, got)
		}
	}
}

// TestLargeMessagePassesAnEmptyQueue, and no other queue.
func TestLargeMessagePassesAnEmptyQueue(t *testing.T) {
	t.Parallel()
	o := &outbox{}
	o.init(100, 10)
	large := func(dst []byte) []byte { return append(dst, "01234567890123456789"...) }
	if !o.put(large, o.maxBytes) {
		t.Error("a large message alone overflows the queue")
	}
	if o.put(zero, o.maxBytes) {
		t.Error("a message behind a large one does not overflow the queue")
	}
}

// TestReaderPausesWhileTheQueueIsCrowded: requests wait while the client does not read its
// messages.
func TestReaderPausesWhileTheQueueIsCrowded(t *testing.T) {
	t.Parallel()
	o := &outbox{}
	o.init(4, 1<<20)
	put := func() { o.put(zero, o.maxBytes) }
	for range 3 {
		put()
	}
	paused, result := make(chan struct{}), make(chan bool)
	wait := func() { result <- o.waitRoom(0, func() { paused <- struct{}{} }) }
	go wait()
	waittest.Receive(t, "the pause", paused)
	_, _ = o.take()
	o.written(1, 2)
	if !waittest.Receive(t, "room", result) {
		t.Error("waitRoom reports that the connection ends")
	}
	put()
	go wait()
	waittest.Receive(t, "the pause", paused)
	o.end(Order{})
	if waittest.Receive(t, "the end", result) {
		t.Error("waitRoom reports that the connection goes on")
	}
}

// TestTogether: the writer takes messages that were put together at once.
func TestTogether(t *testing.T) {
	t.Parallel()
	c := NewDetached(&Config{QueueMessages: 10, QueueBytes: 1 << 10})
	taken := make(chan int)
	c.Together(func() {
		go func() {
			queued, _ := c.out.take()
			taken <- queued.len()
		}()
		for range 3 {
			c.Put(zero)
			runtime.Gosched()
		}
	})
	if n := waittest.Receive(t, "the messages", taken); n != 3 {
		t.Errorf("%d of 3 messages at once", n)
	}
	c.Together(func() { c.out.end(Order{Label: "over"}) })
	if _, by := c.out.take(); by == nil || by.Label != "over" {
		t.Errorf("the order is %v", by)
	}
}
