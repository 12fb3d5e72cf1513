// Package server starts and owns a redis-server process.
//
// It is what `scheduler dev` and the tests run Redis with: a real server on a loopback port, as a child
// of this process. It is no supervisor for production: a server that exits is reported (Done, Err), not
// started again.
//
// # Life of the process
//
//	            Start                     Stop: SIGTERM, after StopGrace SIGKILL
//	stopped ------------> running  --------------------------------------------> stopped
//	   ^                  |  ^  | Kill, or it exited by itself
//	   |            Pause |  |  +-----------------------> ended: Done is closed, Err says why
//	   |                  v  | Resume                       |
//	   |                 paused                             |
//	   +----------------------------------------------------+ Stop; Start and Restart work from here too
//
// # Guarantees
//
//   - Start returns nil only when this very child answers, not some other server on the port.
//   - The server listens on 127.0.0.1 alone.
//   - On Linux the child is killed by the kernel when this process dies, whatever it dies of. Elsewhere
//     a killed parent leaves the server behind.
//   - The child has a process group of its own, so that Ctrl-C in a terminal reaches this process only,
//     which then stops its clients first and the server last.
//   - Two servers never share a data folder: it is locked while a server runs on it.
package server
