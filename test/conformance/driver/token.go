//go:build !fixed_token

package main

import (
	"context"

	"github.com/freeslot/freeslot/client"
)

// setToken gives the client a source of tokens.
func (d *clientDriver) setToken(opts *client.Options) {
	opts.TokenSource = func(context.Context) (string, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.token, nil
	}
}
