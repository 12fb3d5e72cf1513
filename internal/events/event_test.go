package events

import (
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
)

// All releases on the same Redis share the wire form: these lines must not change without a new
// wire version.
var wire = []struct {
	name, text string
	event      Event
}{
	{
		"register", `1700000000123 1 r 7 node-1 e1 online 8 0 {"node_id":"node-1"}`,
		Event{Register, 7, 1700000000123, "node-1", "e1", "online", 8, 0, `{"node_id":"node-1"}`},
	},
	{
		"heartbeat with spaces in the body", `1 1 h 8 node-1 e1 draining 8 3 {"a": "b c",  "d":1}`,
		Event{Heartbeat, 8, 1, "node-1", "e1", "draining", 8, 3, `{"a": "b c",  "d":1}`},
	},
	{"offline", `1 1 o 9 node-1 e1 offline 0 0 `, Event{Offline, 9, 1, "node-1", "e1", "offline", 0, 0, ""}},
	{"full", `1 1 f 10 node-1 e1 online 8 8 `, Event{SlotFull, 10, 1, "node-1", "e1", "online", 8, 8, ""}},
	{"free", `1 1 e 11 node-1 e1 online 8 7 `, Event{SlotFree, 11, 1, "node-1", "e1", "online", 8, 7, ""}},
	{"heartbeat that leaves the resources as they were", `1 1 h 8 node-1 e1 online 0 3 `, Event{Heartbeat, 8, 1, "node-1", "e1", "online", 0, 3, ""}},
	{
		"largest revision", `9223372036854775807 1 h 18446744073709551615 n e online 65536 65536 {}`,
		Event{Heartbeat, math.MaxUint64, math.MaxInt64, "n", "e", "online", 65536, 65536, "{}"},
	},
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, tt := range wire {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Decode(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.event, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if again := string(got.Append(nil)); again != tt.text {
				t.Errorf("appended as %q, want %q", again, tt.text)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":               {"", "1 fields"},
		"too few fields":        {"1 1 h 8 node-1 e1 online 8", "8 fields"},
		"no space for the body": {"1 1 h 8 node-1 e1 online 8 3", "9 fields"},
		"another version":       {"1 2 h 8 node-1 e1 online 8 3 {}", `version "2"`},
		"unknown kind":          {"1 1 x 8 node-1 e1 online 8 3 {}", `kind "x"`},
		"long kind":             {"1 1 hh 8 node-1 e1 online 8 3 {}", `kind "hh"`},
		"no kind":               {"1 1  8 node-1 e1 online 8 3 {}", `kind ""`},
		"no node":               {"1 1 h 8  e1 online 8 3 {}", "no node"},
		"negative revision":     {"1 1 h -8 node-1 e1 online 8 3 {}", "revision"},
		"revision as a float":   {"1 1 h 1e3 node-1 e1 online 8 3 {}", "revision"},
		"revision too large":    {"1 1 h 18446744073709551616 node-1 e1 online 8 3 {}", "revision"},
		"bad time":              {"now 1 h 8 node-1 e1 online 8 3 {}", "time"},
		"bad max":               {"1 1 h 8 node-1 e1 online - 3 {}", "max_concurrency"},
		"bad used":              {"1 1 h 8 node-1 e1 online 8 nil {}", "slots in use"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Decode(tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %+v, %v; want an error with %q", got, err, tt.want)
			}
		})
	}
}

func TestKindString(t *testing.T) {
	t.Parallel()
	for kind, want := range map[Kind]string{
		Register: "node_register", Heartbeat: "node_heartbeat", Offline: "node_offline",
		SlotFull: "slot_full", SlotFree: "slot_free", StatusChange: "node_config_update", 0: "unknown", 'x': "unknown",
	} {
		if got := kind.String(); got != want {
			t.Errorf("%q: got %s, want %s", byte(kind), got, want)
		}
	}
	for k := range 256 {
		if kind := Kind(k); slices.Contains(Kinds(), kind) != (kind.String() != "unknown") {
			t.Errorf("%q: %s, among %q", byte(kind), kind, Kinds())
		}
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	name := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,63}`)
	rapid.Check(t, func(t *rapid.T) {
		want := Event{
			Kind:           rapid.SampledFrom(Kinds()).Draw(t, "kind"),
			Revision:       rapid.Uint64().Draw(t, "revision"),
			AtMS:           rapid.Int64Min(0).Draw(t, "at"),
			Node:           name.Draw(t, "node"),
			Epoch:          name.Draw(t, "epoch"),
			Status:         rapid.SampledFrom([]freeslot.Status{freeslot.StatusOnline, freeslot.StatusDraining, freeslot.StatusDrained, "offline"}).Draw(t, "status"),
			MaxConcurrency: rapid.IntRange(0, freeslot.MaxConcurrencyLimit).Draw(t, "max"),
			Used:           rapid.IntRange(0, freeslot.MaxConcurrencyLimit).Draw(t, "used"),
			Body:           rapid.String().Draw(t, "body"),
		}
		prefix := rapid.SliceOf(rapid.Byte()).Draw(t, "dst")
		text := want.Append(prefix[:len(prefix):len(prefix)])
		if string(text[:len(prefix)]) != string(prefix) {
			t.Fatalf("what stood in dst is lost: %q", text)
		}
		got, err := Decode(string(text[len(prefix):]))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("-want +got\n%s", diff)
		}
	})
}

// A replica decodes each event of the fleet.
func TestDecodeAllocatesNothing(t *testing.T) {
	for _, tt := range wire {
		if n := testing.AllocsPerRun(100, func() {
			if _, err := Decode(tt.text); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", tt.name, n)
		}
	}
}

// A kept status must not keep its message in memory.
func TestStatusIsNoPartOfTheMessage(t *testing.T) {
	t.Parallel()
	for _, want := range []freeslot.Status{freeslot.StatusOnline, freeslot.StatusDraining, statusOffline} {
		text := "1 1 h 8 node-1 e1 " + string(want) + " 8 3 {}"
		e, err := Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		if unsafe.StringData(string(e.Status)) != unsafe.StringData(string(want)) {
			t.Errorf("%s is not the constant", want)
		}
	}
}

// FuzzDecode: no message makes Decode panic, and every accepted one has one canonical form.
func FuzzDecode(f *testing.F) {
	for _, tt := range wire {
		f.Add(tt.text)
	}
	for _, seed := range []string{"", " ", "-1 1 h +8 n  x -1 +2 \x00", "00 1 h 007 n e s 0 0 ", "1 2 h 8 n e s 1 1 {}", strings.Repeat("1 ", 12)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Decode(text)
		if err != nil {
			if e != (Event{}) {
				t.Fatalf("an error with the event %+v", e)
			}
			return
		}
		canonical := string(e.Append(nil))
		again, err := Decode(canonical)
		if err != nil || again != e {
			t.Fatalf("%q decodes as %+v, its own form %q as %+v, %v", text, e, canonical, again, err)
		}
		if twice := string(again.Append(nil)); twice != canonical {
			t.Fatalf("%q, then %q", canonical, twice)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	text := `1700000000123 1 h 123456 node-1234 01JD5Y8G6W9V0M5T2C3Q4R7X8Z online 8 3 ` +
		`{"cpu":{"percent":12.5},"memory":{"used_bytes":123456789,"total_bytes":987654321},"load":[0.5,0.4,0.3]}`
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(text); err != nil {
			b.Fatal(err)
		}
	}
}
