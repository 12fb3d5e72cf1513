package main

import (
	"context"
	"strings"
	"testing"
)

// TestPlainToken: a token that goes over the network in the clear gets one warning.
func TestPlainToken(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing is dialled
	const want = "schedctl: the token goes to http://scheduler.example.com:7480 in the clear; use https://\n"
	for _, test := range []struct {
		flags string
		times int
	}{
		{"nodes --token t --server http://scheduler.example.com:7480", 1},
		{"nodes --token t --server scheduler.example.com:7480,https://b.example.com", 1},
		{"watch 01 --token t --server scheduler.example.com:7480", 1},
		{"nodes --server http://scheduler.example.com:7480", 0},
		{"nodes --token t --server https://scheduler.example.com:7480", 0},
		{"nodes --token t --server 127.0.0.1:1", 0},
	} {
		var out, said buffer
		run(strings.Fields(test.flags), &environment{ctx: ctx, in: strings.NewReader(""), out: &out, err: &said})
		if n := strings.Count(said.String(), want); n != test.times {
			t.Errorf("%s: %d warnings, expected %d, in\n%s", test.flags, n, test.times, said.String())
		}
	}
}
