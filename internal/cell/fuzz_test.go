package cell

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell/profile"
)

// What the fuzzers look for: no panic on whatever an operator or another release
// left in Redis, and a result that can be encoded for a client.

func encodable(t *testing.T, s freeslot.JobStatus) {
	t.Helper()
	if len(s.Result) > 0 && !json.Valid(s.Result) {
		return // results are checked before they are written, and not again
	}
	if _, err := json.Marshal(s); err != nil {
		t.Errorf("status %+v cannot be encoded: %v", s, err)
	}
}

func FuzzDecodeStatus(f *testing.F) {
	const static = "|acme 1 1700000000000 3600000 263ba84df4d365a9 9 3 1700000060000 {\"service\":\"echo\"}|"
	const running = static + "1 n1 e1 1700000000000||"
	f.Add("running" + running + "||")
	f.Add("succeeded" + running + "|1|{\"a\":1}")
	f.Add("succeeded" + running + "|1|")
	f.Add("running" + running + "|||||1 2 1700000000000 {\"a\": 1}||")
	f.Add("running" + running + "|||||1 2 1700000000000 {||")
	f.Add("running" + running + "|||||1 x 1700000000000||")
	f.Add("running" + running + "||0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z|nightly 0-01JD5Y8G6W9V0M5T2C3Q4R7X8Y|||1 n1 1 2 failed boom,2 n2 0 3 lost -|")
	f.Add("running" + running + "|||nightly|||1 n1 1 2 failed|")
	f.Add("running" + running + "|||- -|||,|")
	f.Add("succeeded" + running + "|1")
	f.Add("failed" + running + "{\"code\":\"x\",\"message\":\"y\"}|1|")
	f.Add("failed" + running + "{|1|")
	f.Add("waiting" + static + "|||")
	f.Add("retry_wait" + static + "2 n1 e1 1|1 1700000000000 n1|{\"code\":\"x\"}|")
	f.Add("retry_wait" + static + "2 n1 e1 1|x 1 n1|{|")
	f.Add("dead" + static + "3 n1 e1 1|3 1 n1|{\"code\":\"x\"}|1|")
	f.Add("expired" + static + "|||1|")
	f.Add("cancelled|acme x 1 1 c 0 3 0 {}|1 n1 e1 1||1|")
	f.Add("cancelled|acme 1 x 1 c 0 3 0 {}|1 n1 e1 1||1|")
	f.Add("cancelled|acme 1 1 1 c x 3 0 {}|x n1 e1 1||1|")
	f.Add("cancelled|acme 1 1 1 c 0 3 x {}|1 n1 e1 x||1|")
	f.Add("cancelled|acme 1 1 1 c 0 3 0  a b |1 n1 e1 1||x|")
	f.Add("|||||")
	f.Fuzz(func(t *testing.T, fields string) {
		text := strings.SplitN(fields, "|", len(statusFields))
		s, err := decodeStatus("0-1", text)
		if err != nil {
			return
		}
		encodable(t, s)
		whole := len(text) == len(statusFields)
		if whole && (text[11] == "") != (len(s.Attempts) == 0) || len(s.Attempts) > freeslot.MaxPastAttempts {
			t.Errorf("%q became attempts %+v", text[11], s.Attempts)
		}
		if !whole && len(text) != len(headFields) || s.ID != "0-1" || string(s.State) != text[0] || strconv.Itoa(s.Attempt) == "" {
			t.Errorf("%q became %+v", text, s)
		}
		if s.State == freeslot.StateFailed && s.Error == nil || whole && s.State == freeslot.StateSucceeded && len(s.Result) == 0 {
			t.Errorf("%q became %+v", text, s)
		}
	})
}

// fieldsOf reads "field=value|…".
func fieldsOf(text string) (f fields) {
	for p := range strings.SplitSeq(text, "|") {
		field, value, _ := strings.Cut(p, "=")
		f = append(f, rueidis.XRangeFieldValue{Field: field, Value: value})
	}
	return f
}

// partsOf fails unless the parts make up the entry, in order, and each tells of one job.
func partsOf(t *testing.T, entry fields) (all []fields) {
	t.Helper()
	var sum fields
	for one := range parts(entry) {
		all, sum = append(all, one), append(sum, one...)
		if slices.ContainsFunc(one[1:], func(f rueidis.XRangeFieldValue) bool { return f.Field == "j" }) {
			t.Errorf("%v tells of two jobs", one)
		}
	}
	if !slices.Equal(sum, entry) {
		t.Errorf("%v came apart into %v", entry, all)
	}
	return all
}

func FuzzDecodeDispatch(f *testing.F) {
	const job = "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z"
	f.Add("j=" + job + " 1 acme|s={\"service\":\"echo\"}")
	f.Add("c=" + job + " 1")
	f.Add("c=" + job + " 1 acme")
	f.Add("j=" + job + " 99999999999999999999 acme|s=")
	f.Add("j= 1 acme")
	f.Add("j=1-01JD5Y8G6W9V0M5T2C3Q4R7X8Z 1 acme|c=")
	f.Add("j=" + job + " 1 acme|s=null")
	f.Add("j=" + job + " 1 acme|s={\"service\":1}")
	f.Add("j=" + job + " 1 acme|s=|j=" + job + " 2 acme|j=|c=" + job + " 1")
	f.Fuzz(func(t *testing.T, text string) {
		for _, one := range partsOf(t, fieldsOf(text)) {
			d, err := decodeDispatch("1-1", one)
			field := map[bool]string{false: "j", true: "c"}[d.Cancel]
			if err == nil && (d.ID != "1-1" || d.Attempt.Job == "" || !strings.HasPrefix(one.get(field), d.Attempt.Job+" ")) {
				t.Errorf("%q became %+v", one, d)
			}
			if err == nil && d.Job != nil && d.Job.SlotCount() < 1 {
				t.Errorf("%q takes %d slots", one, d.Job.SlotCount())
			}
		}
	})
}

func FuzzDecodeGatewayDispatch(f *testing.F) {
	const job = "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z"
	f.Add("j=" + job + " 1 acme n1 s1|s={\"service\":\"echo\"}")
	f.Add("j=" + job + " 1 acme n1 s1|s=|j=" + job + " 2 acme n2 s2|s=null")
	f.Add("j=" + job + " 1 acme n1")
	f.Add("j=" + job + " x acme n1 s1")
	f.Add("j= 1 acme n1 s1")
	f.Add("c=" + job + " 1 n1 s1")
	f.Add("c=" + job + " 1")
	f.Add("open=1")
	f.Fuzz(func(t *testing.T, text string) {
		for _, one := range partsOf(t, fieldsOf(text)) {
			d, err := decodeGatewayDispatch("1-1", one)
			if err != nil {
				continue
			}
			head, want := one.get("j"), []string{d.Tenant, d.Node, d.Session}
			if d.Cancel {
				head, want = one.get("c"), want[1:]
			}
			if d.ID != "1-1" || ValidateJobID("job", d.Attempt.Job) != nil || !strings.HasSuffix(head, " "+strings.Join(want, " ")) {
				t.Errorf("%q became %+v", one, d)
			}
		}
	})
}

func FuzzDecodeReply(f *testing.F) {
	f.Add("j=0-1 1 n1 succeeded 1700000000000 1 0|r={}")
	f.Add("j=0-1 1 n1 failed 1700000000000 0 0|r=|e={\"code\":\"x\"}")
	f.Add("j=0-1 1 n1 succeeded 1 -1 1|r=")
	f.Add("d=0-1")
	f.Add("a=0-1 2 n1 1700000000000 3")
	f.Add("a=0-1 x n1 1 3")
	f.Add("a=0-1 1 n1 x 3")
	f.Add("a=0-1 1 n1 1 x")
	f.Add("a=0-1")
	f.Add("w=0-1 263ba84df4d365a9")
	f.Add("w=0-1")
	f.Add("j=0-1 0 - cancelled 1700000000000 0 0|r=")
	f.Add("j=0-1 x n1 succeeded 1 1 1")
	f.Add("j=0-1 1 n1 succeeded x 1 1")
	f.Add("j=0-1 1 n1 succeeded 1 x 1")
	f.Add("j=0-1 1")
	f.Add("j=0-1 1 n1 succeeded 1 1 0|r={}|j=0-2 2 n1 failed 1 1 0|r=|e={}|f=1|j=0-3 1 n1 succeeded 1 0 1|r=")
	f.Fuzz(func(t *testing.T, text string) {
		for _, one := range partsOf(t, fieldsOf(text)) {
			r, err := decodeReply("1-1", one)
			if err != nil {
				continue
			}
			encodable(t, r.Status)
			field := "j"
			switch {
			case r.Assigned:
				field = "a"
			case r.Requeued:
				field = "w"
			}
			id, _, _ := strings.Cut(one.get(field), " ")
			if r.Detached {
				id = one.get("d")
			}
			if r.Assigned && (r.Detached || r.Requeued || r.Status.State != freeslot.StateRunning) || r.Requeued && r.Detached {
				t.Errorf("%q became %+v", one, r)
			}
			if r.ID != "1-1" || r.Status.ID != id || r.Detached != (one.get("d") != "") {
				t.Errorf("%q became %+v", one, r)
			}
		}
	})
}

func FuzzParseAttempt(f *testing.F) {
	f.Add("0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z:1")
	f.Add(":")
	f.Add("a:b:1")
	f.Add("a:-1")
	f.Fuzz(func(t *testing.T, held string) {
		a, err := parseAttempt(held)
		if err == nil && !strings.HasPrefix(held, a.Job+":") {
			t.Errorf("%q became %+v", held, a)
		}
	})
}

func FuzzDecodeNode(f *testing.F) {
	f.Add("n1|1|0|1700000000000|{}|e1|online|1700000000000|4|{}|[]|[]|{}|{}")
	f.Add("-n1|1")
	f.Add("-|1")
	f.Add("n1|x|0|0|{}|e1|online|0|4|{}|[]|[]|{}|{}")
	f.Add("n1|1|x|x|{|e1|on line|x|x|{|{|{|[|[")
	f.Fuzz(func(t *testing.T, values string) {
		var n NodeState
		if decodeNode(profile.NewDecoder(), &n, strings.Split(values, "|")) != nil {
			return
		}
		if n.Resources != nil && !json.Valid(n.Resources) {
			t.Errorf("%q has resources %s", values, n.Resources)
		}
		if n.Gone != strings.HasPrefix(values, "-") {
			t.Errorf("%q became %+v", values, n)
		}
		if _, err := json.Marshal(n.Node); err != nil {
			t.Errorf("%q became %+v: %v", values, n, err)
		}
	})
}

func FuzzIsStreamID(f *testing.F) {
	f.Add("1700000000000-0")
	f.Add("-")
	f.Add("1-1-1")
	f.Fuzz(func(t *testing.T, id string) {
		if isStreamID(id) && (strings.Trim(id, "0123456789-") != "" || strings.Count(id, "-") != 1) {
			t.Errorf("%q is no id", id)
		}
	})
}

func FuzzValidateJobID(f *testing.F) {
	f.Add(NewJobID(0))
	f.Add("0-{}")
	f.Fuzz(func(t *testing.T, id string) {
		if ValidateJobID("id", id) == nil && freeslot.ValidateName("id", id) != nil {
			t.Errorf("%q may be part of a key", id)
		}
	})
}

func FuzzParseHeartbeat(f *testing.F) {
	for _, seed := range []string{"1 0", "18446744073709551615 65536", "1", " 1", "1  1", "-1 0", "1 -1", "1e3 0", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		out, err := parseHeartbeat(text)
		if err != nil {
			return
		}
		if again, err := parseHeartbeat(strconv.FormatUint(out.Revision, 10) + " " + strconv.Itoa(out.Used)); err != nil || again.Revision != out.Revision || again.Used != out.Used {
			t.Errorf("%q became %+v, then %+v, %v", text, out, again, err)
		}
	})
}

func FuzzInfoFields(f *testing.F) {
	f.Add("# Server\r\nredis_version:7.0.15\r\nx:\r\n")
	f.Add("cluster_state:ok\ncluster_size:3")
	f.Fuzz(func(t *testing.T, text string) {
		for name, value := range infoFields(text) {
			if !strings.Contains(text, name+":"+value) {
				t.Errorf("%q has no %q with %q", text, name, value)
			}
		}
	})
}
