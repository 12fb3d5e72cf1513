package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// answer returns the error of a script to which Redis would answer with it.
func answer(t *testing.T, client rueidis.Client, text string) error {
	t.Helper()
	script := client.B().Eval().Script("return redis.error_reply(ARGV[1])").Numkeys(0).Arg(text).Build()
	err := client.Do(deadline(t), script).Error()
	if err == nil || err.Error() != strings.TrimPrefix(text, "ERR ") {
		t.Fatalf("got %v, want %s", err, text)
	}
	return fmt.Errorf("submit 3 jobs: %w", err)
}

// What an error means for the call and for its cell.
func TestRedisError(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	for name, tt := range map[string]struct {
		err        error
		notApplied bool
		refusal    string
		away       bool
	}{
		"few replicas": {answer(t, client, "NOREPLICAS Not enough good replicas to write. script: f00, on @user_script:1."), true, "NOREPLICAS", true},
		"replica":      {answer(t, client, "READONLY You can't write against a read only replica."), true, "READONLY", true},
		"disk":         {answer(t, client, "MISCONF Errors writing to the AOF file"), true, "MISCONF", true},
		"loading":      {answer(t, client, "LOADING Redis is loading the dataset in memory"), true, "LOADING", true},
		"no master":    {answer(t, client, "MASTERDOWN Link with MASTER is down"), true, "MASTERDOWN", true},
		"cluster":      {answer(t, client, "CLUSTERDOWN Hash slot not served"), true, "CLUSTERDOWN", true},
		"permission":   {answer(t, client, "NOPERM this user has no permissions to run the 'evalsha' command"), true, "NOPERM", true},
		// A later command of the script. The earlier ones have written.
		"permission in a script": {answer(t, client, "NOPERM ACL failure in script: User has no permissions to run the 'xadd' command"), false, "", true},
		"script":                 {answer(t, client, "ERR user_script:1: NOREPLICAS"), false, "", true},
		"wrong type":             {answer(t, client, "WRONGTYPE Operation against a key"), false, "", true},
		"memory":                 {answer(t, client, "OOM command not allowed when used memory > 'maxmemory'."), true, "", false},
		"broken":                 {io.EOF, false, "", true},
		"late":                   {context.DeadlineExceeded, false, "", true},
		"queued":                 {fmt.Errorf("%w: %w", cell.ErrNotSent, context.DeadlineExceeded), true, "", true},
		"stopped":                {fmt.Errorf("submit: %w", cell.ErrStopped), true, "", false},
		"ours":                   {&freeslot.Error{Code: freeslot.CodeInvalidArgument}, true, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := notApplied(tt.err); got != tt.notApplied {
				t.Errorf("not applied: %v", got)
			}
			if got := refusalCode(tt.err); got != tt.refusal {
				t.Errorf("refusal: %q", got)
			}
			if got := isAway(tt.err); got != tt.away {
				t.Errorf("away: %v", got)
			}
		})
	}
}

// If a call fails in several ways, the failure counts that says most about the cell, in any order.
func TestNoteFailures(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	late, memory := context.DeadlineExceeded, errors.New("submit 1 jobs: OOM command not allowed")
	readOnly := answer(t, client, "READONLY You can't write against a read only replica.")
	for name, tt := range map[string]struct {
		errs            []error
		failed, refused int
	}{
		"all well":                  {[]error{nil, nil}, 0, 0},
		"no answer":                 {[]error{nil, late}, 1, 0},
		"memory":                    {[]error{memory, nil}, 0, 0},
		"memory behind no answer":   {[]error{late, memory}, 1, 0},
		"no answer behind memory":   {[]error{memory, late}, 1, 0},
		"refused":                   {[]error{readOnly, readOnly}, 1, 1},
		"memory behind a refusal":   {[]error{readOnly, memory}, 1, 1},
		"a refusal behind memory":   {[]error{memory, readOnly}, 1, 1},
		"a refusal after no answer": {[]error{late, readOnly, memory}, 1, 1},
		"not sent":                  {[]error{nil, cell.ErrNotSent}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spied := new(spy)
			rep := newRig(t, redistest.Shared(t)).unstarted("r1", spied.on)
			f := &call{at: rep.byCell[0]}
			for _, err := range tt.errs {
				f.results = append(f.results, cell.SubmitResult{Err: err})
			}
			s := &submit{d: rep.Dispatcher, ctx: t.Context()}
			s.noteFailures(f)
			if failed, refused := int(spied.failed.Load()), int(spied.refused.Load()); failed != tt.failed || refused != tt.refused {
				t.Errorf("%d failures and %d refusals noted, expected %d and %d", failed, refused, tt.failed, tt.refused)
			}
		})
	}
}
