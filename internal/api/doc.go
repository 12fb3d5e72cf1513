// Package api is a replica's HTTP side: jobs and nodes under /v1, health,
// metrics, and the OpenAPI document of it all. The WebSocket handler is handed
// in and served on the same listener. Features register further routes with a Router.
//
// # Errors
//
// Every refusal, those of the router and of the framework included, is the JSON
// object {code, message, field, errors, retry_after_ms, breakdown, current_version} with the codes of
// package freeslot; see statusOf for the HTTP status of each. A refusal that is
// worth repeating has a Retry-After header.
//
// # Who may call
//
// With tokens configured, /v1 asks for "Authorization: Bearer <token>". Without
// any, only loopback is served and every caller is an operator; requests whose
// Host is not this machine are refused then, because that is what a page in the
// user's browser looks like that has rebound its own name to 127.0.0.1. An
// Origin other than the request's own host or one of the allowed is refused in
// both cases. /healthz, /readyz, /metrics and the OpenAPI document ask for no
// token: they hold nothing of a tenant.
//
// # Order of stopping
//
// Drain turns /readyz red, answers the submits that wait for a result with the
// state so far, and refuses new ones. Stop then closes the listener and waits
// for requests under way; when its context ends it cuts them off.
package api
