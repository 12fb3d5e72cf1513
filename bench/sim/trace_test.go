package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
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
	if want := []request{{0, 44}, {later, 109}, {later, 1}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestReadNodes(t *testing.T) {
	t.Parallel()
	got, err := readNodes(strings.NewReader(someNodes))
	if err != nil {
		t.Fatal(err)
	}
	if want := []int{2, 8, 1}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
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
	refused(func(path string) error { _, err := openRequests(path); return err }, map[string]string{
		"":          "line 1",
		"a,b\n":     `line 1 is "a,b"`,
		requestHead: "no line after the header",
		requestHead + first + "2023-11-16 18:15:47,1\n":        "line 3",
		requestHead + "yesterday,1,2\n":                        `line 2: TIMESTAMP is "yesterday"`,
		requestHead + first + "2023-11-16 18:15:45.9,1,2\n":    "line 3: TIMESTAMP is before",
		requestHead + first + "\n2023-11-16 18:15:46,11,2e3\n": `line 4: GeneratedTokens is "2e3", expected a whole number from 0 to 16777216`,
		requestHead + "2023-11-16 18:15:46,\"1,2\n":            "line 2",
	})
	refused(func(path string) error { _, err := openNodes(path); return err }, map[string]string{
		nodeHead:                     "no line after the header",
		nodeHead + "a,1,1,0,T4\n":    "no line after the header",
		nodeHead + "a,1,1,x,T4\n":    `line 2: gpu is "x"`,
		nodeHead + "a,1,1,2000,T4\n": `line 2: gpu is "2000"`,
	})
	if _, err := openRequests(t.TempDir() + "/none.csv"); err == nil {
		t.Error("a file that is not there was read")
	}
}

// FuzzReadRequests: what is read is in order, and errors name the line.
func FuzzReadRequests(f *testing.F) {
	f.Add(someRequests)
	f.Add(requestHead + "\"2023-11-16 18:15:46\",1,2\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := readRequests(strings.NewReader(text))
		if err != nil && !strings.Contains(err.Error(), "line ") {
			t.Fatalf("%v does not name the line", err)
		}
		last := time.Duration(0)
		for _, r := range got {
			if err == nil && (r.at < last || r.tokens < 1) {
				t.Fatalf("%+v after %s", r, last)
			}
			last = r.at
		}
	})
}

// FuzzReadNodes: what is read are numbers of slots, and errors name the line.
func FuzzReadNodes(f *testing.F) {
	f.Add(someNodes)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := readNodes(strings.NewReader(text))
		if err != nil && !strings.Contains(err.Error(), "line ") {
			t.Fatalf("%v does not name the line", err)
		}
		if len(got) > 0 && slices.Min(got) < 1 {
			t.Fatalf("slots are %v", got)
		}
	})
}
