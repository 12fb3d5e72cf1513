// Package dev brings up a whole freeslot in one process for trying it out and for
// smoke tests: a redis-server of its own (or, where none is installed, an embedded
// stand-in that keeps nothing), one replica, three nodes of different capability,
// and a first batch of jobs whose fate it prints.
//
// Everything is started in the order of need and stopped in the reverse order; a
// failure on the way up stops what was already up.
package dev
