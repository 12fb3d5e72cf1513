package script

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestReply: the first error stays, and what is read after it is zero.
func TestReply(t *testing.T) {
	t.Parallel()
	rig := newRig(t, redistest.Shared(t))
	answer := func() Reply {
		return ReadReply(rig.Call(rig.ctx(), New("answer", "return {7, 'a', 'b', '8'}"), []string{rig.key}, nil))
	}
	r := answer()
	if n, texts := r.Number(), r.Texts(); n != 7 || !slices.Equal(texts, []string{"a", "b", "8"}) || r.Err != nil {
		t.Errorf("Number and Texts returned %d, %q with error %v, expected 7 and a, b, 8 without one", n, texts, r.Err)
	}
	if s := r.Text(); s != "" || r.Err == nil || !strings.Contains(r.Err.Error(), "too short") {
		t.Errorf("a read past the end returned %q with error %v, expected an error that it is too short", s, r.Err)
	}
	r = answer()
	_, n := r.Number(), r.Number()
	first := r.Err
	if s := r.Text(); n != 0 || s != "" || first == nil || r.Err != first { //nolint:errorlint // the same error, not one like it
		t.Errorf("after error %v: text %q and error %v, expected no text and the first error", first, s, r.Err)
	}
	r = ReadReply(&rueidis.RedisMessage{})
	if texts := r.Texts(); texts != nil || r.Err == nil {
		t.Errorf("an answer that is no array brought %q and error %v, expected only an error", texts, r.Err)
	}
}
