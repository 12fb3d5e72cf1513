package session

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
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
				t.Fatalf("%s: %v", frame, err)
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
	var taken chunk
	b.ReportAllocs()
	for b.Loop() {
		for range 3 {
			o.put(func(dst []byte) []byte { return append(dst, message...) })
		}
		taken, _ = o.take(taken)
		for _, size := range taken.arrays(arrayBytes) {
			o.written(size.messages, size.bytes)
		}
	}
}
