package pool

import (
	"fmt"
	"testing"
)

// reading is a document of one pool, named as its id.
func reading(version uint64, generation, server, pool string) stored {
	content := Encode(pools(pool))
	return stored{version: version, generation: generation, server: server, kind: "string", length: len(content), content: content}
}

// TestAccept is one life of a replica, step by step.
func TestAccept(t *testing.T) {
	t.Parallel()
	broken := func(version uint64, content string) stored {
		return stored{version: version, generation: "g1", server: "s1", kind: "string", length: len(content), content: []byte(content)}
	}
	none := func(version uint64) stored {
		return stored{version: version, generation: "g1", server: "s1", kind: "none"}
	}
	var m memory
	for i, step := range []struct {
		what    string
		read    stored
		changed bool
		pool    string
		version uint64
		source  Source
		problem bool
	}{
		{"nothing yet", none(0), true, "file", 0, SourceFile, false},
		{"the first", reading(1, "g1", "s1", "a"), true, "a", 1, SourceRedis, false},
		{"another", reading(3, "g1", "s1", "b"), true, "b", 3, SourceRedis, false},
		{"the same content", reading(4, "g1", "s1", "b"), true, "b", 4, SourceRedis, false},
		{"an edit", reading(4, "g1", "s1", "c"), true, "c", 4, SourceRedis, false},
		{"not JSON", broken(4, "{"), false, "c", 4, SourceRedis, true},
		{"not valid", broken(4, `{"mode":"x"}`), false, "c", 4, SourceRedis, true},
		{"a list", stored{version: 4, generation: "g1", server: "s1", kind: "list"}, false, "c", 4, SourceRedis, true},
		{"too long", stored{version: 4, generation: "g1", server: "s1", kind: "string", length: 1 << 30}, false, "c", 4, SourceRedis, true},
		{"mended", reading(4, "g1", "s1", "c"), false, "c", 4, SourceRedis, false},
		{"older", reading(3, "g1", "s1", "b"), false, "c", 4, SourceRedis, true},
		{"older and gone", none(3), false, "c", 4, SourceRedis, true},
		{"gone", none(4), true, "file", 0, SourceFile, false},
		{"older after gone", reading(3, "g1", "s1", "b"), false, "file", 0, SourceFile, true},
		{"back", reading(4, "g1", "s1", "c"), true, "c", 4, SourceRedis, false},
		{"after a failover", reading(2, "g1", "s2", "d"), true, "d", 2, SourceRedis, false},
		{"after a flush", reading(1, "g2", "s2", "e"), true, "e", 1, SourceRedis, false},
		{"counter lost", reading(0, "", "s2", "f"), true, "f", 0, SourceRedis, false},
		{"counter back", reading(1, "g3", "s2", "f"), true, "f", 1, SourceRedis, false},
	} {
		if !m.news(&step.read) {
			t.Errorf("%d, %s: no news", i, step.what)
		}
		changed := m.accept(&step.read, pools("file"))
		got := fmt.Sprint(changed, text(m.Config), m.Version, m.Source, m.Problem != nil)
		want := fmt.Sprint(step.changed, text(pools(step.pool)), step.version, step.source, step.problem)
		if got != want {
			t.Errorf("%d, %s: %s, expected %s (%v)", i, step.what, got, want, m.Problem)
		}
		if m.Config.Version != step.version {
			t.Errorf("%d, %s: the configuration says version %d", i, step.what, m.Config.Version)
		}
		if m.news(&step.read) {
			t.Errorf("%d, %s: news again", i, step.what)
		}
	}
}
