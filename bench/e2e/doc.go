// Command e2e measures freeslot end to end, with real processes: a redis-server, scheduler replicas, a
// process of worker nodes whose handlers do nothing, and, in this process, clients that submit jobs over
// WebSocket.
//
//	go run -C bench ./e2e -duration 10s
//	go run -C bench ./e2e -scenario closed:64 -scenario open:2000 -aof off,everysec
//	go run -C bench ./e2e -report    write bench/RESULTS.md from the files in bench/results
//	go run -C bench ./e2e -check     exit 1 unless bench/RESULTS.md is what the JSON files give
//
// # What a figure means
//
//   - Time to assign runs until the assigned message has reached the client, time to result until the
//     result has. In a closed loop both begin when the job is submitted. In an open loop they begin when
//     the job was due by the rate, whether or not it could be submitted then: a stall delays every job
//     that falls into it and each of them counts (no coordinated omission).
//   - The yardstick is the round trip of a bare EVALSHA (a script that returns 1) on a connection of its
//     own from this same process: on the idle system, and under the load of each scenario. What freeslot
//     adds to it is freeslot's.
//   - Redis' CPU is that of its main thread between the first and the last job that is counted, divided
//     by their number. The script figure is the part of it inside EVALSHA.
//
// Everything shares one machine. A figure says what these processes do to each other on it, and no more.
package main
