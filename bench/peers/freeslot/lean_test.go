package main

import (
	"bufio"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/cell"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReadReply(t *testing.T) {
	t.Parallel()
	text := "*1\r\n*2\r\n$1\r\nk\r\n*2\r\n*2\r\n$3\r\n1-0\r\n*6\r\n$1\r\nj\r\n$5\r\na 2 x\r\n$1\r\ns\r\n$0\r\n\r\n$1\r\nj\r\n$5\r\nb 1 x\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nc\r\n$0\r\n\r\n"
	in := bufio.NewReader(strings.NewReader(text + "*-1\r\n:7\r\n"))
	reply, err := measure.ReadReply(in)
	if err != nil {
		t.Fatal(err)
	}
	got := entriesOf(reply)
	want := []entry{{"1-0", []string{"a 2 x", "b 1 x"}}, {"1-1", nil}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(entry{})); diff != "" {
		t.Error(diff)
	}
	if at, ok := attemptOf(got[0].jobs[0]); !ok || at != (cell.Attempt{Job: "a", N: 2}) {
		t.Errorf("attempt is %v, %t", at, ok)
	}
	if _, ok := attemptOf("c"); ok {
		t.Error("what is no job has an attempt")
	}
	for _, want := range []any{nil, int64(7)} {
		if got, err := measure.ReadReply(in); err != nil || got != want {
			t.Errorf("got %v, %v, expected %v", got, err, want)
		}
	}
	for _, bad := range []string{"-ERR no\r\n", "", "\r\n", "?1\r\n", "$5\r\nab", "*2\r\n:1\r\n"} {
		if _, err := measure.ReadReply(bufio.NewReader(strings.NewReader(bad))); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
