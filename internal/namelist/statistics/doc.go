// Package statistics keeps what clients have counted of their lookups, by list, time and
// application.
//
// Clients report cumulative counters. Each half minute one replica reads the reports on a list, and
// adds what is new since the last time to the list's history. The counters that are in the history
// are written in the same step, which is refused if another replica has written meanwhile. So a
// report counts once, however often it comes and whichever replica dies.
package statistics
