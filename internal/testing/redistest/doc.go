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
// Shared and Cluster are servers of the whole test binary. The first test that needs them starts
// them, and Main stops them. Tests keep apart by their key Prefix and never flush. New and
// NewCluster belong to one test, which may kill, pause and restart them. Without an installed
// redis-server the tests fail with the command that installs one; they are never skipped.
//
// FREESLOT_TEST_REDIS_SERVER names another binary, such as another Redis version or Valkey.
package redistest
