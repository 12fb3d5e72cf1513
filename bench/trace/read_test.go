package trace

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const someRequests = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n" +
	"2023-11-16 18:15:46.6805900,374,44\r\n" +
	"2023-11-16 18:15:50.9951690,396,109\r\n" +
	"2023-11-16 18:15:50.9951690,879,0" // the published file ends like this

const someNodes = "sn,cpu_milli,memory_mib,gpu,model\nn-0,64000,262144,2,P100\nn-1,96000,786432,8,G2\nn-2,94000,786432,0,\nn-3,32000,128,1,T4\n"

func TestReadRequests(t *testing.T) {
	t.Parallel()
	got, err := ReadRequests(strings.NewReader(someRequests))
	if err != nil {
		t.Fatal(err)
	}
	later := 4_314_579 * time.Microsecond
	want := []Request{{0, 374, 44}, {later, 396, 109}, {later, 879, 0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadRequestsRefuses(t *testing.T) {
	t.Parallel()
	const head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	const first = "2023-11-16 18:15:46,1,2\n"
	for text, want := range map[string]Error{
		"":                                     {Line: 1, Message: "is missing, expected the header TIMESTAMP,ContextTokens,GeneratedTokens"},
		"a,b\n":                                {Line: 1, Message: `is "a,b", expected the header TIMESTAMP,ContextTokens,GeneratedTokens`},
		head:                                   {Line: 2, Message: "is missing, expected a request"},
		head + first + "2023-11-16 18:15:47,1": {Line: 3, Message: "has 2 fields, expected 3"},
		head + "yesterday,1,2\n":               {Line: 2, Column: 1, Field: "TIMESTAMP", Message: `is "yesterday", expected a moment such as 2023-11-16 18:15:46.6805900`},
		head + first + "2023-11-16 18:15:45.9,1,2\n":    {Line: 3, Column: 1, Field: "TIMESTAMP", Message: "is before the line above"},
		head + "2023-11-16 18:15:46,-1,2\n":             {Line: 2, Column: 21, Field: "ContextTokens", Message: `is "-1", expected a whole number from 0 to 16777216`},
		head + first + "\n2023-11-16 18:15:46,11,2e3\n": {Line: 4, Column: 24, Field: "GeneratedTokens", Message: `is "2e3", expected a whole number from 0 to 16777216`},
		head + "2023-11-16 18:15:46,\"1,2\n":            {Line: 2, Column: 26, Message: `extraneous or missing " in quoted-field`},
	} {
		_, err := ReadRequests(strings.NewReader(text))
		checkError(t, text, err, want)
	}
}

func TestReadNodes(t *testing.T) {
	t.Parallel()
	got, err := ReadNodes(strings.NewReader(someNodes))
	if err != nil {
		t.Fatal(err)
	}
	want := []Node{{"n-0", 64000, 262144, 2, "P100"}, {"n-1", 96000, 786432, 8, "G2"}, {"n-2", 94000, 786432, 0, ""}, {"n-3", 32000, 128, 1, "T4"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadNodesRefuses(t *testing.T) {
	t.Parallel()
	const head = "sn,cpu_milli,memory_mib,gpu,model\n"
	for text, want := range map[string]Error{
		head:                              {Line: 2, Message: "is missing, expected a node"},
		head + "a,1,1,1,T4\na,1,1,1,T4\n": {Line: 3, Column: 1, Field: "sn", Message: "a comes twice"},
		head + "a,1,1,x,T4\n":             {Line: 2, Column: 7, Field: "gpu", Message: `is "x", expected a whole number from 0 to 1024`},
		head + "a,1,9999999999,1,T4\n":    {Line: 2, Column: 5, Field: "memory_mib", Message: `is "9999999999", expected a whole number from 0 to 1073741824`},
	} {
		_, err := ReadNodes(strings.NewReader(text))
		checkError(t, text, err, want)
	}
	for _, text := range []string{"a b,1,1,1,T4\n", ",1,1,1,T4\n", "a,1,1,1,T 4\n"} {
		var bad *Error
		if _, err := ReadNodes(strings.NewReader(head + text)); !errors.As(err, &bad) || bad.Line != 2 || bad.Column == 0 {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func checkError(t *testing.T, text string, err error, want Error) {
	t.Helper()
	var got *Error
	if !errors.As(err, &got) {
		t.Errorf("%q: got %v, want %v", text, err, &want)
		return
	}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("%q: %s", text, diff)
	}
}

func TestErrorWords(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]Error{
		"line 3, column 7: gpu: is bad": {Line: 3, Column: 7, Field: "gpu", Message: "is bad"},
		"line 1: is missing":            {Line: 1, Message: "is missing"},
	} {
		if got := e.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	if _, err := OpenRequests(t.TempDir() + "/none.csv"); err == nil {
		t.Error("a file that is not there was read")
	}
	if _, err := OpenNodes("read_test.go"); err == nil || !strings.HasPrefix(err.Error(), "read_test.go: line 1") {
		t.Errorf("got %v, want the file and the line", err)
	}
}

// FuzzReadRequests: what is read can be written and read again, and is in order.
func FuzzReadRequests(f *testing.F) {
	f.Add(someRequests)
	f.Add("TIMESTAMP,ContextTokens,GeneratedTokens\n\"2023-11-16 18:15:46\",1,2\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ReadRequests(strings.NewReader(text))
		if err != nil {
			wantPlace(t, err)
			return
		}
		var b strings.Builder
		b.WriteString("TIMESTAMP,ContextTokens,GeneratedTokens\n")
		origin := time.Date(2023, 11, 16, 0, 0, 0, 0, time.UTC)
		last := time.Duration(0)
		for _, r := range got {
			if r.At < last || r.ContextTokens < 0 || r.GeneratedTokens < 0 {
				t.Fatalf("%+v after %s", r, last)
			}
			last = r.At
			fmt.Fprintf(&b, "%s,%d,%d\n", origin.Add(r.At).Format(stamp+".000000000"), r.ContextTokens, r.GeneratedTokens)
		}
		if last > 1000*time.Hour {
			return // the year 10000 is written with five digits
		}
		again, err := ReadRequests(strings.NewReader(b.String()))
		if diff := cmp.Diff(got, again); err != nil || diff != "" {
			t.Fatal(err, diff)
		}
	})
}

// FuzzReadNodes: what is read can be written and read again, and makes valid profiles.
func FuzzReadNodes(f *testing.F) {
	f.Add(someNodes)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ReadNodes(strings.NewReader(text))
		if err != nil {
			wantPlace(t, err)
			return
		}
		var b strings.Builder
		b.WriteString("sn,cpu_milli,memory_mib,gpu,model\n")
		for _, n := range got {
			fmt.Fprintf(&b, "%s,%d,%d,%d,%s\n", n.ID, n.CPUMilli, n.MemoryMiB, n.GPU, n.Model)
			if n.Slots() > 0 {
				if err := n.Profile("work").Validate("node"); err != nil {
					t.Fatal(err)
				}
			}
		}
		again, err := ReadNodes(strings.NewReader(b.String()))
		if diff := cmp.Diff(got, again); err != nil || diff != "" {
			t.Fatal(err, diff)
		}
	})
}

func wantPlace(t *testing.T, err error) {
	t.Helper()
	var bad *Error
	if !errors.As(err, &bad) || bad.Line < 1 || bad.Message == "" {
		t.Fatalf("%v does not say where", err)
	}
}
