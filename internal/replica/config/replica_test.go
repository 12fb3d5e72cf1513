package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/reference"
)

var fromFile = regexp.MustCompile(` \(from FILE:\d+\)$`)

func loadYAML(t *testing.T, content string) (config.Replica, []string) {
	t.Helper()
	file := writeFile(t, content)
	cfg, err := config.LoadReplica(config.Options{File: file, Environ: []string{}})
	if err == nil {
		return cfg, nil
	}
	got := lines(t, err, file)
	for i := range got {
		got[i] = fromFile.ReplaceAllString(got[i], "")
	}
	return cfg, got
}

func TestReplicaDefaults(t *testing.T) {
	t.Parallel()
	cfg, problems := loadYAML(t, "")
	if problems != nil {
		t.Fatal(problems)
	}
	if err := freeslot.ValidateName("replica_id", cfg.ReplicaID); err != nil {
		t.Error(err)
	}
	if again := config.DefaultReplica(); again.ReplicaID == cfg.ReplicaID {
		t.Error("two replicas of one host have the same id:", cfg.ReplicaID)
	}
}

func TestReplicaRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		yaml string
		want string
	}{
		"public without tokens":   {"listen: 0.0.0.0:7480", `listen is "0.0.0.0:7480", reachable from other machines, which needs tokens: set tokens or tokens_file, or listen on 127.0.0.1`},
		"any without tokens":      {"listen: ':7480'", `listen is ":7480", reachable from other machines, which needs tokens: set tokens or tokens_file, or listen on 127.0.0.1`},
		"name without tokens":     {"listen: example.com:7480", `listen is "example.com:7480", reachable from other machines, which needs tokens: set tokens or tokens_file, or listen on 127.0.0.1`},
		"no port":                 {"listen: localhost", `listen is "localhost", expected host:port such as 127.0.0.1:7480 or :7480`},
		"bad port":                {"listen: 'localhost:http'", `listen has the port "http", expected 0 to 65535 (0 takes any free one)`},
		"replica id":              {"replica_id: 'a:b'", `replica_id has ':' at position 1, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit`},
		"redis url":               {"redis: {url: 'http://user:hidden@host'}", `redis.url is not a Redis URL, expected redis://[user:password@]host:port[/db], or rediss:// for TLS`},
		"key prefix":              {"redis: {key_prefix: '{x}'}", `redis.key_prefix has '{' at position 0, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit`},
		"connections":             {"redis: {connections: 3}", `redis.connections is 3, expected 1, 2, 4 or 8`},
		"cells":                   {"redis: {cells: 65}", `redis.cells is 65, expected 1 to 64`},
		"redis database":          {"redis: {url: 'redis://user:hidden@host/notadb'}", `redis.url is not a Redis URL: invalid database number: "notadb"; expected redis://[user:password@]host:port[/db], or rediss:// for TLS`},
		"redis timeout":           {"redis: {urls: ['redis://a', 'redis://b?dial_timeout=x'], cells: 2}", `redis.urls[1] is not a Redis URL: invalid dial timeout: "x"; expected redis://[user:password@]host:port[/db], or rediss:// for TLS`},
		"redis IPv6":              {"redis: {url: 'redis://::1:7105'}", `redis.url is not a Redis URL: an IPv6 address needs brackets: redis://[::1]:7105; expected redis://[user:password@]host:port[/db], or rediss:// for TLS`},
		"redis query":             {"redis: {url: 'redis://h:1/0?foo=bar'}", `redis.url is not a Redis URL: unknown query key foo, there are only addr, client_cache, client_name, db, dial_timeout, master_set, max_retries, protocol, skip_verify, write_timeout; expected redis://[user:password@]host:port[/db], or rediss:// for TLS`},
		"redis password":          {"redis: {url: 'redis://:12/hidden@host'}", `redis.url is not a Redis URL: it cannot be parsed; expected redis://[user:password@]host:port[/db], or rediss:// for TLS`},
		"urls beside url":         {"redis: {url: 'redis://a', urls: ['redis://b'], cells: 2}", `redis.url is set beside redis.urls, expected one of them`},
		"one of the urls":         {"redis: {urls: ['redis://a', 'http://user:hidden@b'], cells: 2}", `redis.urls[1] is not a Redis URL, expected redis://[user:password@]host:port[/db], or rediss:// for TLS`},
		"a server twice":          {"redis: {urls: ['redis://a', 'redis://a'], cells: 2}", `redis.urls[1] is the same as redis.urls[0], expected each server once`},
		"more urls than cells":    {"redis: {urls: ['redis://a', 'redis://b', 'redis://c'], cells: 2}", `redis.urls has 3 entries, expected at most redis.cells (2): a server without a cell would have nothing to do`},
		"urls beside the old url": {"redis: {urls: ['redis://a', 'redis://b'], cells: 2}\nlockless_cache: {redis_url: 'redis://b'}", `lockless_cache.redis_url is set beside redis.urls, expected one of them`},
		"batch size":              {"cache: {batch_refresh_size: 0}", `cache.batch_refresh_size is 0, expected 1 to 1000`},
		"batch interval":          {"cache: {batch_refresh_interval: 1h}", `cache.batch_refresh_interval is 1h, expected 10ms to 1m`},
		"version check":           {"cache: {version_check_timeout: 0s}", `cache.version_check_timeout is 0s, expected 1ms to 10s`},
		"heartbeats":              {"heartbeat_limit: 5s", `heartbeat_limit is 5s, expected at least twice heartbeat_interval (3s): one late heartbeat would cost a healthy node its jobs`},
		"retention":               {"retention: -1s", `retention is -1s, expected 1s to 720h`},
		"retention bytes":         {"retention_bytes: 1000000", `retention_bytes is 1000000, expected 0 for no limit, or 1048576 (1 MiB for each of the 1 cells) to 70368744177664`},
		"retention bytes a cell":  {"{retention_bytes: 4000000, redis: {cells: 4}}", `retention_bytes is 4000000, expected 0 for no limit, or 4194304 (1 MiB for each of the 4 cells) to 70368744177664`},
		"negative bytes":          {"retention_bytes: -1", `retention_bytes is -1, expected 0 for no limit, or 1048576 (1 MiB for each of the 1 cells) to 70368744177664`},
		"idempotency retention":   {"idempotency_retention: 1ms", `idempotency_retention is 1ms, expected 1s to 720h`},
		"move grace":              {"move_grace: 1ms", `move_grace is 1ms, expected 1s to 1h, or 0s to begin no moves`},
		"waiting limit":           {"waiting_limit: 0", `waiting_limit is 0, expected 1 to 10000000`},
		"weight of none":          {"tenants: {acme: {weight: 0}}", `tenants.acme.weight is 0, expected 1 to 1000`},
		"weight of all":           {"tenants: {acme: {weight: 1001}}", `tenants.acme.weight is 1001, expected 1 to 1000`},
		"weight in words":         {"tenants: {acme: {weight: high}}", `tenants.acme.weight is "high", expected a whole number`},
		"running less than cells": {"redis: {cells: 4}\ntenants: {acme: {max_running: 3}}", `tenants.acme.max_running is 3, expected 0 for no limit, or at least 4, the number of cells`},
		"waiting below none":      {"tenants: {acme: {max_waiting: -1}}", `tenants.acme.max_waiting is -1, expected 0 to 10000000`},
		"tenant name":             {"tenants: {'a b': {weight: 1}}", `tenants.a b has ' ' at position 1, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit`},
		"tenant key":              {"tenants: {acme: {wait: 1}}", `tenants.acme.wait is not a key of the configuration, expected weight, max_running, max_waiting, submit_rate, submit_burst, max_priority, max_schedules, max_kinds, max_schedule_bytes or admission`},
		"admission":               {"tenants: {acme: {admission: {chain: vip, mode: on}}}", `tenants.acme.admission.mode is "on", expected observe or enforce`},
		"admission's subject":     {"tenants: {acme: {admission: {chain: vip, subject: user}}}", `tenants.acme.admission.subject is "user", expected tenant, affinity_key or label:NAME`},
		"admission's label":       {"tenant_defaults: {admission: {chain: vip, subject: 'label:'}}", `tenant_defaults.admission.subject is 0 characters long, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit`},
		"admission of nothing":    {"tenants: {acme: {admission: {unknown: refuse}}}", `tenants.acme.admission.unknown is "refuse" without a chain, expected both or neither`},
		"admission's chain":       {"tenants: {acme: {admission: {chain: a_b}}}", `tenants.acme.admission.chain is "a_b", expected the name of a chain, which has no _`},
		"tenant without a name":   {"tenants: [{weight: 1}]", `tenants is a list, expected names with values such as {a: 1, b: 2}`},
		"drain":                   {"drain_timeout: 0s", `drain_timeout is 0s, expected 100ms to 1h`},
		"payload":                 {"limits: {max_payload_bytes: 0}", `limits.max_payload_bytes is 0, expected 1 to 16777216`},
		"batch over outstanding":  {"limits: {max_outstanding_per_session: 10}", `limits.max_batch is 1000, expected at most limits.max_outstanding_per_session (10): no session could ever submit a full batch`},
		"queue under batch":       {"limits: {session_queue: 100}", `limits.session_queue is 100, expected at least 3000: 3 messages for each job of a batch of limits.max_batch (1000)`},
		"queue under payload":     {"limits: {session_queue_bytes: 1024}", `limits.session_queue_bytes is 1024, expected at least twice limits.max_payload_bytes (262144): one large result would cut its client off`},
		"token missing":           {"tokens: [{tenant: a}]", `tokens[0].token is missing, expected token or token_file`},
		"token and file":          {"tokens: [{token: hidden, token_file: " + empty + ", tenant: a}]", `tokens[0].token_file is set beside token, expected one of them`},
		"token file missing":      {"tokens: [{token_file: /nowhere/token, tenant: a}]", `tokens[0].token_file is "/nowhere/token", which cannot be read: no such file or directory`},
		"token file is a folder":  {"tokens: [{token_file: " + dir + ", tenant: a}]", `tokens[0].token_file is "` + dir + `", which cannot be read: is a directory`},
		"token file empty":        {"tokens: [{token_file: " + empty + ", tenant: a}]", `tokens[0].token_file is "` + empty + `", which is empty, expected a file that holds the token`},
		"token with space":        {"tokens: [{token: 'hid den', tenant: a}]", `tokens[0].token cannot be sent in a header, expected at most 512 letters, digits and punctuation, without spaces`},
		"token twice":             {"tokens: [{token: hidden, tenant: a}, {token: hidden, tenant: b}]", `tokens[1].token is also the token of tokens[0], expected each token once`},
		"tenant missing":          {"tokens: [{token: hidden}]", `tokens[0].tenant is 0 characters long, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit`},
		"oidc without issuer":     {"auth: {oidc: {audience: x}}", `auth.oidc.issuer is missing, expected the URL of the provider that signs tokens`},
		"oidc plain":              {"auth: {oidc: {issuer: 'http://id.example.com', audience: x, roles: {a: client}}}", `auth.oidc.issuer is "http://id.example.com", expected a URL such as https://id.example.com`},
		"oidc audience":           {"auth: {oidc: {issuer: 'https://id.example.com', roles: {a: client}}}", `auth.oidc.audience is missing, expected what the issuer's tokens for this system have in aud`},
		"oidc keys":               {"auth: {oidc: {issuer: 'https://id.example.com', audience: x, jwks_file: /none, roles: {a: client}}}", `auth.oidc.jwks_file is "/none", which cannot be read: no such file or directory`},
		"oidc algorithms":         {"auth: {oidc: {issuer: 'https://id.example.com', audience: x, algorithms: [], roles: {a: client}}}", `auth.oidc.algorithms is empty, expected signatures such as RS256`},
		"oidc algorithm":          {"auth: {oidc: {issuer: 'https://id.example.com', audience: x, algorithms: [HS256], roles: {a: client}}}", `auth.oidc.algorithms[0] is "HS256", expected RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512 or EdDSA`},
		"oidc skew":               {"auth: {oidc: {issuer: 'https://id.example.com', audience: x, clock_skew: 1h, roles: {a: client}}}", `auth.oidc.clock_skew is 1h, expected 0s to 5m`},
		"oidc claim":              {"auth: {oidc: {issuer: 'https://id.example.com', audience: x, claims: {tenant: ''}, roles: {a: client}}}", `auth.oidc.claims.tenant is empty, expected the name of a claim`},
		"oidc client":             {"auth: {oidc: {issuer: 'https://id.example.com', audience: x, roles: {a: client}, redirect_url: 'https://a'}}", `auth.oidc.client_id is missing, expected the name of this system at the provider`},
		"oidc redirect":           {"auth: {oidc: {issuer: 'https://id.example.com', audience: x, roles: {a: client}, client_id: c, redirect_url: 'http://fleet.example.com/console/oidc/callback'}}", `auth.oidc.redirect_url is "http://fleet.example.com/console/oidc/callback", expected a URL such as https://fleet.example.com/console/oidc/callback`},
		"oidc secret":             {"auth: {oidc: {issuer: 'https://id.example.com', audience: x, roles: {a: client}, client_id: c, client_secret_file: /none, redirect_url: 'https://a/console/oidc/callback'}}", `auth.oidc.client_secret_file is "/none", which cannot be read: no such file or directory`},
		"console prometheus":      {"console: {prometheus_url: 'ftp://a'}", `console.prometheus_url is no address that begins with http:// or https://`},
		"console prometheus user": {"console: {prometheus_url: 'https://a:b@c'}", `console.prometheus_url has a user, expected a bearer token in console.prometheus_token_file`},
		"console query":           {"console: {prometheus_url: 'https://a/?x=y'}", `console.prometheus_url has a query or a fragment, expected an address such as http://prometheus:9090`},
		"console token":           {"console: {prometheus_url: 'https://prometheus', prometheus_token_file: /none}", `console.prometheus_token_file is "/none", which cannot be read: no such file or directory`},
		"console token sent":      {"console: {prometheus_url: 'http://prometheus', prometheus_token_file: replica_test.go}", `console.prometheus_url would carry the token of console.prometheus_token_file in the clear, expected https`},
		"console alone":           {"console: {prometheus_labels: {job: a}}", `console.prometheus_url is missing, expected the address of a Prometheus such as http://prometheus:9090`},
		"console label":           {"console: {prometheus_url: 'http://a', prometheus_labels: {a-b: c}}", `console.prometheus_labels has "a-b", expected names of labels such as job`},
		"console link":            {"console: {links: [{name: '', url: 'https://a/{trace}'}]}", `console.links[0].name is "", expected 1 to 40 characters`},
		"console link part":       {"console: {links: [{name: a, url: 'https://a/{token}'}]}", `console.links[0].url has {token}, expected {id}, {trace}, {node}, {tenant}, {service}, {attempt}`},
		"console link host":       {"console: {links: [{name: a, url: 'https://{node}/x'}]}", `console.links[0].url is "https://{node}/x", expected an address such as https://tempo.example.com/trace/{trace}`},
		"console link scheme":     {"console: {links: [{name: a, url: 'javascript:alert({id})'}]}", `console.links[0].url is "javascript:alert({id})", expected an address such as https://tempo.example.com/trace/{trace}`},
		"console link brace":      {"console: {links: [{name: a, url: 'https://a/{id'}]}", `console.links[0].url is "https://a/{id", expected an address such as https://tempo.example.com/trace/{trace}`},
		"console viewers":         {"console: {max_viewers: 0}", `console.max_viewers is 0, expected 1 to 10000`},
		"oidc roles":              {"auth: {oidc: {issuer: 'https://id.example.com', audience: x}}", `auth.oidc.roles is empty, expected roles by a value of the claim role`},
		"oidc role":               {"auth: {oidc: {issuer: 'https://id.example.com', audience: x, roles: {a: king}}}", `auth.oidc.roles.a is "king", expected viewer, client, tenant-operator, operator or admin`},
		"tokens file":             {"tokens_file: /none", `tokens_file is "/none", which cannot be read: no such file or directory`},
		"role":                    {"tokens: [{token: hidden, tenant: a, role: king}]", `tokens[0].role is "king", expected viewer, client, tenant-operator, operator or admin`},
		"origin":                  {"allowed_origins: ['https://a.example.com/']", `allowed_origins[0] is "https://a.example.com/", expected an origin such as https://app.example.com, without a path`},
		"origin without a scheme": {"allowed_origins: [a.example.com]", `allowed_origins[0] is "a.example.com", expected an origin such as https://app.example.com, without a path`},
		"pool id":                 {"pools: [{services: [tts]}]", `pools[0].id is 0 characters long, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit`},
		"pool twice":              {"pools: [{id: a, services: [x]}, {id: a, services: [y]}]", `pools[1].id is "a" like that of pools[0], expected each id once`},
		"pool language":           {"pools: [{id: a, source_languages: ['d e']}]", `pools[0].source_languages[0] is "d e", expected a BCP 47 language tag such as de or zh-Hant-TW of at most 64 characters`},
		"pool service":            {"pools: [{id: a, services: ['']}]", `pools[0].services[0] is 0 characters long, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit`},
		"log level":               {"log: {level: trace}", `log.level is "trace", expected debug, info, warn or error`},
		"log format":              {"log: {format: text}", `log.format is "text", expected json or console`},
		"prefix of version 1":     {"registry: {v1: {enabled: true, key_prefix: '{x}'}}", `registry.v1.key_prefix is "{x}", expected no braces and no control characters`},
		"writing to version 1":    {"registry: {v1: {write_back: true}}", `registry.v1.write_back is on, and registry.v1.enabled is off`},
		"endpoint":                {"tracing: {otlp_endpoint: 'localhost:4318'}", `tracing.otlp_endpoint is "localhost:4318", expected a URL such as http://127.0.0.1:4318`},
		"list server's url":       {"lists: {servers: {big: {url: 'example.com:6379'}}}", `lists.servers.big.url is not a Redis URL, expected redis://[user:password@]host:port[/db], or rediss:// for TLS`},
		"list server's database":  {"lists: {servers: {big: {url: 'redis://u:hidden@a:1/x'}}}", `lists.servers.big.url is not a Redis URL: invalid database number: "x"; expected redis://[user:password@]host:port[/db], or rediss:// for TLS`},
		"list server without url": {"lists: {servers: {big: {max_bytes: 1}}}", `lists.servers.big.url is missing, expected redis://[user:password@]host:port[/db], or rediss:// for TLS`},
		"list server's bytes":     {"lists: {servers: {big: {url: 'redis://a:1', max_bytes: -1}}}", `lists.servers.big.max_bytes is -1, expected 0 for as much as leaves 30 % of maxmemory, or more`},
		"list server's name":      {"lists: {servers: {'a b': {url: 'redis://a:1'}}}", `lists.servers.a b has ' ' at position 1, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit`},
		"source's kind":           {"lists: {sources: {crm: {kind: ftp}}}", `lists.sources.crm.kind is "ftp", expected http, postgres, redis or file`},
		"source without url":      {"lists: {sources: {crm: {kind: http}}}", `lists.sources.crm.url is missing for a source of kind http`},
		"source without query":    {"lists: {sources: {crm: {kind: postgres, url: 'postgres://db/crm'}}}", `lists.sources.crm.query is missing for a source of kind postgres`},
		"source without key":      {"lists: {sources: {crm: {kind: redis, url: 'redis://a:1'}}}", `lists.sources.crm.key is missing for a source of kind redis`},
		"source's foreign key":    {"lists: {sources: {crm: {kind: file, path: /a, query: SELECT 1}}}", `lists.sources.crm.query does not belong to a source of kind file`},
		"source's foreign expiry": {"lists: {sources: {crm: {kind: file, path: /a, expiry: true}}}", `lists.sources.crm.expiry does not belong to a source of kind file`},
		"source's path":           {"lists: {sources: {crm: {kind: file, path: a}}}", `lists.sources.crm.path is "a", expected an absolute path`},
		"source's scheme":         {"lists: {sources: {crm: {kind: http, url: 'ftp://hidden@a/b'}}}", `lists.sources.crm.url is no address that begins with http://`},
		"source's user":           {"lists: {sources: {crm: {kind: http, url: 'https://u:hidden@a/b'}}}", `lists.sources.crm.url has a user, expected a bearer token in password_file`},
		"source's clear token":    {"lists: {sources: {crm: {kind: http, url: 'http://a/b', password_file: /t}}}", `lists.sources.crm.url would carry the token of password_file in the clear, expected https`},
		"source's certificate":    {"lists: {sources: {crm: {kind: postgres, url: 'postgres://db/crm?sslmode=require', query: SELECT 1, ca_file: /c}}}", `lists.sources.crm.url has a ca_file and no sslmode=verify-full, so no certificate would be checked`},
		"source's server":         {"lists: {sources: {crm: {kind: redis, url: 'http://hidden@a', key: k}}}", `lists.sources.crm.url is not a Redis URL, expected redis://[user:password@]host:port[/db], or rediss:// for TLS`},
		"source's format":         {"lists: {sources: {crm: {kind: file, path: /a, format: json}}}", `lists.sources.crm.format is "json", expected csv or txt`},
		"source's timeout":        {"lists: {sources: {crm: {kind: file, path: /a, timeout: 1ms}}}", `lists.sources.crm.timeout is 1ms, expected 1s to 24h`},
		"source's rows":           {"lists: {sources: {crm: {kind: file, path: /a, max_rows: -1}}}", `lists.sources.crm.max_rows is -1, expected 1 or more, or 0 for 100000000`},
		"source's bytes":          {"lists: {sources: {crm: {kind: file, path: /a, max_bytes: -1}}}", `lists.sources.crm.max_bytes is -1, expected 1 to 68719476736 (64 GiB), or 0 for 16 GiB`},
		"source's name":           {"lists: {sources: {'a b': {kind: file, path: /a}}}", `lists.sources.a b has ' ' at position 1, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit`},
		"folder of lists":         {"lists: {dir: " + empty + "}", `lists.dir is "` + empty + `", which is no folder`},
		"one address twice":       {"listen: '127.0.0.1:7000'\ngateway: {listen: '127.0.0.1:7000', tokens_file: " + empty + "}", `gateway.listen is "127.0.0.1:7000" like listen, expected another address, or none: agents come in at listen then`},
		"memory finding":          {"findings: {redis_memory: 85}", `findings.redis_memory is 85, expected 0 to 1`},
		"lock finding":            {"findings: {lock_unrenewed: 0.5}", `findings.lock_unrenewed is 0.5, expected 0, or more than 0.5 and up to 1`},
		"missed finding":          {"findings: {missed: 30s}", `findings.missed is 30s, expected 1m to 720h, or 0s for never`},
		"flapping finding":        {"findings: {flapping: 1}", `findings.flapping is 1, expected 2 to 10`},
		"late source finding":     {"findings: {source_late: 1s}", `findings.source_late is 1s, expected 1m to 720h`},
		"lag finding":             {"findings: {redis_lag: 1s}", `findings.redis_lag is 1s, expected 2s to 1h`},
		"ratio":                   {"tracing: {sample_ratio: 2}", `tracing.sample_ratio is 2, expected 0 to 1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, problems := loadYAML(t, c.yaml)
			if diff := cmp.Diff([]string{c.want}, problems); diff != "" {
				t.Error(diff)
			}
			if strings.Contains(strings.Join(problems, ""), "hidden") {
				t.Error("the message gives a secret away")
			}
		})
	}
}

func TestReplicaTokens(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, problems := loadYAML(t, "listen: ':7480'\ntokens:\n- {token: abc, tenant: a, role: operator}\n- {token_file: "+file+", tenant: b}\n")
	if problems != nil {
		t.Fatal(problems)
	}
	want := []config.Token{
		{Token: "abc", Tenant: "a", Role: identity.Operator},
		{Token: "from-file", TokenFile: file, Tenant: "b", Role: identity.Client},
	}
	if diff := cmp.Diff(want, cfg.Tokens); diff != "" {
		t.Error(diff)
	}
}

// TestLocklessCache: every key of the section works, or warns with the name of its successor.
func TestLocklessCache(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	works := map[string]struct {
		yaml  string
		check func(config.Replica) bool
	}{
		"enabled":                    {"enabled: true", func(r config.Replica) bool { return r.Locked == config.Locked{} }},
		"redis_url":                  {"redis_url: 'redis://other:1'", func(r config.Replica) bool { return r.Redis.URL == "redis://other:1" }},
		"version_check_timeout_ms":   {"version_check_timeout_ms: 70", func(r config.Replica) bool { return r.Cache.VersionCheckTimeout == 70*time.Millisecond }},
		"enable_pubsub_invalidation": {"enable_pubsub_invalidation: false", func(r config.Replica) bool { return !r.Cache.PubSub }},
		"batch_refresh_size":         {"batch_refresh_size: 7", func(r config.Replica) bool { return r.Cache.BatchRefreshSize == 7 }},
		"batch_refresh_interval_ms":  {"batch_refresh_interval_ms: 250", func(r config.Replica) bool { return r.Cache.BatchRefreshInterval == 250*time.Millisecond }},
		"enable_legacy_write":        {"enable_legacy_write: true", func(r config.Replica) bool { return r.Locked == config.Locked{Mirror: true} }},
		"enable_data_sync":           {"enable_data_sync: true", func(r config.Replica) bool { return r.Locked == config.Locked{Mirror: true, Verify: true} }},
	}
	for name, c := range works {
		seen[name] = true
		cfg, problems := loadYAML(t, "lockless_cache:\n  "+c.yaml+"\n")
		if problems != nil || !c.check(cfg) {
			t.Errorf("%s does not work: %v %+v", c.yaml, problems, cfg)
		}
	}
	replaced := map[string]struct{ yaml, want string }{
		"redis_pool_size": {"redis_pool_size: 10", "redis.connections"},
		"cache_ttl_ms":    {"cache_ttl_ms: 5000", "heartbeat_limit"},
		"pubsub_channels": {"pubsub_channels: ['scheduler:events:node_update']", "redis.key_prefix"},
	}
	for name, c := range replaced {
		seen[name] = true
		cfg, problems := loadYAML(t, "lockless_cache:\n  "+c.yaml+"\n")
		if problems != nil || len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings.Error(), c.want) {
			t.Errorf("%s: problems %q and warnings %q, expected one warning that names %s", name, problems, cfg.Warnings, c.want)
		}
	}
	for _, k := range reference.Keys(config.LocklessCache{}) {
		if !seen[k.Path] {
			t.Errorf("lockless_cache.%s has no test", k.Path)
		}
	}
}

func TestLocklessCacheContradictions(t *testing.T) {
	t.Parallel()
	_, problems := loadYAML(t, "redis: {url: 'redis://user:hidden@a:1'}\nlockless_cache: {redis_url: 'redis://b:1'}\n")
	if diff := cmp.Diff([]string{"lockless_cache.redis_url contradicts redis.url, which is its new name: set only that"}, problems); diff != "" {
		t.Error(diff)
	}
	if _, problems := loadYAML(t, "redis: {url: 'redis://a:1'}\nlockless_cache: {redis_url: 'redis://a:1'}\n"); problems != nil {
		t.Error("the same value under both names is refused:", problems)
	}
	_, problems = loadYAML(t, "lockless_cache: {batch_refresh_interval_ms: 0}\n")
	if diff := cmp.Diff([]string{"cache.batch_refresh_interval is 0s, expected 10ms to 1m"}, problems); diff != "" {
		t.Error(diff)
	}
}

func TestRedisURLs(t *testing.T) {
	t.Parallel()
	r, problems := loadYAML(t, "redis: {urls: ['redis://a', 'redis://b'], cells: 4}")
	if problems != nil || r.Redis.URL != "" || len(r.Redis.URLs) != 2 || r.Redis.Cells != 4 {
		t.Errorf(`%+v, %q; want problems == nil, r.Redis.URL == "", len(r.Redis.URLs) == 2, r.Redis.Cells == 4`, r.Redis, problems)
	}
	if r := config.DefaultReplica(); r.Redis.Cells != 1 || r.Redis.URL == "" {
		t.Errorf(`%+v; want r.Redis.Cells == 1, r.Redis.URL != ""`, r.Redis)
	}
}

func TestTenantWeight(t *testing.T) {
	t.Parallel()
	cfg, problems := loadYAML(t, "tenants: {acme: {weight: 3}, small: {}, a.b: {weight: 1000}}")
	if problems != nil {
		t.Fatal(problems)
	}
	for name, want := range map[string]int{"acme": 3, "small": 1, "a.b": 1000, "other": 1} {
		if got := cfg.TenantWeight(name); got != want {
			t.Errorf("%s has the weight %d, expected %d", name, got, want)
		}
	}
	cfg, err := config.LoadReplica(config.Options{Environ: []string{"FREESLOT_TENANTS={acme: {weight: 7}}", "FREESLOT_WAITING_LIMIT=5"}})
	if err != nil || cfg.TenantWeight("acme") != 7 || cfg.WaitingLimit != 5 {
		t.Error(err, cfg.Tenants, cfg.WaitingLimit)
	}
}
