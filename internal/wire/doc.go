// Package wire is the codec of the WebSocket protocol freeslot.v1. Clients send a [Request],
// replicas a [Message]. It also decodes jobs in HTTP bodies.
//
// Requests are decoded strictly. Unknown, misspelt and repeated fields, null, and numbers in place
// of strings are refused, so that a mistake shows when it is made. Errors name the field
// ("jobs[3].requirement.pool"); encoding/json cannot do that. A refused frame is refused as a
// whole.
//
// Messages are decoded leniently. A client ignores fields and message types that it does not know,
// so that a replica can be newer than its clients.
package wire
