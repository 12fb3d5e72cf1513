package client

import (
	"fmt"
	"strings"

	"github.com/redis/rueidis"
)

// UnreachableError is returned when a server that a URL names cannot be used. Whoever
// knows under which name the URL was given adds it.
type UnreachableError struct {
	// Addr is the URL without its credentials.
	Addr string
	Err  error
}

func (e *UnreachableError) Error() string {
	return "redis at " + e.Addr + " cannot be used: " + e.Err.Error()
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// newClient is rueidis.NewClient, and says of a server that is not Redis what it is.
func newClient(opt rueidis.ClientOption) (rueidis.Client, error) {
	client, err := rueidis.NewClient(opt)
	// The text is all that tells this error from others.
	if err != nil && strings.Contains(err.Error(), "received unknown message type") {
		return nil, fmt.Errorf("what answers there is not Redis, or expects TLS (rediss://): %w", err)
	}
	if err != nil {
		return nil, explainAccess(err, opt)
	}
	return client, nil
}
