package openfeature

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/open-feature/go-sdk/openfeature"
	"go.uber.org/zap"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/chain"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/namelist"
)

func TestMain(m *testing.M) {
	redistest.Main(m)
}

type rig struct {
	t       *testing.T
	ctx     context.Context
	control *lists.Control
	client  *namelist.Client
}

func newRig(t *testing.T, redis *redistest.Target) *rig {
	t.Helper()
	prefix := redis.Prefix(t)
	r := &rig{t: t, ctx: waittest.Context(t), control: lists.NewControl(redis.Client(t), prefix, redis.IsCluster(), zap.NewNop(), nil)}
	client, err := namelist.Open(namelist.Config{RedisURL: redis.URL(), KeyPrefix: prefix})
	r.must(err)
	r.client = client
	t.Cleanup(func() { r.must(client.Close(context.Background())) })
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) put(name string, seen int64, document string) {
	r.t.Helper()
	d, _, err := chain.Parse([]byte(fmt.Sprintf(`{"name": %q, %s}`, name, document)), nil)
	r.must(err)
	_, err = r.control.PutChain(r.ctx, lists.ChainPut{Chain: name, Seen: seen, Document: string(chain.Encode(d))})
	r.must(err)
}

// flags are the flags of the specification's test cases, as chains.
var flags = map[string]string{
	"boolean-flag":       `"variants": {"on": true, "off": false}, "rules": [], "default": "variant: on"`,
	"string-flag":        `"variants": {"greeting": "hi", "parting": "bye"}, "rules": [], "default": "variant: greeting"`,
	"integer-flag":       `"variants": {"one": 1, "ten": 10}, "rules": [], "default": "variant: ten"`,
	"float-flag":         `"variants": {"tenth": 0.1, "half": 0.5}, "rules": [], "default": "variant: half"`,
	"object-flag":        `"variants": {"empty": {}, "template": {"showImages": true, "title": "Check out these pics!", "imagesPerPage": 100}}, "rules": [], "default": "variant: template"`,
	"wrong-flag":         `"variants": {"one": "uno", "two": "dos"}, "rules": [], "default": "variant: one"`,
	"boolean-zero-flag":  `"variants": {"zero": false, "non-zero": true}, "rules": [], "default": "variant: zero"`,
	"integer-zero-flag":  `"variants": {"zero": 0, "non-zero": 1}, "rules": [], "default": "variant: zero"`,
	"float-zero-flag":    `"variants": {"zero": 0.0, "non-zero": 1.0}, "rules": [], "default": "variant: zero"`,
	"string-zero-flag":   `"variants": {"zero": "", "non-zero": "str"}, "rules": [], "default": "variant: zero"`,
	"object-zero-flag":   `"variants": {"zero": {}}, "rules": [], "default": "variant: zero"`,
	"large-integer-flag": `"variants": {"max-int32": 2147483647}, "rules": [], "default": "variant: max-int32"`,
	"huge-integer-flag":  `"variants": {"huge": 9007199254740991}, "rules": [], "default": "variant: huge"`,
	"context-aware": `"attributes": {"fn": "string", "ln": "string", "age": "integer", "customer": "boolean"},
		"variants": {"internal": "INTERNAL", "external": "EXTERNAL"},
		"rules": [{"name": "internal", "kind": "expression", "unknown": "skip", "outcome": "variant: internal",
			"expression": "fn == \"Sulisław\" && ln == \"Świętopełk\" && age == 29 && !customer"}],
		"default": "variant: external"`,
	"targeting-key-flag": `"variants": {"hit": "hit", "miss": "miss"},
		"rules": [{"name": "key", "kind": "expression", "unknown": "skip", "outcome": "variant: hit",
			"expression": "key == \"5c3d8535-f81a-4478-a6d3-afaa4d51199e\""}],
		"default": "variant: miss"`,
	"boolean-targeted-zero-flag": zeroFor("false", "true"),
	"string-targeted-zero-flag":  zeroFor(`""`, `"str"`),
	"integer-targeted-zero-flag": zeroFor("0", "1"),
	"float-targeted-zero-flag":   zeroFor("0.0", "1.0"),
	"object-targeted-zero-flag":  zeroFor("{}", `{"a": 1}`),
	"complex-targeted": `"attributes": {"email": "string", "role": "string", "age": "integer", "customer": "boolean"},
		"variants": {"internal": "INTERNAL", "external": "EXTERNAL"},
		"rules": [{"name": "internal", "kind": "expression", "unknown": "skip", "outcome": "variant: internal",
			"expression": "!customer && email == \"ballmer@macrosoft.com\" && role == \"admin\" && age == 65"}],
		"default": "variant: external"`,

	"allowed":  `"rules": [], "default": "allow"`,
	"denied":   `"rules": [{"name": "never", "kind": "percentage", "percent": 0, "unknown": "stop", "outcome": "allow"}], "default": "deny"`,
	"split":    `"rules": [{"name": "all", "kind": "percentage", "percent": 100, "unknown": "stop", "outcome": "allow"}], "default": "deny"`,
	"named":    `"variants": {"new": null}, "rules": [], "default": "variant: new"`,
	"strict":   `"attributes": {"age": "integer"}, "rules": [{"name": "adult", "kind": "expression", "expression": "age > 17", "unknown": "stop", "outcome": "allow"}], "default": "deny"`,
	"ten":      `"variants": {"ten": 10.0}, "rules": [], "default": "variant: ten"`,
	"on-nolst": `"rules": [{"name": "in", "kind": "in", "unknown": "stop", "outcome": "allow"}], "default": "deny"`,
}

// zeroFor returns a flag that is zero for one email, and by default.
func zeroFor(zero, other string) string {
	return fmt.Sprintf(`"attributes": {"email": "string"}, "variants": {"zero": %s, "non-zero": %s},
		"rules": [{"name": "email", "kind": "expression", "unknown": "skip", "outcome": "variant: zero",
			"expression": "email == \"ballmer@macrosoft.com\""}], "default": "variant: zero"`, zero, other)
}

// The scenarios of the OpenFeature specification (open-feature/spec, Apache License 2.0): of
// assets/gherkin/evaluation.feature all, of evaluation_v2.feature and of the files evaluation,
// errors and reason in assets/provider-tck all that chains can be in. A chain is never disabled, a
// decision is never taken from a cache of the provider, no state of the provider is fatal, and the
// metadata of a decision is not the flag's own. TestNotReady has providers that are not ready, and
// TestEvents the states. Hooks, calls in the background and contexts that stay unchanged are the
// SDK's own. A row is a flag, the type
// that is asked for, the caller's default, and what must come: value, variant, reason and error
// code.
func TestSpecification(t *testing.T) {
	r := newRig(t, redistest.Shared(t))
	for name, document := range flags {
		r.put(name, 0, document)
	}
	var names []string
	for name := range flags {
		if name != "on-nolst" {
			names = append(names, name)
		}
	}
	defer openfeature.Shutdown()
	r.must(openfeature.SetNamedProviderWithContextAndWait(r.ctx, t.Name(), New(r.client, names...)))
	client := openfeature.NewClient(t.Name())
	object := `{"imagesPerPage":100,"showImages":true,"title":"Check out these pics!"}`
	person := map[string]any{"fn": "Sulisław", "ln": "Świętopełk", "age": 29, "customer": false}
	for _, row := range []struct {
		flag    string
		def     any
		key     string
		context map[string]any
		want    string
	}{
		{"boolean-flag", false, "", nil, `true on STATIC `},
		{"string-flag", "bye", "", nil, `"hi" greeting STATIC `},
		{"integer-flag", int64(1), "", nil, `10 ten STATIC `},
		{"float-flag", 0.1, "", nil, `0.5 half STATIC `},
		{"object-flag", map[string]any{}, "", nil, object + ` template STATIC `},
		{"boolean-zero-flag", true, "", nil, `false zero STATIC `},
		{"string-zero-flag", "hi", "", nil, `"" zero STATIC `},
		{"integer-zero-flag", int64(1), "", nil, `0 zero STATIC `},
		{"float-zero-flag", 0.1, "", nil, `0 zero STATIC `},
		{"object-zero-flag", map[string]any{"a": 1}, "", nil, `{} zero STATIC `},
		{"large-integer-flag", int64(1), "", nil, `2147483647 max-int32 STATIC `},
		{"huge-integer-flag", int64(1), "", nil, `9007199254740991 huge STATIC `},
		{"context-aware", "EXTERNAL", "", person, `"INTERNAL" internal TARGETING_MATCH `},
		{"context-aware", "EXTERNAL", "", nil, `"EXTERNAL" external DEFAULT `},
		{"string-flag", "bye", "f20bd32d-703b-48b6-bc8e-79d53c85134a", person, `"hi" greeting STATIC `},
		{"targeting-key-flag", "fallback", "5c3d8535-f81a-4478-a6d3-afaa4d51199e", nil, `"hit" hit TARGETING_MATCH `},
		{"targeting-key-flag", "fallback", "f20bd32d-703b-48b6-bc8e-79d53c85134a", nil, `"miss" miss DEFAULT `},
		{"targeting-key-flag", "fallback", "", nil, `"miss" miss DEFAULT `},
		{"complex-targeted", "default", "", map[string]any{"email": "ballmer@macrosoft.com", "role": "admin", "age": 65, "customer": false}, `"INTERNAL" internal TARGETING_MATCH `},
		{"complex-targeted", "default", "", map[string]any{"email": "ballmer@macrosoft.com", "role": "user", "age": 65, "customer": false}, `"EXTERNAL" external DEFAULT `},
		{"missing-flag", "uh-oh", "", nil, `"uh-oh"  ERROR FLAG_NOT_FOUND`},
		{"missing-flag", true, "", nil, `true  ERROR FLAG_NOT_FOUND`},
		{"missing-flag", int64(1), "", nil, `1  ERROR FLAG_NOT_FOUND`},
		{"missing-flag", 0.1, "", nil, `0.1  ERROR FLAG_NOT_FOUND`},
		{"missing-flag", map[string]any{"a": 1}, "", nil, `{"a":1}  ERROR FLAG_NOT_FOUND`},
		{"wrong-flag", int64(13), "", nil, `13  ERROR TYPE_MISMATCH`},
		{"wrong-flag", false, "", nil, `false  ERROR TYPE_MISMATCH`},
		{"string-flag", false, "", nil, `false  ERROR TYPE_MISMATCH`},
		{"string-flag", int64(1), "", nil, `1  ERROR TYPE_MISMATCH`},
		{"string-flag", 0.1, "", nil, `0.1  ERROR TYPE_MISMATCH`},
		{"boolean-flag", "bye", "", nil, `"bye"  ERROR TYPE_MISMATCH`},
		{"boolean-flag", int64(1), "", nil, `1  ERROR TYPE_MISMATCH`},
		{"boolean-flag", 0.1, "", nil, `0.1  ERROR TYPE_MISMATCH`},
		{"boolean-flag", map[string]any{"a": 1}, "", nil, `{"a":1}  ERROR TYPE_MISMATCH`},
		{"integer-flag", false, "", nil, `false  ERROR TYPE_MISMATCH`},
		{"integer-flag", "fallback", "", nil, `"fallback"  ERROR TYPE_MISMATCH`},
		{"float-flag", false, "", nil, `false  ERROR TYPE_MISMATCH`},
		{"float-flag", "fallback", "", nil, `"fallback"  ERROR TYPE_MISMATCH`},
		{"float-flag", int64(1), "", nil, `1  ERROR TYPE_MISMATCH`},
		{"object-flag", false, "", nil, `false  ERROR TYPE_MISMATCH`},
		{"object-flag", "fallback", "", nil, `"fallback"  ERROR TYPE_MISMATCH`},
		{"object-flag", int64(1), "", nil, `1  ERROR TYPE_MISMATCH`},
		{"object-flag", 0.1, "", nil, `0.1  ERROR TYPE_MISMATCH`},
		// What the specification leaves open.
		{"allowed", false, "", nil, `true allow STATIC `},
		{"denied", true, "user-1", nil, `false deny DEFAULT `},
		{"split", false, "user-1", nil, `true allow SPLIT `},
		{"split", false, "", nil, `false  ERROR TARGETING_KEY_MISSING`},
		{"strict", true, "user-1", nil, `true  ERROR INVALID_CONTEXT`},
		{"strict", false, "user-1", map[string]any{"age": "18"}, `false  ERROR INVALID_CONTEXT`},
		{"on-nolst", true, "user-1", nil, `true  ERROR GENERAL`},
		{"named", "old", "", nil, `"new" new STATIC `},
		{"named", true, "", nil, `true  ERROR TYPE_MISMATCH`},
		{"allowed", "old", "", nil, `"old"  ERROR TYPE_MISMATCH`},
		{"ten", int64(1), "", nil, `10 ten STATIC `},
	} {
		if got := ask(r.ctx, client, row.flag, row.def, openfeature.NewEvaluationContext(row.key, row.context)); got != row.want {
			t.Errorf("%s as %T for %q %v: %s; want %s", row.flag, row.def, row.key, row.context, got, row.want)
		}
	}
	for _, row := range []struct {
		kind string
		def  any
		zero string
	}{
		{"boolean", true, "false"},
		{"string", "hi", `""`},
		{"integer", int64(1), "0"},
		{"float", 0.1, "0"},
		{"object", map[string]any{"a": 1}, "{}"},
	} {
		for _, of := range []struct {
			attributes map[string]any
			reason     string
		}{
			{map[string]any{"email": "ballmer@macrosoft.com"}, "TARGETING_MATCH"},
			{map[string]any{"email": "ballmer@none.com"}, "DEFAULT"},
			{map[string]any{"email": nil}, "DEFAULT"},
			{nil, "DEFAULT"},
		} {
			flag, want := row.kind+"-targeted-zero-flag", row.zero+" zero "+of.reason+" "
			if got := ask(r.ctx, client, flag, row.def, openfeature.NewEvaluationContext("", of.attributes)); got != want {
				t.Errorf("%s for %v: %s; want %s", flag, of.attributes, got, want)
			}
		}
	}
}

// A provider that has not reached its chains gives the caller's default of each type.
func TestNotReady(t *testing.T) {
	t.Parallel()
	lists, err := namelist.Open(namelist.Config{RedisURL: "redis://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lists.Close(context.Background()) }()
	of := openfeature.FlattenedContext{}
	p := New(lists, "some-flag")
	defer p.Shutdown()
	ctx := waittest.Context(t)
	boolean, text := p.BooleanEvaluation(ctx, "some-flag", true, of), p.StringEvaluation(ctx, "some-flag", "bye", of)
	whole, number := p.IntEvaluation(ctx, "some-flag", 13, of), p.FloatEvaluation(ctx, "some-flag", 0.1, of)
	object := p.ObjectEvaluation(ctx, "some-flag", "uh-oh", of)
	if !boolean.Value || text.Value != "bye" || whole.Value != 13 || number.Value != 0.1 || object.Value != "uh-oh" {
		t.Errorf("%v %v %v %v %v; want the defaults", boolean.Value, text.Value, whole.Value, number.Value, object.Value)
	}
	for _, d := range []openfeature.ProviderResolutionDetail{
		boolean.ProviderResolutionDetail, text.ProviderResolutionDetail, whole.ProviderResolutionDetail,
		number.ProviderResolutionDetail, object.ProviderResolutionDetail,
	} {
		if code := d.ResolutionDetail().ErrorCode; d.Reason != openfeature.ErrorReason || code != openfeature.ProviderNotReadyCode {
			t.Errorf("reason %s, code %s; want ERROR, PROVIDER_NOT_READY", d.Reason, code)
		}
	}
}

// ask evaluates a flag as the type of its default.
func ask(ctx context.Context, client *openfeature.Client, flag string, def any, of openfeature.EvaluationContext) string {
	var value any
	var d openfeature.EvaluationDetails
	switch def := def.(type) {
	case bool:
		got, _ := client.BooleanValueDetails(ctx, flag, def, of)
		value, d = got.Value, got.EvaluationDetails
	case string:
		got, _ := client.StringValueDetails(ctx, flag, def, of)
		value, d = got.Value, got.EvaluationDetails
	case int64:
		got, _ := client.IntValueDetails(ctx, flag, def, of)
		value, d = got.Value, got.EvaluationDetails
	case float64:
		got, _ := client.FloatValueDetails(ctx, flag, def, of)
		value, d = got.Value, got.EvaluationDetails
	default:
		got, _ := client.ObjectValueDetails(ctx, flag, def, of)
		value, d = got.Value, got.EvaluationDetails
	}
	text, _ := json.Marshal(value)
	return fmt.Sprintf("%s %s %s %s", text, d.Variant, d.Reason, d.ErrorCode)
}

// The scenarios of provider-tck/events.feature and lifecycle.feature, and what becomes of a chain
// that is deleted.
func TestEvents(t *testing.T) {
	redis := redistest.New(t)
	r := newRig(t, redis.Target)
	var mu sync.Mutex
	events := make(map[string]int) // OpenFeature calls its handlers in any order
	handler := func(what openfeature.EventType) {
		call := func(d openfeature.EventDetails) {
			mu.Lock()
			defer mu.Unlock()
			events[fmt.Sprintf("%s %v", what, d.FlagChanges)]++
		}
		openfeature.NewClient(t.Name()).AddHandler(what, &call)
		t.Cleanup(func() { openfeature.NewClient(t.Name()).RemoveHandler(what, &call) })
	}
	for _, what := range []openfeature.EventType{openfeature.ProviderReady, openfeature.ProviderStale, openfeature.ProviderError, openfeature.ProviderConfigChange} {
		handler(what)
	}
	client := openfeature.NewClient(t.Name())
	await := func(event string, times int, state openfeature.State) {
		t.Helper()
		waittest.Until(t, fmt.Sprintf("%d times %s", times, event), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return events[event] >= times
		})
		waittest.Until(t, string(state), func() bool { return client.State() == state })
	}
	decides := func(want string) {
		t.Helper()
		var got string
		waittest.Until(t, "the decision "+want, func() bool {
			got = ask(r.ctx, client, "changing-flag", "unset", openfeature.EvaluationContext{})
			return got == want
		}, func() any { return got })
	}
	const changed = "PROVIDER_CONFIGURATION_CHANGED [changing-flag]"

	defer openfeature.Shutdown()
	// A backend that has no such chain is an error, and the caller's default is returned.
	short, cancel := context.WithCancel(r.ctx)
	cancel()
	if err := openfeature.SetNamedProviderWithContextAndWait(short, t.Name(), New(r.client, "changing-flag")); err == nil {
		t.Fatal("no error without the chain; want one")
	}
	await("PROVIDER_ERROR []", 1, openfeature.ErrorState)
	decides(`"unset"  ERROR FLAG_NOT_FOUND`) // from the first answer on; until then it is PROVIDER_NOT_READY
	r.put("changing-flag", 0, `"variants": {"foo": "foo", "bar": "bar"}, "rules": [], "default": "variant: foo"`)
	await(changed, 1, openfeature.ReadyState)
	await("PROVIDER_READY []", 1, openfeature.ReadyState)
	decides(`"foo" foo STATIC `)

	r.put("changing-flag", 1, `"variants": {"foo": "foo", "bar": "bar"}, "rules": [], "default": "variant: bar"`)
	await(changed, 2, openfeature.ReadyState)
	if got := ask(r.ctx, client, "changing-flag", "unset", openfeature.EvaluationContext{}); got != `"bar" bar STATIC ` {
		t.Errorf("the second version decides %s; want bar", got)
	}

	redis.Pause()
	await("PROVIDER_STALE []", 1, openfeature.StaleState)
	if got := ask(r.ctx, client, "changing-flag", "unset", openfeature.EvaluationContext{}); got != `"bar" bar STATIC ` {
		t.Errorf("a stale provider decides %s; want bar", got)
	}
	redis.Resume()
	await("PROVIDER_READY []", 2, openfeature.ReadyState)

	r.must(r.control.DeleteChain(r.ctx, "changing-flag", 2))
	await("PROVIDER_ERROR []", 2, openfeature.ErrorState)
}

// Metadata names version and rule of each decision, whatever was decided before, and is made once.
func TestMetadata(t *testing.T) {
	t.Parallel()
	var f flag
	for version := int64(1); version <= 2; version++ {
		for _, rule := range []string{"testers", "", "canary", "testers", ""} {
			d := namelist.Decision{Version: version, Rule: rule}
			want := openfeature.FlagMetadata{"chain_version": version}
			if rule != "" {
				want["rule"] = rule
			}
			if got := f.metadata(&d); !maps.Equal(got, want) {
				t.Errorf("version %d, rule %q: metadata %v; want %v", version, rule, got, want)
			}
			d.Stale, want["stale"] = true, true
			if got := f.metadata(&d); !maps.Equal(got, want) {
				t.Errorf("version %d, rule %q, stale: metadata %v; want %v", version, rule, got, want)
			}
		}
		if got := len(f.told.Load().byRule); got != 3 {
			t.Errorf("version %d: metadata of %d rules is kept; want 3", version, got)
		}
	}
}
