// Package profile reads the profiles of nodes from Redis. Values that several of them share are in
// memory once.
package profile
