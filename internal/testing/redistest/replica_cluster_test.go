package redistest

import (
	"fmt"
	"strings"
	"testing"
)

// One cluster does everything that it can do; its keys stay.
func TestReplicaCluster(t *testing.T) {
	t.Parallel()
	redis := NewReplicaCluster(t)
	c := redis.Client(t)
	slot := func(key string) uint16 {
		n, err := c.Do(deadline(t, startLimit), c.B().ClusterKeyslot().Key(key).Build()).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		return uint16(n)
	}
	at := slot("key")
	mustSet(t, c, "key", "value")
	first := redis.Owner(at)
	second := redis.Failover(at)
	if second == first {
		t.Fatal("the failover changed nothing")
	}
	mustGet(t, c, "key", "value")

	joined := redis.Join()
	redis.MigrateSlot(at, joined)
	if got := redis.Owner(at); got != joined {
		t.Fatalf("the slot is on %s, not on %s", got.Addr(), joined.Addr())
	}
	mustGet(t, c, "key", "value")

	other := "other"
	for i := 0; redis.Owner(slot(other)) != second; i++ {
		other = fmt.Sprint("other-", i)
	}
	at = slot(other)
	// Its replica must have the key before it dies; WAIT is about the writes of its own connection.
	node := At("node", false, second.Addr()).Client(t)
	answers := node.DoMulti(deadline(t, startLimit), node.B().Set().Key(other).Value("value").Build(), node.B().Wait().Numreplicas(1).Timeout(10000).Build())
	if n, err := answers[1].AsInt64(); answers[0].Error() != nil || err != nil || n < 1 {
		t.Fatalf("%v; WAIT: %d, %v; want answers[0].Error() == nil, no error, n >= 1", answers[0].Error(), n, err)
	}
	if err := second.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := redis.Owner(at); got == second {
		t.Error("a dead master has the slot")
	}
	mustGet(t, c, other, "value")
	info, err := Ask(deadline(t, startLimit), first.Addr(), "CLUSTER", "INFO").ToString()
	if err != nil || !strings.Contains(info, "cluster_size:4") {
		t.Errorf("%v\n%s; want no error, strings.Contains(info, \"cluster_size:4\")", err, info)
	}
}
