// Command freeslot is this scheduler as a peer of the benchmark: see bench/load for the roles.
//
//	freeslot worker -redis URL -nodes 4 -slots 1024     nodes, all in this process
//	freeslot worker -gateway URL -token T -nodes 4      the same through a replica
//	freeslot worker -redis URL -nodes 10000 -lean       the same with one connection a node, for many of them
//	freeslot load -redis URL                            a replica in this process; Dispatch is a Go function
//	freeslot load -ws ws://host:port,...                a client of replicas elsewhere
package main

import (
	"os"

	"github.com/freeslot/freeslot/bench/load"
)

const benchService = "noop"

func main() { os.Exit(load.Main(startWorker, openLoad)) }
