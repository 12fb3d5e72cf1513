package nodeagent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/worker"
)

// tokenFile is a file with this text.
func tokenFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestGatewayExampleFile(t *testing.T) {
	t.Parallel()
	file := tokenFile(t, "fsn_x\n")
	cfg, err := Load(config.Options{File: "../../deploy/nodeagent-gateway.example.yaml", Environ: []string{"FREESLOT_TOKEN_FILE=/nowhere"}, Flags: []config.Flag{{Path: "token_file", Value: file}}})
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultConfig()
	want.Node, want.Services, want.Gateway, want.TokenFile = cfg.Node, cfg.Services, cfg.Gateway, file
	want.Redis.URL = ""
	if diff := cmp.Diff(want, cfg); diff != "" {
		t.Error(diff)
	}
}

// TestGatewayInPlaceOfRedis: the worker gets the gateway and nothing of Redis.
func TestGatewayInPlaceOfRedis(t *testing.T) {
	t.Parallel()
	file := tokenFile(t, "fsn_x\n")
	cfg, err := load(t, "services: [{name: a, command: {argv: [cat]}}]\nredis: {cells: 4}\ngateway: 'wss://a, wss://b:1/'\ngateway_tls: {server_name: s}\ntoken_file: "+file, "FREESLOT_NODE__ID=n1")
	if err != nil {
		t.Fatal(err)
	}
	want := worker.Config{Gateway: "wss://a, wss://b:1/", TokenFile: file, GatewayTLS: worker.GatewayTLS{ServerName: "s"}, Node: cfg.profile()}
	if diff := cmp.Diff(want, cfg.worker()); diff != "" {
		t.Error(diff)
	}
}

func TestGatewayRefused(t *testing.T) {
	t.Parallel()
	const address = " is not the address of a gateway, expected one such as wss://scheduler.example.com:7480, or several with commas between"
	token := "\ntoken_file: " + tokenFile(t, "fsn_x")
	cert := pemFile(t, false)
	empty, two := tokenFile(t, "\n"), tokenFile(t, "fsn_hidden fsn_y\n")
	for yaml, want := range map[string][]string{
		"token_file: /nowhere":                                             {"token_file is set without gateway, expected both"},
		"gateway_insecure: true":                                           {"gateway_insecure is true without gateway, expected both"},
		"gateway: wss://a\ngateway_insecure: true" + token:                 {"gateway_insecure is true, and gateway has no address that begins with ws://, expected one"},
		"gateway_tls: {server_name: a}":                                    {"gateway_tls is set without gateway, expected both"},
		"gateway: wss://a":                                                 {"token_file is missing beside gateway, expected a file with the node's token"},
		"gateway: wss://a\ntoken_file: /nowhere":                           {`token_file is "/nowhere", which cannot be read: no such file or directory`},
		"gateway: wss://a\ntoken_file: " + empty:                           {"token_file names " + empty + ", which is empty"},
		"gateway: wss://a\ntoken_file: " + two:                             {"token_file names " + two + ", which has more than a token"},
		"gateway: https://a" + token:                                       {"gateway" + address},
		"gateway: wss://user:hidden@a" + token:                             {"gateway" + address},
		"gateway: wss://a/v1/node" + token:                                 {"gateway" + address},
		"gateway: wss://a?token=hidden" + token:                            {"gateway" + address},
		"gateway: 'wss://a,'" + token:                                      {"gateway" + address},
		"gateway: 'wss://:7480'" + token:                                   {"gateway" + address},
		"gateway: 'wss://a:b'" + token:                                     {"gateway" + address},
		"gateway: scheduler.example.com" + token:                           {"gateway" + address},
		"gateway: wss://a\nredis: {url: b}" + token:                        {"redis.url is set beside gateway, expected one of them"},
		"gateway: wss://a\nredis: {urls: ['redis://b']}" + token:           {"redis.urls is set beside gateway, expected one of them"},
		"gateway: 'wss://a,ws://a'\ngateway_tls: {server_name: b}" + token: {"gateway_tls is set, and gateway has an address that does not begin with wss://, expected none"},
		"gateway: wss://a\ngateway_tls: {cert_file: " + cert + "}" + token: {"gateway_tls.key_file is missing beside cert_file, expected both or neither"},
		"gateway: wss://a\ngateway_tls: {ca_file: /nowhere}" + token:       {`gateway_tls.ca_file is "/nowhere", which cannot be read: no such file or directory`},
		"gateway: wss://a\nservices: [{name: a, endpoint: 'http://a:1', announce: true, command: {argv: [cat]}}]\n" + token: {"services[0].announce is set beside gateway, expected one of them: the registry is in Redis"},
	} {
		if !strings.Contains(yaml, "services:") {
			yaml += "\nservices: [{name: a, command: {argv: [cat]}}]"
		}
		_, err := load(t, yaml, "FREESLOT_NODE__ID=n1")
		if err == nil {
			t.Errorf("%s is accepted", yaml)
			continue
		}
		var got []string
		for line := range strings.SplitSeq(err.Error(), "\n") {
			line, _, _ = strings.Cut(line, " (from ")
			got = append(got, line)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", yaml, diff)
		}
		if strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: the message gives a secret away: %v", yaml, err)
		}
	}
}
