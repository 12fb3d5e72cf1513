// Package freeslot is the vocabulary that clients (package client), nodes (package worker) and the
// scheduler share: jobs, requirements, nodes, results and error codes.
//
// A job names the service that runs it. Its [Requirement] states what else the node must offer. The
// Validate methods check every value before it becomes part of a key in Redis.
//
// All types are plain values. They are safe for concurrent reading, not for concurrent changes.
package freeslot
