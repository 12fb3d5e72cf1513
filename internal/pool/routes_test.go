package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/apitest"
)

// fakeConfig is the store and the follower of the configuration, without a Redis.
type fakeConfig struct {
	fakePauses
	onChange func(*selection.Config) // by Sync
	mu       sync.Mutex              // guards what follows
	versions []ConfigEntry
	contents []*selection.Config
	problem  error
	failure  error
	edited   bool
	syncs    int
	current  State
}

func newFakeConfig() *fakeConfig {
	return &fakeConfig{current: State{Config: &selection.Config{}, Source: SourceFile}}
}

func (f *fakeConfig) version() uint64 { return uint64(len(f.versions)) }

func (f *fakeConfig) Read(context.Context) (Document, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	doc := Document{Version: f.version(), Problem: f.problem, Edited: f.edited}
	if n := len(f.versions); n > 0 {
		doc.Entry = &f.versions[n-1]
		if f.problem == nil {
			doc.Config = f.contents[n-1]
		}
	}
	return doc, f.failure
}

func (f *fakeConfig) Apply(_ context.Context, c Change) (Outcome, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.version()
	switch {
	case f.failure != nil:
		return Outcome{}, f.failure
	case n > 0 && string(Encode(c.Config)) == string(Encode(f.contents[n-1])):
		return Outcome{Version: n, Unchanged: true}, nil
	case c.Seen != n:
		return Outcome{}, &ConflictError{Seen: c.Seen, Current: n}
	}
	f.contents = append(f.contents, c.Config)
	f.versions = append(f.versions, ConfigEntry{Version: n + 1, Author: c.Author, Note: c.Note, Restores: c.Restores, AtMS: 1000 * int64(n+1)})
	return Outcome{Version: n + 1}, nil
}

func (f *fakeConfig) Versions(context.Context) ([]ConfigEntry, error) {
	out := slices.Clone(f.versions)
	slices.Reverse(out)
	return out, f.failure
}

func (f *fakeConfig) At(_ context.Context, version uint64) (ConfigEntry, *selection.Config, error) {
	if version == 0 || version > f.version() {
		return ConfigEntry{}, nil, &freeslot.Error{Code: freeslot.CodeNotFound, Field: "version", Message: "no such version"}
	}
	return f.versions[version-1], f.contents[version-1], f.failure
}

func (f *fakeConfig) Current() State { return f.current }

func (f *fakeConfig) Sync(context.Context) error {
	f.syncs++
	n := f.version()
	if n == 0 {
		return nil
	}
	f.current = State{Config: f.contents[n-1], Version: n, Source: SourceRedis}
	f.onChange(f.current.Config)
	return nil
}

// fixture is a server with the routes of this package. Its nodes go by what the fake follower takes over.
type fixture struct {
	*apitest.Server
	store *fakeConfig
}

func setup(t *testing.T, adapt ...func(*api.Deps)) *fixture {
	t.Helper()
	f := &fixture{store: newFakeConfig()}
	f.Server = apitest.New(t, api.Config{}, append(adapt, func(d *api.Deps) {
		nodes := func() (all []freeslot.Node) {
			for _, s := range d.Nodes.States() {
				all = append(all, s.Node)
			}
			return all
		}
		d.Routes = []api.Routes{routes{store: f.store, pools: f.store, nodes: nodes, fence: f.store}.register}
	})...)
	f.store.onChange = func(c *selection.Config) { f.Nodes.Rules = *c }
	return f
}

// configUpdate is the body of a change to pools that take the nodes of a zone.
func configUpdate(seen int, zones ...string) string {
	var pools []string
	for _, zone := range zones {
		pools = append(pools, fmt.Sprintf(`{"id":"pool-%s","labels":{"zone":%q}}`, zone, zone))
	}
	return fmt.Sprintf(`{"version":%d,"config":{"enabled":true,"pools":[%s]},"note":"for %s","author":"alice"}`, seen, strings.Join(pools, ","), zones)
}

// zoned adds nodes, the even ones in eu and the odd ones in us.
func (f *fixture) zoned(n int) {
	for i := range n {
		state := cell.NodeState{Node: freeslot.Node{ID: fmt.Sprintf("node-%03d", i)}}
		state.Node.Labels = map[string]string{"zone": []string{"eu", "us"}[i%2]}
		f.Nodes.ByID[state.Node.ID] = state
	}
}

func field(v any, path ...string) string { return fmt.Sprint(apitest.At(v, path...)) }

func TestConfigLife(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.zoned(50)
	got := f.Do(t, "GET", "/v1/config", "")
	if got.Status != http.StatusOK || field(got.Body, "version") != "0" || field(got.Body, "source") != "file" || field(got.Body, "config", "enabled") != "false" {
		t.Errorf(`%d %s; want got.Status == http.StatusOK, field(got.Body, "version") == "0", field(got.Body, "source") == "file", field(got.Body, "config", "enabled") == "false"`, got.Status, got.Text)
	}
	got = f.Do(t, "PUT", "/v1/config?dry_run=true", configUpdate(0, "eu"))
	members := apitest.At(got.Body, "diff", "members").([]any)
	if got.Status != http.StatusOK || field(got.Body, "dry_run") != "true" || field(got.Body, "diff", "added") != "[pool-eu]" || len(members) != 1 ||
		field(members[0], "join") != "25" || len(apitest.At(members[0], "joining").([]any)) != 20 || f.store.version() != 0 {
		t.Errorf("%d %s", got.Status, got.Text)
	}
	if field(got.Body, "source") != "file" || got.Body["problems"] != nil {
		t.Error(got.Text)
	}
	got = f.Do(t, "PUT", "/v1/config", configUpdate(0, "eu"))
	if got.Status != http.StatusOK || field(got.Body, "version") != "1" || field(got.Body, "unchanged") != "false" || f.store.syncs != 2 {
		t.Errorf(`%d %s; want got.Status == http.StatusOK, field(got.Body, "version") == "1", field(got.Body, "unchanged") == "false", f.store.syncs == 2`, got.Status, got.Text)
	}
	got = f.Do(t, "PUT", "/v1/config", configUpdate(0, "eu"))
	if got.Status != http.StatusOK || field(got.Body, "version") != "1" || field(got.Body, "unchanged") != "true" {
		t.Errorf(`%d %s; want got.Status == http.StatusOK, field(got.Body, "version") == "1", field(got.Body, "unchanged") == "true"`, got.Status, got.Text)
	}
	got = f.Do(t, "PUT", "/v1/config", configUpdate(1, "us"))
	if got.Status != http.StatusOK || field(got.Body, "version") != "2" || field(got.Body, "diff", "removed") != "[pool-eu]" {
		t.Errorf(`%d %s; want got.Status == http.StatusOK, field(got.Body, "version") == "2", field(got.Body, "diff", "removed") == "[pool-eu]"`, got.Status, got.Text)
	}
	got = f.Do(t, "GET", "/v1/config", "")
	for path, want := range map[string]string{"version": "2", "source": "redis", "author": "default/alice", "note": "for [us]", "at_ms": "2000"} {
		if field(got.Body, path) != want {
			t.Errorf("%s is %s, expected %s", path, field(got.Body, path), want)
		}
	}
	if field(got.Body, "in_force", "version") != "2" || field(got.Body, "config", "mode") != "two_level" {
		t.Error(got.Text)
	}
	got = f.Do(t, "POST", "/v1/config/rollback?dry_run=true", `{"restore":1}`)
	if got.Status != http.StatusOK || field(got.Body, "diff", "added") != "[pool-eu]" || f.store.version() != 2 {
		t.Errorf(`%d %s; want got.Status == http.StatusOK, field(got.Body, "diff", "added") == "[pool-eu]", f.store.version() == 2`, got.Status, got.Text)
	}
	got = f.Do(t, "POST", "/v1/config/rollback", `{"version":2,"restore":1,"note":"back"}`)
	if got.Status != http.StatusOK || field(got.Body, "version") != "3" {
		t.Errorf(`%d %s; want got.Status == http.StatusOK, field(got.Body, "version") == "3"`, got.Status, got.Text)
	}
	got = f.Do(t, "GET", "/v1/config/history", "")
	versions := apitest.At(got.Body, "versions").([]any)
	if len(versions) != 3 || field(versions[0], "version") != "3" || field(versions[0], "restores") != "1" || field(versions[0], "author") != "default" {
		t.Error(got.Text)
	}
	got = f.Do(t, "GET", "/v1/config/history/2", "")
	if got.Status != http.StatusOK || field(got.Body, "version") != "2" || !strings.Contains(got.Text, "pool-us") {
		t.Errorf(`%d %s; want got.Status == http.StatusOK, field(got.Body, "version") == "2", strings.Contains(got.Text, "pool-us")`, got.Status, got.Text)
	}
	f.Do(t, "GET", "/v1/config/history/9", "").Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	f.Do(t, "POST", "/v1/config/rollback", `{"version":3,"restore":9}`).Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
}

func TestConfigConflict(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.Do(t, "PUT", "/v1/config", configUpdate(0, "eu"))
	f.Do(t, "PUT", "/v1/config", configUpdate(1, "us"))
	for _, target := range []string{"/v1/config", "/v1/config?dry_run=true"} {
		got := f.Do(t, "PUT", target, configUpdate(1, "asia"))
		got.Refusal(t, http.StatusConflict, freeslot.CodeConflict)
		want := "version is 1, but the configuration is at 2, by default/alice at 1970-01-01T00:00:02Z"
		if field(got.Body, "current_version") != "2" || got.Body["message"] != want || f.store.version() != 2 {
			t.Error(got.Text)
		}
	}
	f.Do(t, "POST", "/v1/config/rollback", `{"version":1,"restore":1}`).Refusal(t, http.StatusConflict, freeslot.CodeConflict)
}

// TestConfigRefused: a bad configuration is refused whole, with every bad field.
func TestConfigRefused(t *testing.T) {
	t.Parallel()
	f := setup(t)
	got := f.Do(t, "PUT", "/v1/config", `{"version":0,"config":{"mode":"x","polcy":1,"pools":[{"id":"a b"},{"id":"b","services":7}]}}`)
	got.Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	var named []string
	for _, e := range got.Body["errors"].([]any) {
		named = append(named, field(e, "field"))
	}
	slices.Sort(named)
	if fmt.Sprint(named) != "[config.mode config.polcy config.pools[0].id config.pools[1].services]" {
		t.Error(got.Text)
	}
	for content, want := range map[string]string{
		`{"config":{}}`:                           "version",
		`{"version":0}`:                           "config",
		`{"version":-1,"config":{}}`:              "version",
		`{"version":0,"config":{},"nota":"x"}`:    "nota",
		`{"version":0,"config":{}} x`:             "update",
		`{"version":0,"config":[]}`:               "config",
		`{"version":0,"config":{"pools":[null]}}`: "config.pools[0].id",
	} {
		got := f.Do(t, "PUT", "/v1/config", content)
		got.Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
		if got.Body["field"] != want {
			t.Errorf(`%s: %s; want got.Body["field"] == %v`, content, got.Text, want)
		}
	}
	f.Do(t, "PUT", "/v1/config?dry_run=maybe", configUpdate(0, "eu")).Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	f.Do(t, "GET", "/v1/config/history/x", "").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	f.Do(t, "GET", "/v1/config/history/0", "").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	if f.store.version() != 0 {
		t.Error("something was applied")
	}
	// A large one fits, unlike a job of that size; one too large is told so.
	large := strings.Replace(configUpdate(0, "eu"), `"note"`, strings.Repeat(" ", 700<<10)+`"note"`, 1)
	if got := f.Do(t, "PUT", "/v1/config", large); got.Status != http.StatusOK {
		t.Error(got.Status, got.Text)
	}
	got = f.Do(t, "PUT", "/v1/config", strings.Repeat(" ", 2<<20))
	got.Refusal(t, http.StatusRequestEntityTooLarge, freeslot.CodePayloadTooLarge)
	if got.Body["field"] != "config" {
		t.Error(got.Text)
	}
}

func TestConfigProblems(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.Do(t, "PUT", "/v1/config", configUpdate(0, "eu"))
	_, f.store.problem = Decode([]byte(`{"mode":"x"}`))
	f.store.edited = true
	got := f.Do(t, "GET", "/v1/config", "")
	problems := got.Body["problems"].([]any)
	if len(problems) != 1 || field(problems[0], "field") != "config.mode" || field(got.Body, "edited") != "true" || !strings.Contains(got.Text, "pool-eu") {
		t.Error(got.Text)
	}
	// A change is compared with what is in force.
	if got := f.Do(t, "PUT", "/v1/config?dry_run=true", configUpdate(1, "us")); field(got.Body, "diff", "removed") != "[pool-eu]" {
		t.Error(got.Text)
	}
	// The same as what is in force is a change all the same: it repairs the document.
	got = f.Do(t, "PUT", "/v1/config?dry_run=true", configUpdate(1, "eu"))
	if problems, _ := got.Body["problems"].([]any); len(problems) != 1 || field(got.Body, "unchanged") != "false" || field(got.Body, "source") != "redis" {
		t.Error(got.Text)
	}
	f.store.failure = context.DeadlineExceeded
	for _, target := range []string{"GET /v1/config", "GET /v1/config/history", "GET /v1/config/history/1", "PUT /v1/config", "POST /v1/config/rollback"} {
		method, path, _ := strings.Cut(target, " ")
		content := ""
		switch method {
		case "PUT":
			content = configUpdate(1, "us")
		case "POST":
			content = `{"version":1,"restore":1}`
		}
		f.Do(t, method, path, content).Refusal(t, http.StatusServiceUnavailable, freeslot.CodeUnavailable)
	}
	f.store.failure = errors.New("a defect")
	f.Do(t, "GET", "/v1/config", "").Refusal(t, http.StatusInternalServerError, freeslot.CodeInternal)
}

func TestConfigForOperatorsOnly(t *testing.T) {
	t.Parallel()
	f := setup(t, apitest.WithTokens)
	for _, target := range []string{
		"GET /v1/config", "GET /v1/config/history", "GET /v1/config/history/1", "PUT /v1/config", "POST /v1/config/rollback", "GET /v1/pools", "GET /v1/pools/a",
	} {
		method, path, _ := strings.Cut(target, " ")
		f.Do(t, method, path, "").Refusal(t, http.StatusUnauthorized, freeslot.CodeUnauthenticated)
		f.Do(t, method, path, configUpdate(0, "eu"), "Authorization", "Bearer acme-token").Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
	}
	if got := f.Do(t, "PUT", "/v1/config", configUpdate(0, "eu"), "Authorization", "Bearer root-token"); got.Status != http.StatusOK || f.store.versions[0].Author != "ops/alice" {
		t.Error(got.Status, got.Text, f.store.versions)
	}
}

func TestPools(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.zoned(50)
	own := f.Nodes.ByID["node-007"]
	own.Node.Pools = []string{"own"}
	f.Nodes.ByID["node-007"] = own
	f.Do(t, "PUT", "/v1/config", configUpdate(0, "eu", "asia"))

	got := f.Do(t, "GET", "/v1/pools", "")
	var summary []string
	for _, p := range got.Body["pools"].([]any) {
		summary = append(summary, fmt.Sprint(field(p, "id"), " ", field(p, "configured"), " ", field(p, "size"), " ", len(apitest.At(p, "nodes").([]any))))
	}
	if want := "[pool-eu true 25 20 pool-asia true 0 0 own false 1 1]"; fmt.Sprint(summary) != want || field(got.Body, "version") != "1" || field(got.Body, "mode") != "two_level" {
		t.Errorf("%s, expected %s: %s", summary, want, got.Text)
	}
	var ids []any
	cursor := ""
	for range 3 {
		got = f.Do(t, "GET", "/v1/pools/pool-eu?limit=10"+cursor, "")
		ids = append(ids, got.Body["nodes"].([]any)...)
		if field(got.Body, "size") != "25" || !strings.Contains(got.Text, `"labels":{"zone":"eu"}`) {
			t.Error(got.Text)
		}
		if next, ok := got.Body["cursor"].(string); ok {
			cursor = "&cursor=" + next
		} else {
			cursor = ""
		}
	}
	if len(ids) != 25 || cursor != "" || fmt.Sprint(ids[0], " ", ids[24]) != "node-000 node-048" {
		t.Error(ids, cursor)
	}
	f.Do(t, "GET", "/v1/pools/nobody", "").Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	f.Do(t, "GET", "/v1/pools/a%3Ab", "").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	// A node says which pools it is in, by its own words and by rule.
	for id, want := range map[string][]string{"node-000": {"pool-eu"}, "node-001": nil, "node-007": {"own"}} {
		var n struct {
			MemberOf []string `json:"member_of"`
		}
		got := f.Do(t, "GET", "/v1/nodes/"+id, "")
		if err := json.Unmarshal([]byte(got.Text), &n); err != nil || !slices.Equal(n.MemberOf, want) {
			t.Errorf("%s is in %v, expected %v (%v)", id, n.MemberOf, want, err)
		}
	}
}

func TestDocumentDescribesTheConfiguration(t *testing.T) {
	t.Parallel()
	var doc map[string]any
	if err := json.Unmarshal([]byte(setup(t).Do(t, "GET", "/openapi.json", "").Text), &doc); err != nil {
		t.Fatal(err)
	}
	schemas := apitest.At(doc, "components", "schemas")
	if ref := apitest.At(schemas, "ConfigUpdate", "properties", "config", "$ref"); ref != "#/components/schemas/Config" {
		t.Error(ref)
	}
	if got := fmt.Sprint(apitest.At(schemas, "Config", "properties", "mode", "enum")); got != "[two_level flat]" {
		t.Error(got)
	}
	ref := apitest.At(doc, "paths", "/v1/config", "put", "requestBody", "content", "application/json", "schema", "$ref")
	if ref != "#/components/schemas/ConfigUpdate" {
		t.Error(ref)
	}
}

// TestExpects: what pools expect of nodes comes back as it was put in force. It is refused while a
// replica runs that does not know it; anything else is not.
func TestExpects(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const with = `{"version":0,"config":{"pools":[{"id":"eu"},{"id":"gpu","max_wait_for_node":"5m","expects":` +
		`{"services":["tts@1.2"],"labels":{"gpu":"a100"},"languages":{"asr":["de"]},"slots":4}}]}}`
	f.store.unaware = []string{"r-old", "r-older"}
	for _, path := range []string{"/v1/config", "/v1/config?dry_run=true"} {
		got := f.Do(t, "PUT", path, with)
		got.Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
		if want := "config.pools[1].expects is not known to the release of replica r-old, r-older, expected after the upgrade of every replica"; !strings.Contains(got.Text, want) {
			t.Errorf("%s; want %q in it", got.Text, want)
		}
	}
	target := f.Do(t, "PUT", "/v1/config", `{"version":0,"config":{"pools":[{"id":"eu","target_wait":"30s"}]}}`)
	target.Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	if want := "config.pools[0].target_wait is not known to the release of replica r-old"; !strings.Contains(target.Text, want) {
		t.Errorf("%s; want %q in it", target.Text, want)
	}
	if got := f.Do(t, "PUT", "/v1/config", `{"version":0,"config":{"pools":[{"id":"eu"}]}}`); got.Status != http.StatusOK {
		t.Errorf("%d %s; want status 200", got.Status, got.Text)
	}
	f.store.unaware = nil
	again := strings.Replace(with, `"version":0`, `"version":1`, 1)
	if got := f.Do(t, "PUT", "/v1/config", again); got.Status != http.StatusOK || field(got.Body, "version") != "2" {
		t.Errorf("%d %s; want status 200", got.Status, got.Text)
	}
	shown, err := json.Marshal(f.Do(t, "GET", "/v1/config", "").Body["config"])
	if err != nil {
		t.Fatal(err)
	}
	got := f.Do(t, "PUT", "/v1/config", `{"version":2,"config":`+string(shown)+`}`)
	if got.Status != http.StatusOK || got.Body["unchanged"] != true || !strings.Contains(string(shown), `"expects":{"labels":{"gpu":"a100"},`) {
		t.Errorf("%d %s; want that %s is in force", got.Status, got.Text, shown)
	}
	// What is in force already may be put again whoever runs, and stay while something else changes.
	f.store.unaware = []string{"r-old"}
	if got := f.Do(t, "PUT", "/v1/config", `{"version":2,"config":`+string(shown)+`}`); got.Status != http.StatusOK {
		t.Errorf("%d %s; want status 200", got.Status, got.Text)
	}
	without := strings.Replace(string(shown), `{"id":"eu"}`, `{"id":"de"}`, 1)
	if got := f.Do(t, "PUT", "/v1/config", `{"version":2,"config":`+without+`}`); got.Status != http.StatusOK || got.Body["unchanged"] == true {
		t.Errorf("%d %s; want a change", got.Status, got.Text)
	}
	more := strings.Replace(without, `{"id":"de"}`, `{"id":"de","target_wait":"30s"}`, 1)
	target = f.Do(t, "PUT", "/v1/config", `{"version":3,"config":`+more+`}`)
	target.Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	if !strings.Contains(target.Text, "pools[0].target_wait is not known") || strings.Contains(target.Text, "expects is not known") {
		t.Errorf("%s; want that the new target_wait alone is refused", target.Text)
	}
}
