// Package server starts and owns a redis-server process.
//
// `scheduler dev` and the tests run Redis with it: a real server on a loopback port, as a child of
// this process. It is no supervisor for production: it reports a server that exits (Done, Err), but
// does not start it again.
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
//   - On Linux the kernel kills the child when this process dies for any reason. Elsewhere a killed
//     parent leaves the server behind.
//   - The child has a process group of its own. So Ctrl-C in a terminal reaches only this process,
//     which stops its clients first and the server last.
//   - Two servers never share a data folder: it is locked while a server runs on it.
package server
