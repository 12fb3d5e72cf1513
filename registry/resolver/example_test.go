package resolver_test

import (
	"log"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/registry/resolver"
)

// consumer stands for the program's consumer of the registry.
type consumer struct{}

func (consumer) Follow(string, func(*registry.List)) (stop func()) { return func() {} }

// A client of the service asr that calls all its instances in turn.
func Example() {
	conn, err := grpc.NewClient("freeslot:///asr",
		grpc.WithResolvers(resolver.New(consumer{})),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
}
