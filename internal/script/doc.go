// Package script runs Lua on Redis for every feature that keeps keys there. It knows nothing of
// jobs.
//
// A feature is a folder of its own, with its key names, its scripts in the folder script/, and one
// Go function for each script. Scripts run in cells. A cell is the set of keys that share one Redis
// hash slot, so it is the unit of atomicity.
//
// # How a feature declares a script and its keys, and calls it
//
//	//go:embed script
//	var files embed.FS
//
//	var scripts = script.MustLoad(files) // script/acquire.lua becomes scripts["acquire"]
//
//	func acquire(ctx context.Context, runner *script.Runner, name, owner string) (int64, error) {
//		keys := []string{runner.Layout().Key("lock", name)} // KEYS[1] is prefix:lock:{tag}:name
//		return runner.Call(ctx, scripts["acquire"], keys, []string{owner}).AsInt64()
//	}
//
// The wiring gives the feature the [Runner] of each cell and calls [Runner.Add] with its scripts;
// [CellOf] finds the cell of a name. A [Batch] makes one call of several concurrent ones.
// [Runner.CallReplicated] is for writes that count only once Redis' replicas have them.
//
// # What a script can include
//
// "-- include lib/clock.lua" stands for a file of the feature's folder script/lib, or of the folder
// lib here:
//
//	at      Redis' time as text
//	clock   Redis' time as numbers: deadlines are compared with it
//	here    refuses to do half of the work while a hash slot migrates
//	key     names of the cell's keys
//	server  identifies the history of the server's data
//	sure    replaces a key of a wrong type
//
// Package scripttest checks that the headers of includes are true, and that scripts use no
// undefined names.
//
// A script publishes by redis.call('PUBLISH', channel, ...); on a cluster SPUBLISH replaces it.
//
// # What happens on failure
//
//   - NOSCRIPT: the package handles it; noscript.go has the policy.
//   - No deadline: a call without one gets Config.CallTimeout. A call that waits for Redis'
//     replicas also gets their timeout.
//   - Redis answers with an error: the script stopped there. errors.As finds the
//     *rueidis.RedisError; the feature wraps it with its operation.
//   - Any other error (a deadline, a broken connection): the call may have been carried out, unless
//     the error is ErrNotSent.
//
// # Who repeats a call
//
// The caller repeats it, because only the caller knows whether it still wants the call. This
// package repeats a call only after NOSCRIPT and MOVED, when nothing has run. So repeating a script
// with the same arguments must do no harm.
//
// # Metrics
//
// freeslot_redis_call_seconds, _errors_total and _calls_in_flight by script, the sizes of batches,
// and the waits for replicas.
package script
