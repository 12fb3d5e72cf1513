package registry_test

import (
	"context"
	"testing"
	"time"

	redisserver "github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
)

// What is tested has the rights in Redis that `schedctl acl --role registry` gives.
func TestMain(m *testing.M) { acltest.Main(m, script.RoleRegistry, registry.Access) }

// exampleRedis runs a Redis for an example.
func exampleRedis() (url string, stop func()) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	redis := redisserver.New(redisserver.Config{})
	must(redis.Start(ctx))
	return redis.URL(), func() {
		must(redis.Stop(ctx))
		cancel()
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
