// Package registry is a service registry on Redis: providers register instances and send
// heartbeats, consumers follow services and get lists with the reason for each. It has no server
// of its own and no leader. docs/design/registry.md has keys, scripts, events and states.
package registry
