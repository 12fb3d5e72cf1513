//go:build fixed_token

package main

import "github.com/freeslot/freeslot/client"

// setToken is for clients of commits that know no source of tokens. TestCompat builds it.
func (d *clientDriver) setToken(opts *client.Options) {
	d.mu.Lock()
	defer d.mu.Unlock()
	opts.Token = d.token
}
