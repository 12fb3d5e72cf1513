// Package client lets a node reach Redis through a replica's gateway.
//
// Store offers what a worker needs of a cell. It connects to one of several gateways, connects
// again when the connection ends, and moves to another gateway while Redis does not answer through
// its own.
package client
