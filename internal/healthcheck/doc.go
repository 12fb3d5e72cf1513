// Package healthcheck finds out whether the services of a node are healthy: by an HTTP request, a TCP
// connection, the health service of gRPC, or a WebSocket handshake.
//
// A [Group] has one loop for each service with a check. The loop checks every Config.Interval, with
// some jitter, one check at a time and each within Config.Timeout. From the outcomes, a pure state
// machine decides whether the service is offered:
//
//	          one success                    Fall failures in a row
//	unknown ---------------> healthy ------------------------------> unhealthy
//	                            ^                                        |
//	                            '--------- Rise successes in a row ------'
//
// An unknown service is not offered before its first success. Each change is reported and logged
// once. A failure that changes nothing is only counted.
//
// Every check opens a connection of its own and closes it, because a service that keeps its old
// connections but takes no new ones is not healthy. Certificate files are read each time, so the
// next check uses renewed ones. Redirects are not followed, and proxy variables of the environment
// are ignored.
package healthcheck
