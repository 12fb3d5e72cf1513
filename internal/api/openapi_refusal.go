package api

import (
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// refusals are the answers of status 4xx that operations declare. An operation has further ones as
// its default answer.
var refusals = map[int]struct{ name, text string }{
	http.StatusBadRequest:            {"BadRequest", "The request is wrong (invalid_argument): field names the culprit."},
	http.StatusUnauthorized:          {"Unauthenticated", "No token, or an unknown one (unauthenticated)."},
	http.StatusForbidden:             {"PermissionDenied", forbiddenText},
	http.StatusNotFound:              {"NotFound", "There is no such object, or another tenant has it (not_found)."},
	http.StatusRequestEntityTooLarge: {"PayloadTooLarge", "The body is over a limit (payload_too_large)."},
	http.StatusConflict:              {"Conflict", "The idempotency key belongs to another job (conflict)."},
	http.StatusUnprocessableEntity:   {"NoMatchingNode", noNodeText},
	http.StatusTooManyRequests:       {"TooManyRequests", tooManyText},
}

const (
	forbiddenText = "The token's role does not allow it, a chain does not admit the job, or pages of this origin may " +
		"not call (permission_denied, not_admitted)."
	noNodeText  = "No node fits, busy or not (no_matching_node): breakdown has the reasons."
	tooManyText = "A queue is full, or the tenant submits too fast (overloaded, rate_limited): try again after " +
		"retry_after_ms."
)

// declareRefusals adds the answers that come before an operation's own work, by the token, the
// parameters and the body, and the one for an object that is not there.
func declareRefusals(op *huma.Operation) {
	refuseWith(op, http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden)
	if op.Method == http.MethodPost || op.Method == http.MethodPut {
		refuseWith(op, http.StatusRequestEntityTooLarge)
	}
	if strings.Contains(op.Path, "{") {
		refuseWith(op, http.StatusNotFound)
	}
}

// refuseWith declares that the operation can be refused with these statuses.
func refuseWith(op *huma.Operation, statuses ...int) {
	for _, status := range statuses {
		op.Responses[strconv.Itoa(status)] = &huma.Response{Ref: "#/components/responses/" + refusals[status].name}
	}
}

// describeRefusals adds the answers that operations refer to.
func describeRefusals(doc *huma.OpenAPI) {
	schema := doc.Components.Schemas.Schema(reflect.TypeFor[Error](), true, "Error")
	for _, refusal := range refusals {
		doc.Components.Responses[refusal.name] = &huma.Response{
			Description: refusal.text, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}},
		}
	}
}

// notInNames matches what OpenAPI does not allow in the names of components.
var notInNames = regexp.MustCompile(`[^a-zA-Z0-9._-]+`)

// schemaName is huma's name without the characters that OpenAPI does not allow, such as the braces
// of an unnamed struct.
func schemaName(t reflect.Type, hint string) string {
	return notInNames.ReplaceAllString(huma.DefaultSchemaNamer(t, hint), "")
}
