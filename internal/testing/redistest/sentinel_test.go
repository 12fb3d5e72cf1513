package redistest

import (
	"context"
	"testing"

	"github.com/redis/rueidis"
)

// TestSentinels: when the master dies a client of the sentinels finds the replica in its place.
func TestSentinels(t *testing.T) {
	t.Parallel()
	s := NewSentinels(t)
	option, err := rueidis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	option.DisableCache = true
	c, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	set := func(ctx context.Context) bool {
		return c.Do(ctx, c.B().Set().Key("key").Value("value").Build()).Error() == nil
	}
	if !set(t.Context()) {
		t.Fatal("the master takes no writes")
	}
	s.Master.Kill()
	s.await("the failover", set)
	if role, err := Ask(t.Context(), s.Replica.Addrs()[0], "ROLE").ToArray(); err != nil || role[0].String() == "" {
		t.Fatalf("the role of the replica: %v", err)
	} else if kind, _ := role[0].ToString(); kind != "master" {
		t.Errorf("the replica is a %s, expected the master", kind)
	}
}
