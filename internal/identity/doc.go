// Package identity says who calls a replica, and what each role may do there.
//
// One table (rights.go) decides about every route of HTTP and every frame of a client's WebSocket.
// docs/security.md shows it. What has no row is refused, so a new route needs one.
package identity
