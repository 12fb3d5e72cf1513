// Package wire is the codec of the WebSocket protocol freeslot.v1: the frames
// that clients send ([Request]) and those that replicas send ([Message]).
//
// Requests are decoded strictly: unknown, misspelt and repeated fields, null
// and numbers in place of strings are refused, so that a mistake is seen when it
// is made. Errors name the very field ("jobs[3].requirement.pool"), which is why
// the decoder is not that of encoding/json. Messages are decoded leniently: a
// client ignores fields and message types that it does not know, so that a replica
// can be newer than its clients.
package wire
