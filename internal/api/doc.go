// Package api serves a replica over HTTP: jobs and nodes under /v1, health, metrics, and the
// OpenAPI document of all of these. It serves the WebSocket handler on the same listener. Features
// register further routes with a Router.
//
// # Errors
//
// Every refusal, including the router's and the framework's, is the JSON object {code, message,
// field, errors, retry_after_ms, breakdown, current_version} with the codes of package freeslot.
// statuses holds the HTTP status of each. A refusal that is worth repeating has a Retry-After
// header.
//
// # Who may call
//
// If tokens are configured, /v1 needs "Authorization: Bearer <token>". Without tokens, only
// loopback is served, and every caller is an admin. Requests whose Host is not this machine are
// then refused: a page in the user's browser that has rebound its own name to 127.0.0.1 sends such
// requests. In both cases an Origin is refused that is neither the request's own host nor allowed.
// /healthz, /readyz and the OpenAPI document need no token, because they hold no tenant's data. Nor
// does /metrics by default.
//
// # Failure
//
// If Redis does not answer, jobs are refused as unavailable. Nodes are answered from memory, marked
// as degraded.
//
// Drain turns /readyz red, answers the submits that wait for a result with the state so far, and
// refuses new ones. Stop then closes the listener and waits for requests under way; when its
// context ends it cuts them off.
package api
