package trace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	requestHead  = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	nodeHead     = "sn,cpu_milli,memory_mib,gpu,model\n"
	someNodes    = nodeHead + "n-0,64000,262144,2,P100\nn-1,96000,786432,8,G2\nn-2,94000,786432,0,\nn-3,32000,128,1,T4\n"
	someRequests = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n" +
		"2023-11-16 18:15:46.6805900,374,44\r\n" +
		"2023-11-16 18:15:50.9951690,396,109\r\n" +
		"2023-11-16 18:15:50.9951690,879,0" // the published file ends like this
)

func TestReadRequests(t *testing.T) {
	t.Parallel()
	got, err := readRequests(strings.NewReader(someRequests))
	if err != nil {
		t.Fatal(err)
	}
	later := 4_314_579 * time.Microsecond
	if diff := cmp.Diff([]Request{{0, 44}, {later, 109}, {later, 0}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadNodes(t *testing.T) {
	t.Parallel()
	got, err := readNodes(strings.NewReader(someNodes))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Node{{"n-0", 2, "P100"}, {"n-1", 8, "G2"}, {"n-2", 0, ""}, {"n-3", 1, "T4"}}, got); diff != "" {
		t.Error(diff)
	}
}

// TestRefused: errors name the file, the line and the field.
func TestRefused(t *testing.T) {
	t.Parallel()
	const first = "2023-11-16 18:15:46,1,2\n"
	refused := func(open func(string) error, cases map[string]string) {
		t.Helper()
		for text, want := range cases {
			path := filepath.Join(t.TempDir(), "trace.csv")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := open(path); err == nil || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: got %v, expected it to contain %q", text, err, want)
			}
		}
	}
	refused(func(path string) error { _, err := OpenRequests(path); return err }, map[string]string{
		"":          "line 1",
		"a,b\n":     `line 1 is "a,b"`,
		requestHead: "line 2 is missing",
		requestHead + first + "2023-11-16 18:15:47,1\n":        "line 3",
		requestHead + "yesterday,1,2\n":                        `line 2: TIMESTAMP is "yesterday"`,
		requestHead + first + "2023-11-16 18:15:45.9,1,2\n":    "line 3: TIMESTAMP is before",
		requestHead + first + "\n2023-11-16 18:15:46,11,2e3\n": `line 4: GeneratedTokens is "2e3", expected a whole number from 0 to 16777216`,
		requestHead + "2023-11-16 18:15:46,\"1,2\n":            "line 2",
	})
	refused(func(path string) error { _, err := OpenNodes(path); return err }, map[string]string{
		nodeHead:                              "line 2 is missing",
		nodeHead + "a,1,1,1,T4\na,1,1,1,T4\n": "line 3: sn a comes twice",
		nodeHead + "a,1,1,x,T4\n":             `line 2: gpu is "x"`,
		nodeHead + "a,1,1,2000,T4\n":          `line 2: gpu is "2000"`,
		nodeHead + "a b,1,1,1,T4\n":           "line 2: invalid_argument: sn",
		nodeHead + ",1,1,1,T4\n":              "line 2: invalid_argument: sn",
		nodeHead + "a,1,1,1,T 4\n":            "line 2: invalid_argument: model",
	})
	if _, err := OpenRequests(t.TempDir() + "/none.csv"); err == nil {
		t.Error("a file that is not there was read")
	}
}

// FuzzReadRequests: what is read can be written and read again, and is in order.
func FuzzReadRequests(f *testing.F) {
	f.Add(someRequests)
	f.Add(requestHead + "\"2023-11-16 18:15:46\",1,2\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := readRequests(strings.NewReader(text))
		if err != nil {
			wantLine(t, err)
			return
		}
		var b strings.Builder
		b.WriteString(requestHead)
		origin := time.Date(2023, 11, 16, 0, 0, 0, 0, time.UTC)
		last := time.Duration(0)
		for _, r := range got {
			if r.At < last || r.GeneratedTokens < 0 {
				t.Fatalf("%+v after %s", r, last)
			}
			last = r.At
			fmt.Fprintf(&b, "%s,0,%d\n", origin.Add(r.At).Format(stamp+".000000000"), r.GeneratedTokens)
		}
		if last > 1000*time.Hour {
			return // the year 10000 is written with five digits
		}
		again, err := readRequests(strings.NewReader(b.String()))
		if diff := cmp.Diff(got, again); err != nil || diff != "" {
			t.Fatal(err, diff)
		}
	})
}

// FuzzReadNodes: what is read can be written and read again, and makes valid profiles.
func FuzzReadNodes(f *testing.F) {
	f.Add(someNodes)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := readNodes(strings.NewReader(text))
		if err != nil {
			wantLine(t, err)
			return
		}
		var b strings.Builder
		b.WriteString(nodeHead)
		for _, n := range got {
			fmt.Fprintf(&b, "%s,0,0,%d,%s\n", n.ID, n.GPU, n.Model)
			if n.Slots() > 0 {
				if err := n.Profile("work").Validate("node"); err != nil {
					t.Fatal(err)
				}
			}
		}
		again, err := readNodes(strings.NewReader(b.String()))
		if diff := cmp.Diff(got, again); err != nil || diff != "" {
			t.Fatal(err, diff)
		}
	})
}

func wantLine(t *testing.T, err error) {
	t.Helper()
	if !strings.Contains(err.Error(), "line ") {
		t.Fatalf("%v does not name the line", err)
	}
}
