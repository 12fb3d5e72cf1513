package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/selection"
)

const apiDescription = `Submit jobs to a fleet of nodes and see what becomes of them.

Jobs can also be submitted, and their results received, over a WebSocket at /v1/ws (subprotocol freeslot.v1).
Every refusal is an Error; see its code.`

func apiConfig(version string) huma.Config {
	if version == "" {
		version = "dev"
	}
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "freeslot scheduler", Version: version, Description: apiDescription},
			Tags:    []*huma.Tag{{Name: "jobs"}, {Name: "nodes"}},
			OnAddOperation: []huma.AddOpFunc{func(_ *huma.OpenAPI, op *huma.Operation) {
				op.Description = strings.TrimSpace(op.Description + " " + identity.Allowed(op.OperationID))
			}},
			Components: &huma.Components{
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {
						Type: "http", Scheme: "bearer",
						Description: "A token of the replica's configuration. Without any configured, none is needed.",
					},
				},
			},
			Security: []map[string][]string{{"token": {}}, {}},
		},
		Formats:                      map[string]huma.Format{"application/json": jsonFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
	}
}

// jsonFormat cuts the byte order mark, which some editors write before JSON.
var jsonFormat = huma.Format{
	Marshal: huma.DefaultJSONFormat.Marshal,
	Unmarshal: func(data []byte, v any) error {
		return huma.DefaultJSONFormat.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), v)
	},
}

// finish completes the document where the Go types do not suffice.
func finish(doc *huma.OpenAPI) {
	schemas := doc.Components.Schemas

	jobs := doc.Paths["/v1/jobs"]
	jobSchema := schemas.Schema(reflect.TypeFor[freeslot.Job](), true, "Job")
	jobs.Post.RequestBody = &huma.RequestBody{
		Required: true,
		Content:  map[string]*huma.MediaType{"application/json": {Schema: jobSchema}},
	}
	doc.Paths[restorePath].Post.RequestBody = jobs.Post.RequestBody
	if requeue := doc.Paths["/v1/jobs/{id}/requeue"]; requeue != nil {
		requeue.Post.Responses["202"].Description = "The new job; it had not ended when this was written."
		requeue.Post.Responses["200"] = &huma.Response{
			Description: "The new job, which has ended already.", Content: requeue.Post.Responses["202"].Content,
		}
	}
	jobs.Post.Responses["202"].Description = "Accepted; the job had not ended when this was written."
	jobs.Post.Responses["200"] = &huma.Response{
		Description: "The job has ended.", Content: jobs.Post.Responses["202"].Content,
	}

	doc.Paths[explainPath].Post.RequestBody = &huma.RequestBody{
		Required: true,
		Content: map[string]*huma.MediaType{
			"application/json": {Schema: schemas.Schema(reflect.TypeFor[ExplainRequest](), true, "ExplainRequest")},
		},
	}

	components := schemas.Map()
	components["JobStatus"].Properties["state"].Enum = anys(freeslot.States())
	components["Job"].Properties["on_lease_loss"].Enum = anys([]freeslot.OnLeaseLoss{
		freeslot.LeaseLossContinue, freeslot.LeaseLossCancel,
	})
	components["LabelRule"].Properties["operator"].Enum = anys(freeslot.LabelOperators())
	components["NodeStatus"].Properties["status"].Enum = anys([]freeslot.Status{
		freeslot.StatusOnline, freeslot.StatusDraining,
	})
	components["Error"].Properties["code"].Enum = anys(codes)
	components["NodeExplanation"].Properties["reason"].Enum = anys(selection.Reasons())
	for schema, fields := range fieldDocs {
		for field, text := range fields {
			components[schema].Properties[field].Description = text
		}
	}
}

// finishHealth documents the routes outside the API.
func finishHealth(doc *huma.OpenAPI) {
	doc.Tags = append(doc.Tags, &huma.Tag{Name: "health"})
	schemas := doc.Components.Schemas
	for path, summary := range map[string]string{
		"/healthz": "Whether the process is alive",
		"/readyz":  "Whether new work should be sent here",
	} {
		doc.Paths[path] = &huma.PathItem{Get: plainOperation(path[1:], summary, "application/json")}
	}
	doc.Paths["/readyz"].Get.Responses["200"].Content["application/json"].Schema = schemas.Schema(
		reflect.TypeFor[Readiness](), true, "Readiness",
	)
	doc.Paths["/readyz"].Get.Responses["503"] = &huma.Response{
		Description: "Not now; the checks say why.", Content: doc.Paths["/readyz"].Get.Responses["200"].Content,
	}
	doc.Paths["/metrics"] = &huma.PathItem{Get: plainOperation("metrics", "Metrics for Prometheus", "text/plain")}
}

func plainOperation(id, summary, contentType string) *huma.Operation {
	return &huma.Operation{
		OperationID: id, Summary: summary, Tags: []string{"health"}, Security: []map[string][]string{},
		Responses: map[string]*huma.Response{
			"200": {Description: "OK", Content: map[string]*huma.MediaType{contentType: {Schema: &huma.Schema{}}}},
		},
	}
}

// serveDocument renders the document once, at the first request: that takes longer than the rest of
// a server's construction. doc must not change afterwards.
func serveDocument(mux *http.ServeMux, doc *huma.OpenAPI) {
	serve := func(path, contentType string, render func() ([]byte, error)) {
		rendered := sync.OnceValues(render)
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			data, err := rendered()
			if err != nil {
				panic("api: the OpenAPI document cannot be rendered: " + err.Error())
			}
			w.Header().Set("Content-Type", contentType)
			_, _ = w.Write(data)
		})
	}
	serve("/openapi.json", "application/openapi+json", func() ([]byte, error) { return json.MarshalIndent(doc, "", "  ") })
	serve("/openapi.yaml", "application/openapi+yaml", doc.YAML)
}

// codes lists every code of the protocol.
var codes = []freeslot.Code{
	freeslot.CodeInvalidArgument, freeslot.CodePayloadTooLarge, freeslot.CodeNoMatchingNode, freeslot.CodeOverloaded,
	freeslot.CodeRateLimited, freeslot.CodeUnavailable,
	freeslot.CodeUnauthenticated, freeslot.CodePermissionDenied, freeslot.CodeNotAdmitted, freeslot.CodeNotFound,
	freeslot.CodeConflict,
	freeslot.CodeInternal,
}

// fieldDocs holds the descriptions of package freeslot's types, by schema and field. An unknown
// name panics in finish, and so in every test.
var fieldDocs = map[string]map[string]string{
	"Explanation": {
		"class":     "The job's class in canonical form: jobs of one class fit the same nodes.",
		"mode":      "How pools restrict jobs that name none.",
		"policy":    "Which of the sampled nodes is taken.",
		"total":     "All nodes.",
		"fits":      "Nodes that could run the job if they were idle and well.",
		"qualify":   "Nodes that could be chosen now.",
		"max_slots": "The largest max_concurrency among the nodes that fit, or would if they had the slots.",
		"tiers":     "Lists of candidates in the order in which they are tried.",
		"breakdown": "How many nodes each reason speaks against; each node counts once.",
		"nodes":     "Nodes that qualify, then those that fit, then the others.",
	},
	"TierExplanation": {
		"pool":      "The pool whose members these are; absent means any.",
		"preferred": "Whether they come first because the job prefers their pool.",
		"fits":      "Nodes of this tier that fit.",
		"qualify":   "Nodes of this tier that could be chosen now.",
	},
	"NodeExplanation": {
		"cell":            "The index of the node's cell.",
		"reason":          "The first thing that speaks against the node; absent if it qualifies.",
		"detail":          "What the node has and what was expected.",
		"fits":            "Whether the profile fits, and has as many slots as the job asks for.",
		"tier":            "The index of the node's tier; -1 if it does not fit.",
		"pools":           "All pools that the node is in.",
		"used":            "Slots in use as last heard of.",
		"pending":         "Slots that this replica has asked for without an answer yet.",
		"max_concurrency": "All slots of the node.",
	},
	"Job": {
		"service":      "Names the handler that runs the job; the node must have it installed.",
		"payload":      "Any JSON value, handed to the handler as it is.",
		"requirement":  "What the node must offer besides the service.",
		"affinity_key": "Jobs with the same key go to the same node while that has room. At most 128 bytes.",
		"slots":        "How much of a node's capacity the job takes; absent means 1.",
		"priority": "Of jobs that wait for the same nodes the ones with a higher priority come first. 0, the " +
			"lowest, to 9; absent means 0.",
		"max_attempts": "How often the job may fail before it is dead: the loss of its node counts, and so does an " +
			"error that the handler calls retryable. 1 to 100; absent means 3.",
		"timeout_ms": "How long the job may take from its submission to its end, in milliseconds, at most 30 " +
			"days; then it expires. Absent means no limit.",
		"run_at_ms": "The job does not begin before this time, in milliseconds since 1970; it is scheduled " +
			"until then. Absent means at once.",
		"idempotency_key": "A second job of the tenant with the same key is not created; the answer has the id of the " +
			"first. At most 128 bytes.",
		"concurrency_key": "Of the tenant's jobs with the same key concurrency_limit run at a time; further ones " +
			"wait, by priority and age. Jobs of one key should ask for the same nodes. At most 128 bytes.",
		"concurrency_limit": "How many jobs with the concurrency_key may run at a time, 1 to 65536; the job submitted " +
			"last decides for all. Absent means 1.",
		"progress_timeout_ms": "How long the handler may tell no progress, in milliseconds, at most 30 days; then the " +
			"attempt has failed as stalled, and the job is tried again while max_attempts lasts. Absent means no limit.",
		"on_lease_loss": "What a node does with the running job when it has not reached Redis for the heartbeat limit; " +
			"cancel keeps it from running beside its next attempt. Absent means continue.",
		"traceparent": "The W3C trace context of the submitter.",
		"admission":   "What a chain decided about the job. The scheduler sets it; a submission's is ignored.",
	},
	"Admission": {
		"chain":                "The chain that decided.",
		"version":              "Of the chain; 0: it was not known.",
		"outcome":              "allow, deny, unknown or variant.",
		"rule":                 "The rule that decided; absent for the default.",
		"reason":               "What led to the outcome, in words for people.",
		"observed":             "The chain only observes: the outcome changed nothing.",
		"pool":                 "The pool that the variant set.",
		"preferred_pool":       "The preferred pool that the variant set.",
		"asked_pool":           "The pool that the job asked for before.",
		"asked_preferred_pool": "The preferred pool that the job asked for before.",
	},
	"Progress": {
		"attempt": "Which try of the job told it, from 1.",
		"seq":     "Counts what the attempt told, from 1; numbers are missing where something later took their place.",
		"at_ms":   "When it was reported, by the store's clock, in milliseconds since 1970.",
		"value":   "Any JSON value of at most 4 KiB.",
	},
	"Requirement": {
		"pool":           "Only nodes of this pool.",
		"preferred_pool": "Fitting nodes of this pool come first, the other fitting nodes after them.",
		"services": "Further services that the node must have installed, each optionally with a range of versions: " +
			"asr@>=1.2 <2.",
		"source_language": "A BCP 47 tag of a language that the node must understand.",
		"target_language": "A BCP 47 tag of a language that the node must produce.",
		"labels":          "Labels that the node must have, with these very values.",
		"label_rules":     "Comparisons of the node's labels. All of them must hold.",
		"features":        "Features that the node must have.",
	},
	"LabelRule": {
		"label":    "The label's name. A label that the node does not have fails all operators but not_in and not_exists.",
		"operator": "gt, ge, lt and le compare decimal numbers.",
		"values":   "1 to 64 for in and not_in, none for exists and not_exists, one decimal number for the others.",
	},
	"JobStatus": {
		"node":    "Where the job runs or ran last; empty before its first attempt, and while it waits for the next.",
		"class":   "The id of the job's class: jobs with the same requirement.",
		"attempt": "Which try that is, from 1; 0 before the first.",
		"result":  "What the handler returned; only in state succeeded.",
		"error": "What failed last: in the states failed and dead, and in retry_wait and expired where an " +
			"attempt had failed; in expired also for lack of a node.",
		"progress":    "What a handler of the job told last; absent where none has, and in listings.",
		"failures":    "How many attempts failed; absent means none.",
		"priority":    "As submitted; absent means 0.",
		"deadline_ms": "When the job expires, by the store's clock, in milliseconds since 1970; absent means never.",
		"run_at_ms": "When a job that is scheduled or in retry_wait begins to wait for a slot, by the store's " +
			"clock, in milliseconds since 1970; absent otherwise.",
		"position": "The job's place among those that wait for the same nodes, from 1, when it was looked up; " +
			"absent when it does not wait, and in listings.",
		"held_by": "What keeps the job waiting although slots may be free: max_running of its tenant, its " +
			"concurrency_key, or a pause of its service, class or pool. Absent where nothing does, and in listings.",
		"waits_for_pool": "The pool whose next node a waiting job needs: no node fits that runs, and the pool expects " +
			"nodes that will. Absent in listings.",
		"node_by_ms": "When the job expires as no_matching_node unless a node fits it then, by the store's clock, in " +
			"milliseconds since 1970; absent for a job that a node fitted when it was accepted, and once it has begun.",
		"submitted_at_ms": "The store's clock, in milliseconds since 1970.",
		"assigned_at_ms":  "When the last attempt began, by the store's clock, in milliseconds since 1970; 0 means not yet.",
		"finished_at_ms":  "The store's clock, in milliseconds since 1970; absent means not yet.",
	},
}

func anys[T ~string](values []T) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}
