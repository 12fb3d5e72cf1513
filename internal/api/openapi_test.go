package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/demand"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/history"
	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/tenant"
	"github.com/freeslot/freeslot/internal/testing/apitest"
	"github.com/freeslot/freeslot/internal/testing/redistest/golden"
)

// withFeatures has the routes of all features. No handler of them works.
func withFeatures(d *api.Deps) {
	env := &feature.Env{
		Runners:    []*script.Runner{script.NewRunner(script.Config{}, nil, zap.NewNop(), nil)},
		Subscriber: func(int) rueidis.Client { return nil },
		Commands:   func(int) rueidis.Client { return nil },
		Log:        zap.NewNop(),
		Metrics:    prometheus.NewRegistry(),
	}
	d.Findings = finding.New(nil, zap.NewNop())
	d.Audit = audit.New(audit.Config{}, env.Runners[0], zap.NewNop(), prometheus.NewRegistry())
	d.Routes = append(d.Routes, history.New().Routes, history.New().StatusRoutes(nil), tenant.NewLister(config.Replica{}, nil, nil).Routes,
		demand.NewWatch(nil, nil, nil, zap.NewNop()).Routes)
	for _, f := range replica.Features() {
		d.Routes = append(d.Routes, f.New(env).Routes...)
	}
}

// document is the OpenAPI document as served.
func document(t *testing.T) map[string]any {
	t.Helper()
	return documentOf(t, apitest.New(t, api.Config{}, apitest.WithTokens, new(fakeQueues).use, new(fakeControl).use, withFeatures))
}

// documentOf reads the document without a token.
func documentOf(t *testing.T, f *apitest.Server) map[string]any {
	t.Helper()
	got := f.Do(t, "GET", "/openapi.json", "")
	if got.Status != http.StatusOK || got.Header.Get("Content-Type") != "application/openapi+json" {
		t.Fatal(got.Status, got.Header)
	}
	var doc map[string]any
	if err := json.Unmarshal([]byte(got.Text), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestDocument: clients are generated from the document.
func TestDocument(t *testing.T) {
	t.Parallel()
	text, err := json.MarshalIndent(document(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "Operators only") {
		t.Error("a description says who may make the call, want none: the table of rights adds that")
	}
	golden.Check(t, "openapi.json", string(text)+"\n")
}

// TestRoutes: every path and its methods, as the server lists them when it is asked for another
// method. The document has all of them but itself and the WebSocket.
func TestRoutes(t *testing.T) {
	t.Parallel()
	sessions := func(d *api.Deps) {
		d.Sessions = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Allow", "sessions") })
	}
	f := apitest.New(t, api.Config{}, new(fakeQueues).use, new(fakeControl).use, withFeatures, sessions)
	documented := apitest.At(document(t), "paths").(map[string]any)
	var out strings.Builder
	for _, path := range slices.Sorted(maps.Keys(documented)) {
		allow := f.Do(t, "PATCH", strings.NewReplacer("{", "", "}", "").Replace(path), "").Header.Get("Allow")
		var want []string
		for method := range documented[path].(map[string]any) {
			if want = append(want, strings.ToUpper(method)); method == "get" {
				want = append(want, "HEAD")
			}
		}
		slices.Sort(want)
		if allow != strings.Join(want, ", ") {
			t.Errorf("%s has %s, and is documented with %s", path, allow, want)
		}
		fmt.Fprintf(&out, "%s  %s\n", path, allow)
	}
	for _, path := range []string{"/openapi.json", "/openapi.yaml", api.SessionPath} {
		fmt.Fprintf(&out, "%s  %s\n", path, f.Do(t, "PATCH", path, "").Header.Get("Allow"))
	}
	golden.Check(t, "routes.txt", out.String())
}

// TestDocumentIsValid checks what OpenAPI 3.1 demands of the parts that we use.
func TestDocumentIsValid(t *testing.T) {
	t.Parallel()
	doc := document(t)
	if doc["openapi"] != "3.1.0" || apitest.At(doc, "info", "title") == "" || apitest.At(doc, "info", "version") != "test" {
		t.Error(doc["openapi"], doc["info"])
	}
	if url := apitest.At(doc, "servers").([]any)[0].(map[string]any)["url"]; url != "/" {
		t.Errorf("the server is %v, expected / (the replica that serves the document)", url)
	}
	for kind, components := range apitest.At(doc, "components").(map[string]any) {
		for name := range components.(map[string]any) {
			if !componentName.MatchString(name) {
				t.Errorf("the component %s %q has characters that OpenAPI does not allow", kind, name)
			}
		}
	}
	for _, tag := range apitest.At(doc, "tags").([]any) {
		if apitest.At(tag, "description") == nil {
			t.Errorf("tag %v has no description", apitest.At(tag, "name"))
		}
	}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				if kind, name, _ := strings.Cut(strings.TrimPrefix(ref, "#/components/"), "/"); apitest.At(doc, "components", kind, name) == nil {
					t.Errorf("%s: %s leads nowhere", path, ref)
				}
			}
			if strings.Contains(path, "/schemas/") || strings.HasSuffix(path, "/schema") {
				checkSchema(t, path, v)
			}
			for _, name := range slices.Sorted(maps.Keys(v)) {
				walk(path+"/"+name, v[name])
			}
		case []any:
			for i, item := range v {
				walk(fmt.Sprintf("%s/%d", path, i), item)
			}
		}
	}
	walk("", doc)

	ids := map[string]string{}
	for path, item := range apitest.At(doc, "paths").(map[string]any) {
		for method, op := range item.(map[string]any) {
			route := method + " " + path
			id, _ := apitest.At(op, "operationId").(string)
			if other, twice := ids[id]; id == "" || twice {
				t.Errorf("%s has the operationId %q, which %q has too", route, id, other)
			}
			ids[id] = route
			responses, _ := apitest.At(op, "responses").(map[string]any)
			if len(responses) == 0 {
				t.Errorf("%s has no responses", route)
			}
			refused := false
			for status, response := range responses {
				refused = refused || strings.HasPrefix(status, "4")
				if apitest.At(response, "description") == nil && apitest.At(response, "$ref") == nil {
					t.Errorf("%s: response %s has no description", route, status)
				}
			}
			if !refused {
				t.Errorf("%s declares no answer of status 4xx", route)
			}
			checkPathParameters(t, path, op)
			if strings.HasPrefix(path, "/v1/") {
				if ref := apitest.At(responses, "default", "content", "application/json", "schema", "$ref"); ref != "#/components/schemas/Error" {
					t.Errorf("%s: errors are %v, expected Error", route, ref)
				}
			}
		}
	}
}

// componentName is what OpenAPI 3.1 demands.
var componentName = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

// TestDeclaredRefusals: each operation refuses foreign pages and strangers as the document says.
func TestDeclaredRefusals(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{}, apitest.WithTokens, new(fakeQueues).use, new(fakeControl).use, withFeatures)
	for path, item := range apitest.At(document(t), "paths").(map[string]any) {
		for method, op := range item.(map[string]any) {
			route, probe := strings.ToUpper(method)+" "+path, strings.NewReplacer("{", "", "}", "").Replace(path)
			check := func(want int, got apitest.Response) {
				t.Helper()
				if apitest.At(op, "responses", strconv.Itoa(want)) == nil {
					return // a route outside the API
				}
				if got.Status != want {
					t.Errorf("%s: %d %s, expected %d as declared", route, got.Status, got.Text, want)
				}
			}
			check(http.StatusForbidden, f.Do(t, strings.ToUpper(method), probe, "", "Origin", "https://elsewhere.example"))
			if path == "/metrics" {
				continue // it asks for a token only where it is configured to
			}
			check(http.StatusUnauthorized, f.Do(t, strings.ToUpper(method), probe, ""))
		}
	}
}

// TestRefusedRequests: each operation, also of a feature, refuses a query parameter that it does not
// have, since a filter with a typo would find everything, and a body that is too large.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	unaudited := func(d *api.Deps) { d.Audit = nil }
	f := apitest.New(t, api.Config{}, new(fakeQueues).use, new(fakeControl).use, withFeatures, unaudited)
	large := strings.Repeat("x", 9<<20) // the largest limit is 8 MiB
	for path, item := range apitest.At(documentOf(t, f), "paths").(map[string]any) {
		if !strings.HasPrefix(path, "/v1/") && !strings.HasPrefix(path, "/admin/") {
			continue // a route outside the API
		}
		for method, op := range item.(map[string]any) {
			route, probe := strings.ToUpper(method)+" "+path, strings.NewReplacer("{", "", "}", "").Replace(path)
			check := func(status int, code freeslot.Code, got apitest.Response) {
				t.Helper()
				if got.Status != status || got.Body["code"] != string(code) {
					t.Errorf("%s: %d %s, expected %d %s", route, got.Status, got.Text, status, code)
				}
				if apitest.At(op, "responses", strconv.Itoa(status)) == nil {
					t.Errorf("%s does not declare the answer %d", route, status)
				}
			}
			got := f.Do(t, strings.ToUpper(method), probe+"?no_such=1", "")
			check(http.StatusBadRequest, freeslot.CodeInvalidArgument, got)
			if got.Body["field"] != "no_such" || got.Body["message"] != "no_such is an unknown query parameter" {
				t.Errorf("%s: %s, expected the field no_such", route, got.Text)
			}
			if method == "post" || method == "put" {
				check(http.StatusRequestEntityTooLarge, freeslot.CodePayloadTooLarge, f.Do(t, strings.ToUpper(method), probe, large))
			}
		}
	}
}

func checkSchema(t *testing.T, path string, schema map[string]any) {
	t.Helper()
	types := []any{}
	switch v := schema["type"].(type) {
	case string:
		types = append(types, v)
	case []any:
		types = v
	}
	for _, v := range types {
		if !slices.Contains([]any{"object", "array", "string", "integer", "number", "boolean", "null"}, v) {
			t.Errorf("%s has the type %v", path, v)
		}
	}
	if slices.Contains(types, any("array")) && schema["items"] == nil {
		t.Errorf("%s is an array without items", path)
	}
}

func checkPathParameters(t *testing.T, path string, op any) {
	t.Helper()
	var declared []string
	parameters, _ := op.(map[string]any)["parameters"].([]any)
	for _, p := range parameters {
		if apitest.At(p, "in") == "path" {
			declared = append(declared, "{"+apitest.At(p, "name").(string)+"}")
			if apitest.At(p, "required") != true {
				t.Errorf("%s: a path parameter is not required", path)
			}
		}
	}
	for part := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(part, "{") && !slices.Contains(declared, part) {
			t.Errorf("%s: %s is not declared", path, part)
		}
	}
}

func TestDocumentDescribesTheTypes(t *testing.T) {
	t.Parallel()
	doc := document(t)
	schemas := apitest.At(doc, "components", "schemas")
	if ref := apitest.At(doc, "paths", "/v1/jobs", "post", "requestBody", "content", "application/json", "schema", "$ref"); ref != "#/components/schemas/Job" {
		t.Error("the body of a submit is", ref)
	}
	if got := apitest.At(schemas, "Job", "additionalProperties"); got != false {
		t.Error("unknown fields of a job are", got)
	}
	if diff := cmp.Diff([]any{"service"}, apitest.At(schemas, "Job", "required")); diff != "" {
		t.Error(diff)
	}
	if payload := apitest.At(schemas, "Job", "properties", "payload").(map[string]any); payload["type"] != nil {
		t.Error("a payload can be any JSON value, yet is", payload)
	}
	var states []any
	for _, s := range freeslot.States() {
		states = append(states, string(s))
	}
	if diff := cmp.Diff(states, apitest.At(schemas, "JobStatus", "properties", "state", "enum")); diff != "" {
		t.Error(diff)
	}
	var operators []any
	for _, operator := range freeslot.LabelOperators() {
		operators = append(operators, string(operator))
	}
	if diff := cmp.Diff(operators, apitest.At(schemas, "LabelRule", "properties", "operator", "enum")); diff != "" {
		t.Error(diff)
	}
	list, _ := apitest.At(doc, "paths", "/v1/jobs", "get", "parameters").([]any)
	for _, parameter := range list {
		if apitest.At(parameter, "name") != "state" {
			continue
		}
		if diff := cmp.Diff(states, apitest.At(parameter, "schema", "enum")); diff != "" {
			t.Error(diff)
		}
	}
	for _, status := range []string{"200", "202"} {
		if ref := apitest.At(doc, "paths", "/v1/jobs", "post", "responses", status, "content", "application/json", "schema", "$ref"); ref != "#/components/schemas/JobStatus" {
			t.Error(status, ref)
		}
	}
}

func TestDocumentAsYAML(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{}, new(fakeQueues).use, new(fakeControl).use, withFeatures)
	got := f.Do(t, "GET", "/openapi.yaml", "")
	var fromYAML any
	if err := yaml.Unmarshal([]byte(got.Text), &fromYAML); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(fromYAML)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(asJSON, &doc); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(document(t), doc); diff != "" {
		t.Error("the two documents differ:", diff)
	}
}

// The document is rendered at its first request, beside requests that use what it describes.
func TestDocumentBesideRequests(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	texts := make([]string, 4)
	var requests sync.WaitGroup
	for i := range texts {
		requests.Go(func() { texts[i] = f.Do(t, "GET", []string{"/openapi.json", "/openapi.yaml"}[i%2], "").Text })
		requests.Go(func() { f.Do(t, "POST", "/v1/jobs", `{"service":1}`) })
		requests.Go(func() { f.Do(t, "GET", "/v1/jobs?limit=x", "") })
	}
	requests.Wait()
	if texts[0] != texts[2] || texts[1] != texts[3] || len(texts[0]) < 1000 || len(texts[1]) < 1000 {
		t.Errorf("the document has %d and %d bytes of JSON, %d and %d of YAML", len(texts[0]), len(texts[2]), len(texts[1]), len(texts[3]))
	}
}
