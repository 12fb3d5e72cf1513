// Package redistest gives tests a real Redis.
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
//	func TestReserve(t *testing.T) {
//		redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
//			t.Parallel()
//			client, prefix := redis.Client(t), redis.Prefix(t)
//			...
//		})
//	}
//
// Shared and Cluster are servers of the whole test binary, started by the first test that wants them and
// stopped by Main: tests keep apart by their key Prefix and never flush. New and NewCluster are a test's
// own, to be killed, paused and restarted. Where no redis-server is installed the tests fail and say what
// installs one; they are never skipped.
//
// FREESLOT_TEST_REDIS_SERVER names another binary, such as that of another Redis version or of Valkey.
package redistest
