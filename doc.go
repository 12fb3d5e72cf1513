// Package freeslot is the vocabulary shared by those who submit jobs (package
// client), those who run them (package worker) and the scheduler: jobs,
// requirements, nodes, results and error codes.
//
// A job names the service that runs it and states what the node must offer
// besides (a [Requirement]). Every value that reaches Redis is validated here,
// by the Validate methods, before it becomes part of a key.
//
// All types are plain values: none is safe for concurrent mutation, all are
// safe for concurrent reading.
package freeslot
