package nodeagent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/reference"
)

const exampleFile = "../../deploy/nodeagent.example.yaml"

func load(t *testing.T, yaml string, environ ...string) (Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nodeagent.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(config.Options{File: file, Environ: append([]string{}, environ...)})
}

func TestExampleFile(t *testing.T) {
	t.Parallel()
	cfg, err := Load(config.Options{File: exampleFile, Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Services) != 4 || cfg.Node.ID != "node-1" || cfg.Node.Languages.TTS[0] != "de" {
		t.Fatalf(`%+v; want len(cfg.Services) == 4, cfg.Node.ID == "node-1", cfg.Node.Languages.TTS[0] == "de"`, cfg)
	}
	// Keys that the file leaves out or shows as defaults have their defaults.
	want := DefaultConfig()
	want.Node, want.Services = cfg.Node, cfg.Services
	if diff := cmp.Diff(want, cfg); diff != "" {
		t.Fatal(diff)
	}
	text, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range reference.Keys(want) {
		name := k.Path[strings.LastIndexByte(k.Path, '.')+1:]
		switch name {
		case "features", "dir", "pass_env": // explained in the manual only
		default:
			if !strings.Contains(string(text), name+":") {
				t.Errorf("the example does not show %s", k.Path)
			}
		}
	}
}

func TestServiceDefaults(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, "services: [{name: a, http: {url: 'http://127.0.0.1:1'}}, {name: b, command: {argv: [cat]}}]", "FREESLOT_NODE__ID=n1")
	if err != nil {
		t.Fatal(err)
	}
	want := []Service{
		{Name: "a", HTTP: &HTTP{URL: "http://127.0.0.1:1", Timeout: time.Minute, Output: OutputAuto}},
		{Name: "b", Command: &Command{
			Argv: []string{"cat"}, Timeout: time.Minute, KillGrace: 5 * time.Second, PassEnv: defaultPassEnv, Input: InputJSON, Output: OutputAuto,
		}},
	}
	if diff := cmp.Diff(want, cfg.Services); diff != "" {
		t.Fatal(diff)
	}
	if cfg.Node.ID != "n1" || cfg.Node.MaxConcurrency != 1 {
		t.Fatalf(`%+v; want cfg.Node.ID == "n1", cfg.Node.MaxConcurrency == 1`, cfg.Node)
	}
	if cfg, err := load(t, "services: [{name: b, command: {argv: [cat], pass_env: []}}]"); err != nil || len(cfg.Services[0].Command.PassEnv) != 0 {
		t.Fatalf("an empty pass_env passes %v: %v", cfg.Services[0].Command.PassEnv, err)
	}
}

func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	const service = "services: [{name: a, command: {argv: [cat]}}]\n"
	for name, test := range map[string]struct{ yaml, want string }{
		"no services":      {"", "services is empty, expected at least one service"},
		"neither":          {"services: [{name: a}]", "services[0] does not say how to run it, expected http or command"},
		"both":             {"services: [{name: a, http: {url: 'http://x'}, command: {argv: [cat]}}]", "services[0].command is set beside http, expected one of them"},
		"no program":       {"services: [{name: a, command: {argv: [no-such-program]}}]", `services[0].command.argv begins with "no-such-program", which cannot be run: executable file not found in $PATH`},
		"no file":          {"services: [{name: a, command: {argv: [/nowhere/x]}}]", `services[0].command.argv begins with "/nowhere/x", which cannot be run: no such file or directory`},
		"database":         {service + "redis: {url: 'redis://user:hidden@host/notadb'}", `redis.url is not a Redis URL: invalid database number: "notadb"; expected redis://[user:password@]host:port[/db], or rediss:// for TLS`},
		"twice":            {"services: [{name: a, command: {argv: [cat]}}, {name: a, command: {argv: [cat]}}]", `services[1].name is "a" like that of services[0], expected each name once`},
		"service name":     {"services: [{name: 'a b', command: {argv: [cat]}}]", "services[0].name has ' ' at position 1, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit"},
		"url":              {"services: [{name: a, http: {url: 'user:hidden@host'}}]", "services[0].http.url is not a URL of a service, expected one such as http://127.0.0.1:8000/run"},
		"header":           {"services: [{name: a, http: {url: 'http://x', headers: {'a b': hidden}}}]", `services[0].http.headers has "a b", which cannot be sent as a header`},
		"http timeout":     {"services: [{name: a, http: {url: 'http://x', timeout: -1s}}]", "services[0].http.timeout is -1s, expected 1ms to 24h"},
		"argv":             {"services: [{name: a, command: {argv: []}}]", "services[0].command.argv is empty, expected a program and its arguments"},
		"output":           {"services: [{name: a, command: {argv: [cat], output: wav}}]", `services[0].command.output is "wav", expected auto, json, text or base64`},
		"input":            {"services: [{name: a, command: {argv: [cat], input: xml}}]", `services[0].command.input is "xml", expected json or text`},
		"kill grace":       {"services: [{name: a, command: {argv: [cat], kill_grace: 1h}}]", "services[0].command.kill_grace is 1h, expected 1ms to 1m"},
		"dir":              {"services: [{name: a, command: {argv: [cat], dir: tmp}}]", `services[0].command.dir is "tmp", expected an absolute path`},
		"pass_env":         {"services: [{name: a, command: {argv: [cat], pass_env: ['A=B']}}]", `services[0].command.pass_env[0] is "A=B", expected the name of a variable`},
		"env":              {"services: [{name: a, command: {argv: [cat], env: {'A=B': hidden}}}]", `services[0].command.env has "A=B", which cannot be a variable`},
		"unknown":          {"services: [{name: a, comand: {argv: [cat]}, http: {url: 'http://x'}}]", "services[0].comand is not a key of the configuration, expected name, version, endpoint, announce, http, command or check"},
		"node id":          {service + "node: {id: 'a:b'}", "node.id has ':' at position 1, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit"},
		"max concurrency":  {service + "node: {max_concurrency: 0}", "node.max_concurrency is 0, expected 1 to 65536"},
		"language":         {service + "node: {languages: {tts: [de, german language]}}", `node.languages.tts is "german language", expected a BCP 47 language tag such as de or zh-Hant-TW`},
		"pool":             {service + "node: {pools: ['']}", "node.pools is 0 characters long, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit"},
		"redis":            {service + "redis: {url: 'http://user:hidden@host'}", "redis.url is not a Redis URL, expected redis://[user:password@]host:port[/db], or rediss:// for TLS"},
		"key prefix":       {service + "redis: {key_prefix: '{x}'}", "redis.key_prefix has '{' at position 0, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit"},
		"cells":            {service + "redis: {cells: 0}", "redis.cells is 0, expected 1 to 64"},
		"urls beside url":  {service + "redis: {url: 'redis://a', urls: ['redis://b'], cells: 2}", "redis.url is set beside redis.urls, expected one of them"},
		"heartbeat limit":  {service + "heartbeat_interval: 2s\nheartbeat_limit: 1s", "heartbeat_limit is 1s, expected 2s to 20m: no less than heartbeat_interval"},
		"no range":         {service + "heartbeat_interval: 25m\nheartbeat_limit: 5s", "heartbeat_interval is 25m, expected 100ms to 10m"},
		"heartbeats":       {service + "heartbeat_interval: 1ms", "heartbeat_interval is 1ms, expected 100ms to 10m"},
		"stop timeout":     {service + "stop_timeout: 0s", "stop_timeout is 0s, expected 1ms to 24h"},
		"max result bytes": {service + "max_result_bytes: 0", "max_result_bytes is 0, expected 1 to 16777216"},
		"metrics port":     {service + "metrics_listen: 'localhost:99999'", `metrics_listen has the port "99999", expected 0 to 65535 (0 takes any free one)`},
		"metrics":          {service + "metrics_listen: '7490'", `metrics_listen is "7490", expected host:port such as 127.0.0.1:7490`},
		"log level":        {service + "log: {level: trace}", `log.level is "trace", expected debug, info, warn or error`},
		"log format":       {service + "log: {format: xml}", `log.format is "xml", expected json or console`},
		"endpoint":         {service + "tracing: {otlp_endpoint: 'localhost:4318'}", `tracing.otlp_endpoint is "localhost:4318", expected a URL such as http://127.0.0.1:4318`},
		"ratio":            {service + "tracing: {sample_ratio: 2}", "tracing.sample_ratio is 2, expected 0 to 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, test.yaml, "FREESLOT_NODE__ID=n1")
			if name == "node id" {
				_, err = load(t, test.yaml)
			}
			if err == nil {
				t.Fatal("accepted")
			}
			got, _, _ := strings.Cut(err.Error(), " (from ")
			if got != test.want || strings.Contains(err.Error(), "\n") {
				t.Errorf("\n got %s\nwant %s", err, test.want)
			}
			if strings.Contains(err.Error(), "hidden") {
				t.Error("the message gives a secret away")
			}
		})
	}
}

// TestAllMistakesAtOnce: all mistakes are reported at once.
func TestAllMistakesAtOnce(t *testing.T) {
	t.Parallel()
	_, err := load(t, "services: [{name: a, http: {url: 'ftp://y'}, command: {argv: [no-such-program], input: xml}}]", "FREESLOT_NODE__ID=n1")
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"services[0].command is set beside http", "services[0].http.url is not a URL of a service",
		"services[0].command.argv begins with", "services[0].command.input is",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing begins with %q:\n%v", want, err)
		}
	}
}

// The services may be in a file that cannot be read, so they are not reported as missing.
func TestUnreadableFile(t *testing.T) {
	t.Parallel()
	_, err := Load(config.Options{File: "/nowhere.yaml", Environ: []string{"FREESLOT_NODE__ID=n1"}})
	if err == nil || err.Error() != "cannot read the configuration file /nowhere.yaml: no such file or directory" {
		t.Error(err)
	}
}

// A program with a folder in its name is looked up in the folder where it runs.
func TestProgramIsRelativeToDir(t *testing.T) {
	t.Parallel()
	if _, err := load(t, "services: [{name: a, command: {argv: [./sh], dir: /bin}}]", "FREESLOT_NODE__ID=n1"); err != nil {
		t.Error(err)
	}
	if _, err := load(t, "services: [{name: a, command: {argv: [./config_test.go], dir: /bin}}]", "FREESLOT_NODE__ID=n1"); err == nil {
		t.Error("accepted what is elsewhere")
	}
}
