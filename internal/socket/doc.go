// Package socket is one end of a WebSocket that many peers connect to: the bounded queue of
// messages for a peer and their writer, the reading of frames, pings, how a connection ends, and
// the number of requests and sessions under way.
//
// A [Conn] ends by an [Order]. The first order counts; the writer carries it out, after the queue
// if the order says so, and everything else follows from the closed connection.
//
// # What happens on failure
//
// A peer that reads too slowly, is silent, or sends too much gets the reason and is disconnected.
// [Config] bounds the memory that one peer can take.
package socket
