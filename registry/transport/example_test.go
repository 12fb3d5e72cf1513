package transport_test

import (
	"fmt"
	"log"
	"net/http"

	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/registry/transport"
)

// consumer stands for the program's consumer of the registry.
type consumer struct{}

func (consumer) Follow(service string, f func(*registry.List)) (stop func()) {
	f(&registry.List{Service: service, State: registry.StateEmpty, Why: registry.WhyNeverRegistered})
	return func() {}
}

// A client that calls the service asr by its name, in its own zone first.
func Example() {
	services := transport.New(transport.Config{Policy: "least_loaded", Zone: "west"}, consumer{})
	defer services.Close()
	client := &http.Client{Transport: services}
	resp, err := client.Get("http://asr/recognize")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := resp.Body.Close(); err != nil {
		log.Print(err)
	}
	// Output: Get "http://asr/recognize": registry: service asr has no instance to use; its list is empty: never registered
}
