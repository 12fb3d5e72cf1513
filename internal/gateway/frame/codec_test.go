package frame

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
)

func requests(text string) (out []Request, err error) {
	err = DecodeRequests([]byte(text), func(r *Request) error {
		out = append(out, *r)
		return nil
	})
	return out, err
}

func TestDecodeRequests(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]Request{
		`{"type":"spec","id":7,"job_id":"j"}`:                               {{Type: TypeSpec, ID: 7, JobID: "j"}},
		"\n [ {\"type\":\"deregister\",\"id\":1} , {\"type\":\"nap\"} ] \n": {{Type: TypeDeregister, ID: 1}, {Type: "nap"}},
		`{"type":"heartbeat","id":1,"running":["a:1","b:20"],"mood":{}}`:    {{Type: TypeHeartbeat, ID: 1, Running: []Attempt{{"a", 1}, {"b", 20}}}},
		`{"type":"complete","attempt":"a:2","result":{"a": "<b>"}}`:         {{Type: TypeComplete, Attempt: &Attempt{"a", 2}, Result: json.RawMessage(`{"a": "<b>"}`)}},
		`[]`: nil,
		`{}`: {{}},
	} {
		got, err := requests(text)
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: %v, error %v, want %v", text, got, err, want)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for text, field := range map[string]string{
		``: "frame", `null`: "frame", `7`: "frame", `"x"`: "frame", `{`: "frame", `{} {}`: "frame", `[{}`: "frame", `[{}] 1`: "frame",
		`[7]`: "frame[0]", `[{},null]`: "frame[1]", `[[]]`: "frame[0]", `{"id":-1}`: "frame", `{"id":"1"}`: "frame",
		`{"running":["a"]}`: "frame", `{"running":[":1"]}`: "frame", `{"running":["a:0"]}`: "frame", `[{"attempt":"a:b"}]`: "frame[0]",
	} {
		_, err := requests(text)
		coded, _ := errors.AsType[*freeslot.Error](err)
		if coded == nil || coded.Code != freeslot.CodeInvalidArgument || coded.Field != field || !strings.HasPrefix(coded.Message, field+" is no ") {
			t.Errorf("%s: %v, want invalid_argument of field %s", text, err, field)
		}
	}
}

func TestDecodeEndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	calls := 0
	err := DecodeAnswers([]byte(`[{"type":"beat"},{"type":"beat"},{"type":"beat"}]`), func(*Answer) error {
		if calls++; calls == 2 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || calls != 2 {
		t.Errorf("%d calls, error %v", calls, err)
	}
}

// TestAppendKeepsValues: what jobs and handlers wrote is the same behind the codec.
func TestAppendKeepsValues(t *testing.T) {
	t.Parallel()
	for _, value := range []string{`"<a> & \u00e9"`, `{"n":12345678901234567890.125,"e":1e400}`, "\"\u2028\"", `null`} {
		text, err := Append(nil, &Request{Type: TypeComplete, ID: 1, Result: json.RawMessage(value)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := requests(string(text))
		if err != nil || len(got) != 1 || string(got[0].Result) != value {
			t.Errorf("%s became %s in %s, error %v", value, got[0].Result, text, err)
		}
	}
}

func TestAppendWelcome(t *testing.T) {
	t.Parallel()
	text, err := Append([]byte("x"), &Answer{Type: TypeWelcome, Welcome: &Welcome{Session: "s", Replaces: "e"}})
	if err != nil || text[0] != 'x' {
		t.Fatalf("%s, error %v", text, err)
	}
	err = DecodeAnswers(text[1:], func(a *Answer) error {
		if a.Welcome == nil || a.Session != "s" || a.Welcome.Replaces != "e" {
			return fmt.Errorf("got %+v", a.Welcome)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := Append(nil, &Answer{Job: &freeslot.Job{Payload: json.RawMessage("{")}}); err == nil {
		t.Error("a payload that is no JSON was encoded")
	}
}

// FuzzDecodeRequests: whatever a frame is, it is refused by code or decoded, and what was decoded is
// the same behind another round.
func FuzzDecodeRequests(f *testing.F) {
	for _, seed := range []string{
		`{"type":"hello","node":"n","epoch":"e","connection":1,"version":"v","check":true}`,
		`[{"type":"register","id":1,"profile":{"max_concurrency":2}},{"type":"heartbeat","id":2,"running":["a:1"],"resources":{"x":1}}]`,
		`{"type":"complete","id":3,"attempt":"a:1","state":"failed","error":{"code":"c","message":"m"},"next":"retry","retry_delay_ms":5}`,
		`{"type":"progress","id":4,"reports":[{"attempt":"a:1","seq":1,"value":[1, 2]}]}`, `[`, `null`, "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		err := DecodeRequests(text, func(r *Request) error {
			once, err := Append(nil, r)
			if err != nil {
				t.Fatalf("%s cannot be encoded: %v", text, err)
			}
			return DecodeRequests(once, func(r *Request) error {
				if twice, err := Append(nil, r); err != nil || string(twice) != string(once) {
					t.Fatalf("%s became %s, error %v", once, twice, err)
				}
				return nil
			})
		})
		if coded, ok := errors.AsType[*freeslot.Error](err); err != nil && (!ok || coded.Code != freeslot.CodeInvalidArgument) {
			t.Fatalf("%s: error %v", text, err)
		}
	})
}

// TestDeepValues: the deepest payload and result that are valid pass in arrays of messages.
func TestDeepValues(t *testing.T) {
	t.Parallel()
	deep := json.RawMessage(strings.Repeat("[", 9000) + strings.Repeat("]", 9000))
	if err := freeslot.ValidateJSON("payload", deep); err != nil {
		t.Fatal(err)
	}
	decoded := 0
	text, err := Append(nil, &Answer{Type: TypeJobs, Jobs: []Delivery{{Attempt: Attempt{Job: "j", N: 1}, Job: &freeslot.Job{Service: "s", Payload: deep}}}})
	if err == nil {
		err = DecodeAnswers([]byte("["+string(text)+"]"), func(a *Answer) error { decoded += len(a.Jobs[0].Job.Payload); return nil })
	}
	if err != nil || decoded != len(deep) {
		t.Errorf("%d bytes, %v", decoded, err)
	}
	text, err = Append(nil, &Request{Type: TypeComplete, ID: 1, Result: deep})
	if err == nil {
		err = DecodeRequests([]byte("["+string(text)+"]"), func(r *Request) error { decoded += len(r.Result); return nil })
	}
	if err != nil || decoded != 2*len(deep) {
		t.Errorf("%d bytes, %v", decoded, err)
	}
}

// TestRefusedAttemptIsShort: an error does not repeat an agent's long text.
func TestRefusedAttemptIsShort(t *testing.T) {
	var a Attempt
	if err := a.UnmarshalText([]byte(strings.Repeat("x", 500_000))); err == nil || len(err.Error()) > 200 {
		t.Errorf("error %.300v, expected a short one", err)
	}
}
