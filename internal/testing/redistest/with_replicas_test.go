package redistest

import "testing"

func TestWithReplicas(t *testing.T) {
	t.Parallel()
	redis := NewWithReplicas(t, 1)
	c := redis.Client(t)
	set := func(n string) { // WAIT is about the writes of its own connection
		answers := c.DoMulti(deadline(t, startLimit), c.B().Set().Key("key").Value(n).Build(), c.B().Wait().Numreplicas(1).Timeout(10000).Build())
		if have, err := answers[1].AsInt64(); answers[0].Error() != nil || err != nil || have != 1 {
			t.Fatalf("%v; WAIT: %d, %v; want answers[0].Error() == nil, no error, have == 1", answers[0].Error(), have, err)
		}
	}
	set("value")
	redis.Kill()
	replica := redis.Replicas[0].Client(t)
	mustGet(t, replica, "key", "value")
	redis.Promote(redis.Replicas[0])
	mustSet(t, replica, "key", "another")
	mustGet(t, replica, "key", "another")
}
