// Package script runs Lua on Redis for every feature that keeps keys there. It knows nothing of jobs.
//
// A feature is a folder of its own: its key names, its scripts in the folder script/, and one Go function a
// script. Its scripts run in cells: a cell is the set of keys that share one Redis hash slot, and so
// the unit of atomicity.
//
// # How to add a feature
//
//	//go:embed script
//	var files embed.FS
//
//	var scripts = script.MustLoad(files) // script/acquire.lua is scripts["acquire"]
//
//	keys := []string{runner.Layout().Key("lock", name)}
//	reply, err := runner.Call(ctx, scripts["acquire"], keys, args).ToArray()
//
// The feature gets the [Runner] of each cell from who wires it, calls [Runner.Add] with its scripts, and imports nothing
// else of this system for its scripts. What needs one cell out of several for a name takes [CellOf].
//
// Several concurrent calls of one operation become one with a [Batch]. Writes that count only once Redis' replicas
// have them go by [Runner.CallReplicated].
//
// # What a script can include
//
// "-- include lib/clock.lua" stands for a file of the feature's folder script/lib, or of the folder lib here:
//
//	at     Redis' time as text       clock  Redis' time as numbers: deadlines are compared with it
//	key    names of the cell's keys  here   refuses to do half of the work while a hash slot migrates
//	sure   makes a key anew that an operator made something else of
//	server names the history that the server's data belongs to
//
// Package scripttest checks that includes say truly which names they need and define, and that scripts use no
// others.
//
// A script publishes by redis.call('PUBLISH', channel, ...); on a cluster SPUBLISH takes its place.
//
// # What happens on NOSCRIPT
//
// Redis loses its scripts by a restart, a failover or SCRIPT FLUSH, and then answers NOSCRIPT. Nothing was done
// then, so the call goes on by itself. [Missing] says how:
//
//	Send   operators' tools: EVAL sends the script with the call, and Redis keeps it
//	Keep   replicas: besides, SCRIPT LOAD of all added scripts, at once and by a look each second
//	Await  agents: EVALSHA again until a replica has loaded them. After half a second the agent sends the script
//	       itself, unless its user in Redis may not. At the deadline the call ends with ErrMissing
//
// # Deadlines
//
// A call without a deadline gets Config.CallTimeout. One that waits for Redis' replicas gets their timeout on top.
//
// # Who repeats a call
//
// An error that Redis answered with says that the script stopped there. Any other error (a deadline, a broken
// connection) says that the call may have been carried out, unless it is ErrNotSent. This package repeats no
// call but after NOSCRIPT and MOVED, where nothing was done: the caller decides, because it knows whether it still wants
// it. So every script must do no harm when it is repeated with the same arguments.
//
// # Errors
//
// Results carry Redis' own errors, so that errors.As finds a *rueidis.RedisError. The feature wraps them with
// its operation. ErrNotSent, ErrStopped, ErrMissing and ErrNotReplicated are defined here alone.
//
// # Metrics
//
// freeslot_redis_call_seconds, _errors_total and _calls_in_flight by script, the sizes of batches, and the waits
// for replicas.
package script
