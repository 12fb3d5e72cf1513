package api_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/testing/apitest"
)

// TestCompressed: a long answer to a GET is compressed for callers that accept it, and has the
// same text then. Short answers, refusals, other methods and other callers get plain ones.
func TestCompressed(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	for _, c := range []struct {
		method, target, accepts string
		nodes                   int
		packed                  bool
	}{
		{"GET", "/v1/nodes", "gzip, deflate, br, zstd", 50, true},
		{"GET", "/v1/nodes", "", 50, false},
		{"GET", "/v1/nodes", "gzip;q=0", 50, false},
		{"GET", "/v1/nodes", "gzip", 1, false},
		{"HEAD", "/v1/nodes", "gzip", 50, false},
		{"GET", "/v1/nothing?" + strings.Repeat("x", 2000), "gzip", 50, false},
		{"GET", "/openapi.json", "gzip", 50, false},
	} {
		clear(f.Nodes.ByID)
		for i := range c.nodes {
			id := fmt.Sprintf("node-%d", i)
			f.Nodes.ByID[id] = node(id)
		}
		plain := f.Do(t, c.method, c.target, "")
		got := f.Do(t, c.method, c.target, "", "Accept-Encoding", c.accepts)
		text := got.Text
		if packed := got.Header.Get("Content-Encoding") == "gzip"; packed != c.packed {
			t.Errorf("%s %.30s for a caller that accepts %q, %d nodes: compressed %v; want %v",
				c.method, c.target, c.accepts, c.nodes, packed, c.packed)
		} else if packed {
			text = unpack(t, text)
		}
		if text != plain.Text || got.Status != plain.Status {
			t.Errorf("%s %.30s for a caller that accepts %q: %d %.80s; want %d %.80s",
				c.method, c.target, c.accepts, got.Status, text, plain.Status, plain.Text)
		}
	}
}

func unpack(t *testing.T, text string) string {
	t.Helper()
	packed, err := gzip.NewReader(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(packed)
	if err != nil {
		t.Fatal(err)
	}
	return string(plain)
}

// BenchmarkCompressed lists 500 nodes for a caller that accepts gzip, and for one that does not.
func BenchmarkCompressed(b *testing.B) {
	f := apitest.New(b, api.Config{})
	for i := range 500 {
		id := fmt.Sprintf("node-%d", i)
		f.Nodes.ByID[id] = node(id)
	}
	for _, accepts := range []string{"", "gzip"} {
		b.Run("accepts="+accepts, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodGet, "/v1/nodes?limit=500", nil)
				r.Host = "127.0.0.1:7480"
				r.Header.Set("Accept-Encoding", accepts)
				w := httptest.NewRecorder()
				f.Server.Handler().ServeHTTP(w, r)
				b.ReportMetric(float64(w.Body.Len()), "bytes")
			}
		})
	}
}
