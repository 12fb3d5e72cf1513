// Package e2e tests the programs as they are shipped: scheduler, nodeagent and schedctl as
// processes, on a real Redis. A client that shares no code with them (wsclient, on the npm package
// ws) drives them, too.
//
// The tests share one Redis and have a key prefix each. Most of them run in parallel; tests that
// load the machine or measure it do not. Every started process is stopped, and killed if it does
// not stop; every wait has a limit.
//
// Files that begin with rig_ start and drive processes, and hold no tests.
package e2e
