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
	"github.com/freeslot/freeslot/internal/wire"
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
			Info: &huma.Info{
				Title: "freeslot scheduler", Version: version, Description: apiDescription,
				License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			},
			// The document is served by the replica that it describes.
			Servers: []*huma.Server{{URL: "/", Description: "The replica that served this document."}},
			Tags: []*huma.Tag{
				{Name: "jobs", Description: "Submit jobs and look after them."},
				{Name: "nodes", Description: "The nodes that run jobs."},
				{Name: "audit", Description: "Who changed what."},
				{Name: "findings", Description: "What is wrong now."},
				{Name: "history", Description: "Figures of the last hours, and the replicas."},
				{Name: "tokens", Description: "Tokens, and what they may do."},
			},
			OnAddOperation: []huma.AddOpFunc{func(_ *huma.OpenAPI, op *huma.Operation) {
				op.Description = strings.TrimSpace(op.Description + " " + identity.Allowed(op.OperationID))
				// Config's field of this name would not hold for features: their Router hides the Config.
				op.RejectUnknownQueryParameters = true
				declareRefusals(op)
			}},
			Components: &huma.Components{
				Schemas:   huma.NewMapRegistry("#/components/schemas/", schemaName),
				Responses: map[string]*huma.Response{},
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {
						Type: "http", Scheme: "bearer",
						Description: "A token of the replica's configuration. Without any configured, none is needed.",
					},
				},
			},
			Security: []map[string][]string{{"token": {}}, {}},
		},
		Formats:       map[string]huma.Format{"application/json": jsonFormat},
		DefaultFormat: "application/json",
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
	describeRefusals(doc)

	jobs := doc.Paths["/v1/jobs"]
	refuseWith(jobs.Post, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusTooManyRequests)
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
	for _, docs := range []map[string]map[string]string{fieldDocs, wire.FieldDocs} {
		for schema, fields := range docs {
			for field, text := range fields {
				components[schema].Properties[field].Description = text
			}
		}
	}
}

// finishHealth documents the routes outside the API.
func finishHealth(doc *huma.OpenAPI) {
	doc.Tags = append(doc.Tags, &huma.Tag{Name: "health", Description: "Probes and metrics."})
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
	refuseWith(doc.Paths["/metrics"].Get, http.StatusUnauthorized)
}

func plainOperation(id, summary, contentType string) *huma.Operation {
	op := &huma.Operation{
		OperationID: id, Summary: summary, Tags: []string{"health"}, Security: []map[string][]string{},
		Responses: map[string]*huma.Response{
			"200": {Description: "OK", Content: map[string]*huma.MediaType{contentType: {Schema: &huma.Schema{}}}},
		},
	}
	refuseWith(op, http.StatusForbidden)
	return op
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

// fieldDocs describes the fields of this package's types, by schema and field. An unknown name
// panics in finish, and so in every test.
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
}

func anys[T ~string](values []T) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}
