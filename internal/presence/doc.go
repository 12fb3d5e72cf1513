// Package presence tells a replica which other replicas run.
//
// Only preferences depend on it, such as the part of a fleet that a replica tries first. So there
// is no leader, no agreement and no waiting: each replica reports itself every few seconds, and
// learns of the others from the answer. While Redis is away the last answer stays valid.
package presence
