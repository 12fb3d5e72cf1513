// Package profile reads the profiles of nodes as Redis has them, and makes what is
// equal in several of them one thing in memory.
package profile
