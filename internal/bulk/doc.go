// Package bulk does one thing to many jobs or nodes: it submits jobs again, cancels or drops them,
// and drains or undrains nodes.
//
// A plan finds the targets and fixes them: what comes later is not touched. A plan that is started
// is an operation. One replica works on it at a bounded rate; it has a lease, and another replica
// goes on where the lease ends.
//
// # What happens on failure
//
// A replica that dies can have touched targets that it had not counted yet, and the next one
// touches them again. That has no effect: the new job of one that is submitted again has an
// idempotency key, and the other actions can be repeated. While Redis is away an operation waits.
package bulk
