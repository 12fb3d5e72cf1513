package frame

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
)

// twinDecode is DecodeRequests and DecodeAnswers by encoding/json, slowly: it looks at the whole
// frame before the first message.
func twinDecode[T any](frame []byte) (out []*T, err error) {
	all := []json.RawMessage{frame}
	array := strings.HasPrefix(strings.TrimLeft(string(frame), " \t\r\n"), "[")
	if array {
		if err := json.Unmarshal(frame, &all); err != nil {
			return nil, err
		}
	}
	for _, text := range all {
		one := new(T)
		if text = bytes.TrimLeft(text, " \t\r\n"); len(text) == 0 || text[0] != '{' {
			return out, errors.New("no object")
		}
		if err := json.Unmarshal(text, one); err != nil {
			return out, err
		}
		out = append(out, one)
	}
	return out, nil
}

// twinAppend is Append by encoding/json.
func twinAppend(message any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(message)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

func checkTwins[T any](t *testing.T, frame []byte, decode func([]byte, func(*T) error) error) {
	t.Helper()
	var got []*T
	err := decode(frame, func(one *T) error { got = append(got, one); return nil })
	want, wantErr := twinDecode[T](frame)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%q: error %v, encoding/json's is %v", frame, err, wantErr)
	}
	if err != nil {
		coded, _ := errors.AsType[*freeslot.Error](err)
		if coded == nil || coded.Code != freeslot.CodeInvalidArgument || len(coded.Message) > len(frame)+500 {
			t.Fatalf("%.1000q: error %.1000v, expected a short one for the agent", frame, err)
		}
		return
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q became %+v, expected %+v", frame, got, want)
	}
	for _, one := range got {
		text, err := Append(nil, one)
		wantText, wantErr := twinAppend(one)
		if (err == nil) != (wantErr == nil) || !equalJSON(text, wantText) {
			t.Fatalf("%+v became %q, %v, expected %q, %v", one, text, err, wantText, wantErr)
		}
	}
}

// equalJSON compares texts that may differ in how they write a character within a string.
func equalJSON(a, b []byte) bool {
	if bytes.Equal(a, b) || len(a) == 0 && len(b) == 0 {
		return true
	}
	var values [2]any
	for i, text := range [][]byte{a, b} {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		if decoder.Decode(&values[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// TestDeepIsLikeEncodingJSON has the frames that are too large to be seeds: the fuzzer would only
// shorten them.
func TestDeepIsLikeEncodingJSON(t *testing.T) {
	deep := strings.Repeat("[", 9990) + strings.Repeat("]", 9990)
	for _, text := range []string{
		`{"result":` + deep + `}`, `{"unknown":` + deep + `}`, `[{"result":` + deep + `}]`, strings.Repeat("[", 20000),
	} {
		checkTwins(t, []byte(text), DecodeRequests)
		checkTwins(t, []byte(text), DecodeAnswers)
	}
}

// FuzzCodecIsLikeEncodingJSON: the codec takes and refuses what encoding/json takes and refuses,
// understands the same, and writes the same.
func FuzzCodecIsLikeEncodingJSON(f *testing.F) {
	for _, seed := range []string{
		``, ` `, `null`, `7`, `{`, `{}{}`, `[]`, ` [ { } , {} ] `, `[{}`, `[{},]`, `[{}] 1`, `[null]`, "\xef\xbb\xbf{}", "{}\x00",
		`{"type":"hello","node":"n","epoch":"e","connection":1,"version":"v","check":true}`,
		`[{"type":"register","id":1,"profile":{"max_concurrency":2,"labels":{"b":"1","a":null},"pool_ids":[]}},{"type":"heartbeat","id":2,"running":["a:1",null],"resources":{"x":1}}]`,
		`{"type":"complete","id":3,"attempt":"a:1","state":"failed","error":{"code":"c","message":"m"},"next":"retry","retry_delay_ms":5}`,
		`{"type":"progress","id":4,"reports":[{"attempt":"a:1","seq":1,"value":[1, 2]},null,{}]}`,
		`{"TYPE":"spec","Job_ID":"x","jobid":"y","job-id":"z","İd":1,"ſtate":"s"}`, `{"type":"a","TYPE":"b","type":"c"}`,
		`{"id":1.0}`, `{"id":1e2}`, `{"id":-0}`, `{"connection":-0}`, `{"id":18446744073709551616}`, `{"id":01}`, `{"id":"1"}`, `{"id":true}`,
		`{"type":null,"id":null,"check":null,"profile":null,"running":null,"error":null,"attempt":null,"result":null,"reports":null}`,
		`{"running":["a:1","b:2"],"running":["c:3"]}`, `{"profile":{"max_concurrency":1},"profile":{"node_id":"n"}}`, `{"error":{"code":"c"},"error":null}`,
		`{"reports":[{"seq":1,"value":1}],"reports":[{"attempt":"a:1"}]}`, `{"attempt":"a:1","attempt":"b:2"}`, `{"attempt":{}}`, `{"running":{}}`,
		`{"result":"\ud800 \udc00 \u2028 \u0000 <&>"}`, "{\"result\":\"\xff\",\"type\":\"\xff\"}", `{"type":"\ud800<\u2028\u00e9"}`, "{\"result\":\"\u2028\",\"type\":\"\u2028\"}",
		`{"result":12345678901234567890.125e-400}`, `{"result":{"a":1,"a":2}}`, `{"result": [1 , 2]}`, `{"unknown":{"a":1,"a":[]},"unknown":1e999}`,
		`{"` + strings.Repeat("x", 5000) + `":`,
		`{"type":"jobs","jobs":[{"attempt":"j:1","tenant":"t","job":{"service":"s","payload": {"a": null},"requirement":{"labels":{"a":"b"}}}}],"begun":[{"job":null}]}`,
		`{"type":"welcome","session":"s","replaces":"e","allows":{"token":"t","nodes":null,"labels":{"a":[]}}}`, `{"type":"beat","start":[],"stop":["a:1"],"cancel":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		checkTwins(t, frame, DecodeRequests)
		checkTwins(t, frame, DecodeAnswers)
	})
}
