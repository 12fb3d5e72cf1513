package registry

import (
	"errors"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestOutageOfOneTag: a server of a cluster that is down is one outage, whatever the others answer.
func TestOutageOfOneTag(t *testing.T) {
	t.Parallel()
	core, logged := observer.New(zap.InfoLevel)
	c, err := NewConsumer(ConsumerOptions{RedisURL: "redis://127.0.0.1:1", Logger: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	f := newFollower(c)
	f.tags = make([]tagLooks, 2)
	look := func(tag int, err error) { f.lookedAt(&f.tags[tag], nil, nil, nil, err, f.now()) }
	for range 3 {
		look(0, errors.New("down"))
		look(1, nil)
	}
	if lost, back := logged.FilterMessage("registry.redis_lost").Len(), logged.FilterMessage("registry.redis_back").Len(); lost != 1 || back != 0 {
		t.Errorf("%d losses and %d returns are logged, expected one loss", lost, back)
	}
	look(0, nil)
	if logged.FilterMessage("registry.redis_back").Len() != 1 {
		t.Errorf("logged %v, expected the return", logged.All())
	}
}
