// Package presence keeps a replica informed of the other replicas that are there.
//
// Nothing depends on it but preferences: which part of a fleet a replica tries first. So
// there is no leader, no agreement and no waiting: each replica says every few seconds
// that it is there, and learns of the others from the answer. While Redis is away the
// last answer holds.
package presence
