// Package e2e tests the programs as they are shipped: scheduler, nodeagent and schedctl as processes, on a
// real Redis, driven among others by a client that shares no code with them (wsclient, on the npm package
// ws).
//
// All tests share one Redis and keep apart by their key prefix. Everything that is started is stopped, and
// killed when it does not stop; everything that is waited for has a limit.
package e2e
