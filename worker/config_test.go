package worker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
)

func TestConfigValidateNamesEveryBadField(t *testing.T) {
	_, err := New(Config{
		KeyPrefix: "a b", HeartbeatInterval: time.Millisecond, StopTimeout: -1, InterruptGrace: -1, MetadataInterval: -1,
		Thresholds: map[string]Threshold{"x.y": {Kind: "relative"}}, Collectors: []Collection{{}},
		MaxResultBytes: -1, Cells: -1,
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{"redis_url", "cells", "key_prefix", "node.node_id", "heartbeat_interval", "stop_timeout", "interrupt_grace", "max_result_bytes", "metadata_interval", "change_thresholds.x.y", "collectors[0]"} {
		if !strings.Contains(err.Error(), field+" ") {
			t.Errorf("%s is not named in:\n%v", field, err)
		}
	}
}

func TestConfigDefaults(t *testing.T) {
	c := Config{RedisURL: "redis://127.0.0.1", Node: freeslot.Node{ID: "n", MaxConcurrency: 1}}.WithDefaults()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if c.KeyPrefix != "scheduler" || c.HeartbeatInterval != 3*time.Second || c.MetadataInterval != time.Minute || len(c.Thresholds) != 2 || len(c.Collectors) != 2 || c.MaxResultBytes != 1<<20 || c.Logger == nil || c.TracerProvider == nil {
		t.Fatalf(`%+v; want c.KeyPrefix == "scheduler", c.HeartbeatInterval == 3*time.Second, c.MetadataInterval == time.Minute, len(c.Thresholds) == 2, len(c.Collectors) == 2, c.MaxResultBytes == 1<<20, c.Logger != nil, c.TracerProvider != nil`, c)
	}
}

// TestUnknownThreshold: it is refused at the start, when all collectors are known.
func TestUnknownThreshold(t *testing.T) {
	t.Parallel()
	start := func(name string) error {
		thresholds := map[string]Threshold{"memory.usage": {Kind: Absolute, Value: 0.2}, name: {Kind: AnyChange}}
		w, err := New(Config{
			RedisURL: "redis://127.0.0.1:1", Node: freeslot.Node{ID: "n", MaxConcurrency: 1}, Thresholds: thresholds, Collectors: []Collection{},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Collect(&gauge{name: "x"})
		w.Collect(RedisCollector(w))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return w.Start(ctx)
	}
	const want = "invalid_argument: change_thresholds.y.level is not a figure of a collector that runs here, expected one of redis.latency_ms, x.*"
	if err := start("y.level"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	for _, name := range []string{"x.level", "redis.latency_ms"} {
		if err := start(name); err == nil || strings.Contains(err.Error(), "change_thresholds") {
			t.Errorf("%s: %v, expected that Redis does not answer", name, err)
		}
	}
}

// TestGatewayConfig: each mistake is named with its field.
func TestGatewayConfig(t *testing.T) {
	t.Parallel()
	secure := GatewayTLS{CAFile: "ca.pem"}
	for want, change := range map[string]func(*Config){
		"": func(*Config) {},
		"gateway has an entry that is no address, expected wss://host[:port], several with commas between": func(c *Config) { c.Gateway = "wss://a,http://b" },
		"gateway has more than a host and a port, expected wss://a:1":                                      func(c *Config) { c.Gateway = "wss://user:secret@a:1" },
		"gateway has more than a host and a port, expected wss://a":                                        func(c *Config) { c.Gateway = "wss://a/v1/node" },
		"gateway is set beside redis_url, expected one of them":                                            func(c *Config) { c.RedisURL = "redis://a" },
		"token_file is empty, expected the file with the node's token":                                     func(c *Config) { c.Token = "" },
		"token_file is set beside token, expected one of them":                                             func(c *Config) { c.TokenFile = "f" },
		"token has no token, expected one line of letters, digits and punctuation":                         func(c *Config) { c.Token = "a b" },
		"gateway_tls is set, and gateway has an address that does not begin with wss://, expected none":    func(c *Config) { c.Gateway, c.GatewayTLS = "wss://a,ws://b", secure },
		"gateway_tls.cert_file and gateway_tls.key_file go together, expected both or none":                func(c *Config) { c.GatewayTLS.CertFile = "cert.pem" },
		"token is set without gateway, expected both or none":                                              func(c *Config) { c.Gateway, c.RedisURL = "", "redis://a" },
		"token_file is set without gateway, expected both or none":                                         func(c *Config) { c.Gateway, c.Token, c.TokenFile, c.RedisURL = "", "", "f", "redis://a" },
		"gateway_tls is set without gateway, expected both or none":                                        func(c *Config) { c.Gateway, c.Token, c.GatewayTLS, c.RedisURL = "", "", secure, "redis://a" },
	} {
		c := Config{Gateway: "wss://a:443, wss://b", Token: "secret", Node: freeslot.Node{ID: "n", MaxConcurrency: 1}}
		change(&c)
		_, err := New(c)
		got := ""
		if err != nil {
			got = strings.TrimPrefix(err.Error(), "invalid_argument: ")
		}
		if got != want || want != "" && freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestGatewayRightsText: the rights as one line for people.
func TestGatewayRightsText(t *testing.T) {
	r := GatewayRights{
		Token: "gpu-7", Nodes: []string{"gpu-7", "gpu-8*"}, Services: []string{"tts"}, Pools: []string{"eu"}, Capabilities: []string{"de"},
		Labels: map[string][]string{"zone": {"eu-1", "eu-2"}}, Slots: 16, Expires: "2027-01-01T00:00:00Z", InUse: true,
	}
	const want = "token gpu-7 may be node gpu-7, gpu-8*; services tts; pools eu; capabilities de; label zone eu-1, eu-2; at most 16 slots; " +
		"until 2027-01-01T00:00:00Z; but the node lives under another token or without a gateway"
	if got := r.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
