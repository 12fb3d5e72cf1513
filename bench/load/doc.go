// Package load is the load generator that all peers written in Go share: the two loops, what is
// measured of them, and the lines that a peer's processes exchange with the load tool.
//
// A peer is one program with two roles. As "worker" it runs jobs: it prints "ready", and ends when
// its standard input does. As "load" it submits them: it prints "ready", then reads a Request a
// line and answers each with Figures on one line. A peer with a server of its own has a third role,
// "server", which ends as a worker does.
//
// Each job carries a payload of PayloadBytes. Its handler answers with the moment at which it began
// (Stamp), which has to come back through the system under test as the job's result: so reading it
// proves that the result was kept and read, and it gives the time from submit to start. Both
// processes share a clock, as they are on one machine.
package load
