// Package conformance proves that clients and agents of nodes in any language keep the protocols.
//
// A driver is a small program that wraps one SDK. README.md describes its protocol. The scenarios in
// client and node tell what a server does, what the driver is told, and what both must see then. A
// test plays each scenario against each driver, with a server that can also refuse, be silent, or
// send what no replica sends.
//
// Files that begin with rig_ read and play scenarios, and hold no tests.
package conformance
