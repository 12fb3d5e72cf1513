package reader

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/testing/apitest"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// What a reader asks of a list, from nothing to its end.
func TestRoutes(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		const changes = "/v1/lists/vip/changes"
		marks := func(want ...string) {
			t.Helper()
			r.ask("POST", "/v1/list-marks", `{"lists":{"vip":{}},"history":true}`, 200, append(want, `"history":"`)...)
		}
		if got := r.ask("GET", changes, "", 200, `"edits":[]`); got.Body["head"] != nil || got.Body["history"] == "" {
			t.Errorf("a list that never was: %s", got.Text)
		}
		marks(`"vip":{}`)
		r.create("vip")
		r.ask("GET", changes, "", 200, `"state":"draft"`)
		v := r.publish("vip", "a", "b")
		revision := r.edit("vip", "c")
		marks(fmt.Sprintf(`"vip":{"revision":%d,"birth":"`, revision))
		got := r.ask("GET", changes, "", 200, `"build":"`+v.Build, fmt.Sprintf(`"edits":[{"revision":%d,"entries":[{"id":"c"}]}]`, revision))
		if strings.Contains(got.Text, "test") || strings.Contains(got.Text, "operators") {
			t.Errorf("readers see who builds: %s", got.Text)
		}
		r.ask("GET", fmt.Sprintf("%s?after=%d", changes, revision), "", 200, `"edits":[]`)
		d, err := namelist.DecodeDelta("vip", []byte(got.Text), 0)
		r.must(err)
		is, err := r.control.Delta(bounded(t), "vip", 0, true)
		r.must(err)
		if d.Head.Seed != is.Head.Seed || d.Head.Birth != is.Head.Birth || d.Head.Form != is.Head.Form || d.History != is.History || len(d.Edits) != len(is.Edits) {
			t.Errorf("%+v, expected %+v", d, is)
		}

		build := fmt.Sprintf("/v1/lists/vip/versions/%d/", v.Number)
		block := r.ask("GET", build+"blocks/0?build="+v.Build, "", 200)
		if _, err := filter.Decode([]byte(block.Text), v.Build, 0); err != nil || block.Header.Get("Content-Type") != "application/octet-stream" {
			t.Errorf("block: %v, %v", err, block.Header)
		}
		again := r.Do(t, "GET", build+"blocks/0?build="+v.Build, "", append(acme, "If-None-Match", block.Header.Get("ETag"))...)
		if again.Status != http.StatusNotModified || again.Text != "" {
			t.Errorf("with its ETag: %d %s", again.Status, again.Text)
		}
		r.ask("GET", build+"blocks/1?build="+v.Build, "", 404, "has no block 1")
		r.ask("GET", build+"ids?build="+v.Build, "", 200, `{"ids":{"a":0,"b":0}}`)

		check := func(build string, status int, want string) {
			t.Helper()
			body := fmt.Sprintf(`{"version":%d,"build":"%s","ids":["a","x","\n"]}`, v.Number, build)
			r.ask("POST", "/v1/lists/vip/check", body, status, want)
		}
		check(v.Build, 200, `{"found":[{"member":true},{"member":false},{"member":false,"why":"invalid"}]}`)
		other := strings.Repeat("f", 32)
		check(other, 409, `"field":"build"`)
		r.ask("GET", build+"blocks/0?build="+other, "", 409, `"field":"build"`)
		r.ask("GET", "/v1/lists/vip/versions/99/ids?build="+other, "", 409, `"field":"build"`)

		r.do("HSET", r.segment("vip", &v), "", other+" 2")
		check(v.Build, 200, `"why":"moved"`)
		r.ask("GET", build+"ids?build="+v.Build, "", 500)
		r.do("DEL", r.segment("vip", &v))
		check(v.Build, 200, `"why":"segment"`)
		r.publish("vip", "d")
		_, err = r.control.DropVersion(bounded(t), "vip", v.Number)
		r.must(err)
		check(v.Build, 409, `"field":"build"`)

		r.ask("POST", "/v1/list-reports", fmt.Sprintf(`{"client":"c1","lists":{"vip":{"birth":"%s","serves":%d}}}`, d.Head.Birth, v.Number), 200)
		live, _, err := r.control.Clients(bounded(t), "vip")
		r.must(err)
		if len(live) != 1 || live[0].ID != "c1" || live[0].Serves != v.Number {
			t.Errorf("clients: %+v", live)
		}
		_, err = r.control.Delete(bounded(t), "vip", namelist.AnyVersion, true, namelist.By{})
		r.must(err)
		r.ask("GET", changes, "", 200, `"state":"deleting"`)
		r.must(r.control.FinishDelete(bounded(t), "vip"))
		r.ask("GET", changes, "", 200, `"state":"deleted"`)
		marks(`"vip":{}`)
		check(v.Build, 409, `"field":"build"`)
	})
}

// Requests that are refused, and who may ask.
func TestRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.create("vip")
	many := func(n int, what string) string { return strings.TrimSuffix(strings.Repeat(what+",", n), ",") }
	names := make([]string, namelist.LookLists+1)
	for i := range names {
		names[i] = fmt.Sprintf(`"l%d":{}`, i)
	}
	for _, c := range []struct{ method, target, body, field string }{
		{"POST", "/v1/list-marks", `{}`, "lists"},
		{"POST", "/v1/list-marks", `{"lists":{"a_b":{}}}`, `lists["a_b"]`},
		{"POST", "/v1/list-marks", `{"lists":{"a":{}},"wait_ms":30001}`, "wait_ms"},
		{"POST", "/v1/list-marks", `{"lists":{"a":{}},"wait":1}`, "wait"},
		{"POST", "/v1/list-marks", `{"lists":{` + strings.Join(names, ",") + `}}`, "lists"},
		{"GET", "/v1/lists/a_b/changes", "", "list"},
		{"GET", "/v1/lists/vip/changes?wait_ms=30001", "", "wait_ms"},
		{"GET", "/v1/lists/vip/changes?after=-1", "", "after"},
		{"GET", "/v1/lists/vip/versions/1/blocks/0", "", "build"},
		{"GET", "/v1/lists/a_b/versions/1/ids?build=" + strings.Repeat("0", 32), "", "list"},
		{"POST", "/v1/lists/vip/check", `{"version":1,"build":"x","ids":[]}`, "ids"},
		{"POST", "/v1/lists/vip/check", `{"version":1,"build":"x","ids":[` + many(namelist.MaxCheck+1, `"a"`) + `]}`, "ids"},
		{"POST", "/v1/lists/a_b/check", `{"version":1,"build":"x","ids":["a"]}`, "list"},
		{"POST", "/v1/list-reports", `{"client":"a b","lists":{"vip":{}}}`, "client"},
		{"POST", "/v1/list-reports", `{"client":"c","lists":{}}`, "lists"},
		{"POST", "/v1/list-reports", `{"client":"c","lists":{"vip":{"loaded":[` + many(maxLoaded+1, "1") + `]}}}`, "lists.vip"},
	} {
		got := r.ask(c.method, c.target, c.body, http.StatusBadRequest)
		if got.Body["field"] != c.field {
			t.Errorf("%s %s: %s, expected field %s", c.method, c.target, got.Text, c.field)
		}
	}
	large := r.Do(t, "POST", "/v1/list-marks", strings.Repeat(" ", 2*maxMarks), acme...)
	large.Refusal(t, http.StatusRequestEntityTooLarge, freeslot.CodePayloadTooLarge)
	wrong := r.Do(t, "GET", "/v1/lists/vip/changes", "", "Authorization", "Bearer other")
	wrong.Refusal(t, http.StatusUnauthorized, freeslot.CodeUnauthenticated)
}

// A request that waits has its answer as soon as the list changes.
func TestWait(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newBlindRig(t, redis)
		t.Cleanup(func() {
			for _, stop := range r.hub.drop(func(*watched) bool { return true }) {
				stop()
			}
		})
		r.create("vip")
		r.publish("vip", "z")
		first := r.edit("vip", "a")
		answers := make(chan apitest.Response, 3)
		wait := func(method, target, body string) {
			begun := max(0, r.waitingFor("vip")) + 1
			go func() { answers <- r.Do(t, method, target, body, acme...) }()
			r.must(redistest.Await(func(context.Context) bool { return r.waitingFor("vip") == begun && r.followed("vip") }))
		}
		wait("GET", fmt.Sprintf("/v1/lists/vip/changes?after=%d&wait_ms=20000", first), "")
		wait("POST", "/v1/list-marks", fmt.Sprintf(`{"wait_ms":20000,"lists":{"vip":{"revision":%d},"other":{}}}`, first))
		second := r.edit("vip", "b")
		for range 2 {
			if got := <-answers; got.Status != 200 || !strings.Contains(got.Text, fmt.Sprintf(`"revision":%d`, second)) {
				t.Errorf("%d %s; want got.Status == 200, strings.Contains(got.Text, fmt.Sprintf(`\"revision\":%%d`, second))", got.Status, got.Text)
			}
		}

		// The end of the wait is an answer, too, and so is the end of the replica.
		r.ask("POST", "/v1/list-marks", fmt.Sprintf(`{"wait_ms":10,"lists":{"vip":{"revision":%d}}}`, second), 200, fmt.Sprintf(`"revision":%d`, second))
		wait("POST", "/v1/list-marks", fmt.Sprintf(`{"wait_ms":20000,"lists":{"vip":{"revision":%d}}}`, second))
		r.Drain()
		if got := <-answers; got.Status != 200 {
			t.Errorf("%d %s; want got.Status == 200", got.Status, got.Text)
		}
		r.ask("GET", fmt.Sprintf("/v1/lists/vip/changes?after=%d&wait_ms=20000", second), "", http.StatusServiceUnavailable)
	})
}

// Of a list that has gone there is nothing new until it is made again.
func TestWaitForDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.create("vip")
	_, err := r.control.Delete(bounded(t), "vip", namelist.AnyVersion, true, namelist.By{})
	r.must(err)
	r.must(r.control.FinishDelete(bounded(t), "vip"))
	d, err := r.control.Delta(bounded(t), "vip", 0, false)
	r.must(err)
	changes := fmt.Sprintf("/v1/lists/vip/changes?after=%d&wait_ms=", d.Head.Revision)
	r.ask("GET", changes+"300", "", 200, `"state":"deleted"`)
	r.ask("GET", "/v1/lists/vip/changes?after=1&wait_ms=20000", "", 200, `"state":"deleted"`)
	answer := make(chan apitest.Response, 1)
	go func() { answer <- r.Do(t, "GET", changes+"20000", "", acme...) }()
	r.must(redistest.Await(func(context.Context) bool { return r.waitingFor("vip") == 1 }))
	r.create("vip")
	if got := <-answer; got.Status != 200 || !strings.Contains(got.Text, `"state":"draft"`) {
		t.Errorf("%d %s; want got.Status == 200, strings.Contains(got.Text, `\"state\":\"draft\"`)", got.Status, got.Text)
	}
}

// A change whose event is lost is found by the look each second, and so is a list that is made.
func TestSecondWitness(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.hub.follow = func(string, func(namelist.Event)) func() { return func() {} }
	r.create("vip")
	r.publish("vip", "z")
	first := r.edit("vip", "a")
	answers := make(chan apitest.Response, 2)
	for _, known := range []string{fmt.Sprintf(`"vip":{"revision":%d}`, first), `"new":{}`} {
		go func() {
			answers <- r.Do(t, "POST", "/v1/list-marks", `{"wait_ms":20000,"lists":{`+known+`}}`, acme...)
		}()
	}
	r.must(redistest.Await(func(context.Context) bool { return r.waitingFor("vip") == 1 && r.waitingFor("new") == 1 }))
	r.edit("vip", "b")
	r.create("new")
	for range 2 {
		if got := <-answers; got.Status != 200 {
			t.Errorf("%d %s; want got.Status == 200", got.Status, got.Text)
		}
	}
}

// The lists that requests wait for are bounded, and those that nobody asks for are forgotten.
func TestBounds(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.create("vip")
	r.publish("vip", "z")
	r.hub.mu.Lock()
	r.hub.waiting = maxWaiting
	r.hub.mu.Unlock()
	got := r.ask("POST", "/v1/list-marks", `{"wait_ms":1,"lists":{"vip":{}}}`, http.StatusTooManyRequests)
	got.Refusal(t, http.StatusTooManyRequests, freeslot.CodeOverloaded)
	r.hub.mu.Lock()
	r.hub.waiting = 0
	r.hub.mu.Unlock()

	revision := r.edit("vip", "a")
	r.ask("POST", "/v1/list-marks", fmt.Sprintf(`{"wait_ms":1,"lists":{"vip":{"revision":%d},"none":{}}}`, revision), 200)
	if !r.followed("vip") || r.followed("none") {
		t.Error("a list is not followed, or one that is not there is")
	}
	r.hub.mu.Lock()
	for _, on := range r.hub.lists {
		on.left = on.left.Add(-2 * linger)
	}
	r.hub.mu.Unlock()
	r.must(redistest.Await(func(context.Context) bool { return !r.followed("vip") && r.waitingFor("vip") < 0 }))

	for i := range 2 * knownBuilds {
		r.mu.Lock()
		r.builds[buildID{list: "vip", number: int64(i)}] = nil
		r.mu.Unlock()
	}
	v := r.publish("vip", "a")
	r.ask("POST", "/v1/lists/vip/check", fmt.Sprintf(`{"version":%d,"build":"%s","ids":["a"]}`, v.Number, v.Build), 200, `"member":true`)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.builds) != 1 {
		t.Errorf("%d builds are known", len(r.builds))
	}
}

// slowWriter is a client that reads its answer late.
type slowWriter struct {
	*httptest.ResponseRecorder
	begun, read chan struct{}
}

func (w *slowWriter) Write(part []byte) (int, error) {
	close(w.begun)
	<-w.read
	return w.ResponseRecorder.Write(part)
}

// What is loaded counts until the client has it.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.create("vip")
	v := r.publish("vip", "a")
	for _, what := range []string{"ids", "blocks/0"} {
		q := httptest.NewRequestWithContext(bounded(t), http.MethodGet, fmt.Sprintf("/v1/lists/vip/versions/%d/%s?build=%s", v.Number, what, v.Build), nil)
		q.Header.Set(acme[0], acme[1])
		w, done := &slowWriter{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}, make(chan struct{})
		go func() {
			defer close(done)
			r.Handler().ServeHTTP(w, q)
		}()
		<-w.begun
		if n := len(r.loads); n != 1 {
			t.Errorf("%s: %d loads while the answer is written", what, n)
		}
		close(w.read)
		<-done
		if n := len(r.loads); n != 0 || w.Code != http.StatusOK {
			t.Errorf("%s: %d, and %d loads afterwards", what, w.Code, n)
		}
	}
}

// waitingFor counts the requests that wait for a list; -1: the hub does not have it.
func (r *rig) waitingFor(list string) int {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	if on := r.hub.lists[list]; on != nil {
		return len(on.waiters)
	}
	return -1
}

func (r *rig) followed(list string) bool {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	on := r.hub.lists[list]
	return on != nil && on.stop != nil
}
