package nodeagent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/healthcheck"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/registry"
	"github.com/freeslot/freeslot/worker"
)

// Defaults of the configuration, in addition to package worker's.
const (
	DefaultTimeout   = 60 * time.Second
	DefaultKillGrace = 5 * time.Second
)

const (
	maxTimeout = 24 * time.Hour
	// maxHeartbeatLimit is more than the longest heartbeat_interval.
	maxHeartbeatLimit = 20 * time.Minute
	maxKillGrace      = time.Minute
	minDuration       = time.Millisecond
)

// defaultPassEnv lists the variables of the agent's environment that commands get unless configured
// otherwise: what programs need to find their files and to talk to people.
var defaultPassEnv = []string{"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"}

// Config is the configuration of one nodeagent.
type Config struct {
	// What the node offers.
	Node Node `koanf:"node"`
	// What the node runs, at least one service and at most 64.
	Services []Service `koanf:"services"`
	// Where schedulers serve nodes, in place of `redis`: `wss://host[:port]`, several with commas
	// between. Besides it the node needs only `token_file` (docs/gateway.md). `ws://` sends the
	// token in the clear: only for this machine, and where a proxy adds TLS. Proxies come from
	// `HTTPS_PROXY` and `NO_PROXY`.
	Gateway string `koanf:"gateway"`
	// A file with the node's token, for `gateway`. It is read at each connect. No variable sets it:
	// `FREESLOT_TOKEN_FILE` is schedctl's.
	TokenFile string `koanf:"token_file" env:"-"`
	// For gateways that begin with `wss://`.
	GatewayTLS GatewayTLS `koanf:"gateway_tls"`
	// With `true` nothing warns that `gateway` has `ws://` to another machine: something else, such
	// as a VPN, keeps the token and the results secret on their way.
	GatewayInsecure bool `koanf:"gateway_insecure"`
	// The schedulers' Redis, unless there is a `gateway`.
	Redis Redis `koanf:"redis"`
	// Where services with `announce` are registered.
	Registry Registry `koanf:"registry"`
	// At most half of the schedulers' `heartbeat_limit`. If it is longer, the node is taken out
	// again and again, and its jobs lose attempts.
	HeartbeatInterval time.Duration `koanf:"heartbeat_interval"`
	// How often at least a heartbeat brings the figures of `metrics`, `heartbeat_interval` to 1h.
	MetadataInterval time.Duration `koanf:"metadata_interval"`
	// Whether figures are sent as soon as one has changed by its threshold, at most once a second.
	// With `false` they go with the next heartbeat.
	ImmediateUpdate bool `koanf:"immediate_update"`
	// By `type.field`. `memory.usage` has 0.1 and `cpu.usage` 0.2 unless set.
	// docs/nodeagent.md#heartbeats has more.
	ChangeThresholds map[string]ChangeThreshold `koanf:"change_thresholds"`
	// The schedulers' `heartbeat_limit`. If Redis has not answered for that long, jobs with
	// `on_lease_loss: cancel` are stopped. 0s is 8s, or twice `heartbeat_interval` if that is more.
	// With `gateway` the gateway sets it.
	HeartbeatLimit time.Duration `koanf:"heartbeat_limit"`
	// How long running jobs may go on after the first signal, up to 24h.
	StopTimeout time.Duration `koanf:"stop_timeout"`
	// Where an interruption notice of the machine's owner can be seen, such as that a spot instance
	// ends (docs/nodeagent.md#interruption-notices). A notice drains the node.
	Interruption Interruption `koanf:"interruption"`
	// The largest result, up to 16 MiB. The agent reads no more than this of a response or an
	// output. A report has 1 s, and the time that it takes at 1 MiB a second, to reach Redis;
	// heartbeats go over the same connection.
	MaxResultBytes int `koanf:"max_result_bytes"`
	// `host:port` of `/metrics` and `/healthz`. Unset: neither is served.
	MetricsListen string `koanf:"metrics_listen"`
	// Which figures of the machine heartbeats bring (docs/nodeagent.md#metrics).
	Metrics Metrics `koanf:"metrics"`
	// What is logged to standard error.
	Log config.Log `koanf:"log"`
	// Where OpenTelemetry spans go: one for each job, inside the submitter's trace.
	Tracing config.Tracing `koanf:"tracing"`
	// ExitUnreachable is set by a flag: see worker.Config.
	ExitUnreachable bool
}

// Node is the profile.
type Node struct {
	// Unique in the fleet. The default is the host's name.
	ID string `koanf:"id"`
	// Slots, 1 to 65536.
	MaxConcurrency int `koanf:"max_concurrency"`
	// BCP 47 tags by stage.
	Languages Languages `koanf:"languages"`
	// What jobs and pools can ask for.
	Labels map[string]string `koanf:"labels"`
	// Pools to join whatever their rules say.
	Pools []string `koanf:"pools"`
	// `name: true` or `false`. Jobs can require features that are true.
	Features map[string]bool `koanf:"features"`
}

// Languages are BCP 47 tags by stage.
type Languages struct {
	// Languages that the node understands. A job's source language is looked up here.
	ASR []string `koanf:"asr"`
	// Languages that the node produces. A job's target language is looked up here.
	TTS []string `koanf:"tts"`
	// Languages of its translation stage. When set, a job with a source and a target language
	// needs both here.
	Semantic []string `koanf:"semantic"`
}

// Service is one service of the node: exactly one of HTTP and Command is set.
type Service struct {
	// What jobs ask for.
	Name string `koanf:"name"`
	// Shown with the node.
	Version string `koanf:"version"`
	// A URL or `host:port` without a user, shown with the node to everyone who can list nodes. Jobs
	// do not use it.
	Endpoint string `koanf:"endpoint"`
	// Registers the service with its `endpoint` in the registry, where all programs find it, as
	// the instance with the node's id (docs/registry.md#services-of-nodes). The agent's user of
	// Redis needs the role `registry`, too; with `gateway` it has none, and announces nothing.
	Announce bool `koanf:"announce"`
	// Runs jobs by a `POST`. Set either this or `command`.
	HTTP *HTTP `koanf:"http"`
	// Runs jobs by a process.
	Command *Command `koanf:"command"`
	// Lets the node offer the service only while it is well. Set exactly one of `http`, `tcp`,
	// `grpc` and `websocket`.
	Check *healthcheck.Config `koanf:"check"`
}

// HTTP runs a job by a POST.
type HTTP struct {
	// Where the service listens.
	URL string `koanf:"url" secret:"true"`
	// For the whole exchange, up to 24h.
	Timeout time.Duration `koanf:"timeout"`
	// How long a stream may bring nothing, up to 24h. 0s is no limit.
	IdleTimeout time.Duration `koanf:"idle_timeout"`
	// Sent with each request. The agent's own headers win.
	Headers map[string]string `koanf:"headers" secret:"true"`
	// `auto`, `json`, `text` or `base64`.
	Output Output `koanf:"output"`
}

// Command runs a job by a process.
type Command struct {
	// The program and its arguments, which may have placeholders
	// (docs/nodeagent.md#arguments-from-the-job). There is no shell unless it names one. `--check`
	// and the start look the program up in `PATH`; one with a folder in its name is relative to
	// `dir`.
	Argv []string `koanf:"argv"`
	// For one job, up to 24h.
	Timeout time.Duration `koanf:"timeout"`
	// From SIGTERM to SIGKILL, up to 1m.
	KillGrace time.Duration `koanf:"kill_grace"`
	// The working directory, an absolute path. Unset: the agent's.
	Dir string `koanf:"dir"`
	// The user of this machine that the command runs as, with that user's groups
	// (docs/nodeagent.md#another-user). Unset: the agent's. Only on Linux.
	User string `koanf:"user"`
	// Variables of the agent's environment that the command gets. `[]` passes none.
	PassEnv []string `koanf:"pass_env"`
	// Further variables.
	Env map[string]string `koanf:"env" secret:"true"`
	// `json` or `text`.
	Input Input `koanf:"input"`
	// `auto`, `json`, `text` or `base64`.
	Output Output `koanf:"output"`
	// Limits of each process and all that it starts together, on Linux (docs/nodeagent.md#limits).
	Limits *Limits `koanf:"limits"`
	// With `true` an agent that cannot set the limits does not start. With `false` the command
	// runs without them.
	LimitsRequired bool `koanf:"limits_required"`
}

// Registry is the service registry.
type Registry struct {
	// Must be the schedulers' `registry.namespace`.
	Namespace string `koanf:"namespace"`
}

// Redis holds the address of the shared state; all of it must be the schedulers'.
type Redis struct {
	// As the schedulers' `redis.url`: `redis://[user:password@]host:port[/db]`, `rediss://` for
	// TLS, `unix:///path`. One server. Or any nodes of a Redis Cluster, the further ones as
	// `?addr=host:port&addr=host:port`. Or sentinels, with `&master_set=name`.
	URL string `koanf:"url" secret:"true"`
	// In place of `redis.url`, the standalone servers of the schedulers, in their order. The agent
	// connects to one of them only.
	URLs []string `koanf:"urls" secret:"true"`
	// The user of Redis' ACL, in place of one in the URL. `schedctl acl` makes one
	// (docs/security.md).
	Username string `koanf:"username"`
	// A file with the password, in place of one in the URL. It is read at each new connection.
	PasswordFile string `koanf:"password_file"`
	// The user of the sentinels, which have users of their own.
	SentinelUsername string `koanf:"sentinel_username"`
	// A file with that user's password.
	SentinelPasswordFile string `koanf:"sentinel_password_file"`
	// For URLs that begin with `rediss://`.
	TLS config.RedisTLS `koanf:"tls"`
	// Must be the schedulers'.
	Cells int `koanf:"cells"`
	// Must be the schedulers'.
	KeyPrefix string `koanf:"key_prefix"`
}

// DefaultConfig returns a configuration without services.
func DefaultConfig() Config {
	return Config{
		Node:              Node{ID: hostName(), MaxConcurrency: 1},
		Redis:             Redis{URL: "redis://127.0.0.1:6379", Cells: 1, KeyPrefix: "scheduler"},
		HeartbeatInterval: worker.DefaultHeartbeatInterval,
		MetadataInterval:  worker.DefaultMetadataInterval,
		ImmediateUpdate:   true,
		ChangeThresholds:  defaultThresholds(),
		StopTimeout:       worker.DefaultStopTimeout,
		Interruption: Interruption{
			Interval: DefaultInterruptionInterval, StopTimeout: DefaultInterruptionStopTimeout,
		},
		MaxResultBytes: worker.DefaultMaxResultBytes,
		Metrics:        defaultMetricsConfig(),
		Log:            config.Log{Level: "info", Format: "json"},
		Tracing:        config.Tracing{SampleRatio: 0.1},
	}
}

// Load reads a configuration over the defaults. The error is config.Problems.
func Load(opts config.Options) (Config, error) { return config.Load(DefaultConfig(), opts) }

// hostName returns the host's name if it can be a node's, otherwise "".
func hostName() string {
	host, err := os.Hostname()
	if err != nil || freeslot.ValidateName("host", host) != nil {
		return ""
	}
	return host
}

// Resolve sets the defaults of the services. The loader cannot, because it does not know their
// number.
func (c *Config) Resolve(isSet func(string) bool, p *config.Problems) {
	config.ResolveRedis(&c.Redis.URL, c.Redis.URLs, isSet, p)
	c.resolveGateway(isSet, p)
	c.Metrics.resolve()
	for i := range c.Services {
		if k := c.Services[i].Check; k != nil {
			k.Resolve()
		}
		if h := c.Services[i].HTTP; h != nil {
			h.Timeout = cmp.Or(h.Timeout, DefaultTimeout)
			h.Output = cmp.Or(h.Output, OutputAuto)
		}
		if m := c.Services[i].Command; m != nil {
			m.Timeout = cmp.Or(m.Timeout, DefaultTimeout)
			m.KillGrace = cmp.Or(m.KillGrace, DefaultKillGrace)
			m.Input = cmp.Or(m.Input, InputJSON)
			m.Output = cmp.Or(m.Output, OutputAuto)
			if m.PassEnv == nil {
				m.PassEnv = defaultPassEnv
			}
		}
	}
}

// Validate records every value that cannot be used.
func (c *Config) Validate(p *config.Problems) {
	c.Node.validate(p)
	// An unreadable file, a problem without a path, may have contained them.
	if len(c.Services) == 0 && !p.Has("services") && !p.Has("") {
		p.Addf("services", "is empty, expected at least one service")
	}
	if len(c.Services) > freeslot.MaxServices {
		p.Addf("services", "has %d entries, expected at most %d", len(c.Services), freeslot.MaxServices)
	}
	for i := range c.Services {
		c.Services[i].validate("services["+strconv.Itoa(i)+"]", p)
	}
	p.Once("services", "name", len(c.Services), func(i int) string { return c.Services[i].Name })
	c.validateGateway(p)
	if c.Gateway == "" {
		c.Redis.validate(p)
	}
	if c.Registry.Namespace != "" {
		p.Name("registry.namespace", c.Registry.Namespace)
	}
	for i := range c.Services {
		c.validateAnnounce(i, p)
	}
	p.DurationBetween("heartbeat_interval", c.HeartbeatInterval, worker.MinHeartbeatInterval, 10*time.Minute)
	c.validateHeartbeats(p)
	if c.HeartbeatLimit != 0 {
		low := c.HeartbeatInterval
		if p.Has("heartbeat_interval") {
			low = worker.MinHeartbeatInterval // so that there is a range
		}
		if c.HeartbeatLimit < low || c.HeartbeatLimit > maxHeartbeatLimit {
			p.Addf("heartbeat_limit", "is %s, expected %s to %s: no less than heartbeat_interval",
				config.FormatDuration(c.HeartbeatLimit), config.FormatDuration(low), config.FormatDuration(maxHeartbeatLimit))
		}
	}
	p.DurationBetween("stop_timeout", c.StopTimeout, minDuration, maxTimeout)
	c.Interruption.validate(p)
	p.Between("max_result_bytes", c.MaxResultBytes, 1, worker.MaxResultBytesLimit)
	if c.MetricsListen != "" {
		p.Listen("metrics_listen", c.MetricsListen, "127.0.0.1:7490")
	}
	c.Metrics.validate(p)
	c.Log.Validate(p)
	c.Tracing.Validate(p)
}

// profileKeys maps the fields that Node.Validate names to keys of the configuration.
var profileKeys = map[string]string{
	"node.pool_ids":                        "node.pools",
	"node.features_supported":              "node.features",
	"node.capabilities.asr_languages":      "node.languages.asr",
	"node.capabilities.tts_languages":      "node.languages.tts",
	"node.capabilities.semantic_languages": "node.languages.semantic",
}

func (n *Node) validate(p *config.Problems) {
	p.Name("node.id", n.ID)
	p.Between("node.max_concurrency", n.MaxConcurrency, 1, freeslot.MaxConcurrencyLimit)
	profile := n.profile()
	// In parts, because Validate stops at the first bad field.
	for _, part := range []freeslot.Node{
		{Languages: freeslot.Languages{ASR: profile.Languages.ASR}},
		{Languages: freeslot.Languages{TTS: profile.Languages.TTS}},
		{Languages: freeslot.Languages{Semantic: profile.Languages.Semantic}},
		{Labels: profile.Labels},
		{Pools: profile.Pools},
		{Features: profile.Features},
	} {
		part.ID, part.MaxConcurrency = "x", 1
		if e, ok := errors.AsType[*freeslot.Error](part.Validate("node")); ok {
			p.Coded(cmp.Or(profileKeys[e.Field], e.Field), e)
		}
	}
}

// profile returns the node's profile with its services.
func (c *Config) profile() freeslot.Node {
	node := c.Node.profile()
	for _, s := range c.Services {
		node.Services = append(node.Services, freeslot.Service{Name: s.Name, Version: s.Version, Endpoint: s.Endpoint})
	}
	return node
}

// profile returns the node's profile without services.
func (n *Node) profile() freeslot.Node {
	return freeslot.Node{
		ID: n.ID, MaxConcurrency: n.MaxConcurrency, Labels: n.Labels, Pools: n.Pools, Features: n.Features,
		Languages: freeslot.Languages{ASR: n.Languages.ASR, TTS: n.Languages.TTS, Semantic: n.Languages.Semantic},
	}
}

func (s *Service) validate(at string, p *config.Problems) {
	p.Name(at+".name", s.Name)
	if s.Version != "" {
		p.Name(at+".version", s.Version)
	}
	if s.Endpoint != "" {
		p.Coded(at+".endpoint", freeslot.ValidateEndpoint(at+".endpoint", s.Endpoint))
	}
	if s.Check != nil {
		s.Check.Validate(at+".check", p)
	}
	switch {
	case s.HTTP == nil && s.Command == nil:
		if !p.Has(at) {
			p.Addf(at, "does not say how to run it, expected http or command")
		}
	case s.HTTP != nil && s.Command != nil:
		p.Addf(at+".command", "is set beside http, expected one of them")
	}
	if s.HTTP != nil {
		s.HTTP.validate(at+".http", p)
	}
	if s.Command != nil {
		s.Command.validate(at+".command", p)
	}
}

func (h *HTTP) validate(at string, p *config.Problems) {
	if !httpURL(h.URL) {
		p.Addf(at+".url", "is not a URL of a service, expected one such as http://127.0.0.1:8000/run")
	}
	p.DurationBetween(at+".timeout", h.Timeout, minDuration, maxTimeout)
	if h.IdleTimeout != 0 {
		p.DurationBetween(at+".idle_timeout", h.IdleTimeout, minDuration, maxTimeout)
	}
	h.Output.validate(at+".output", p)
	p.Headers(at+".headers", h.Headers)
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (c *Command) validate(at string, p *config.Problems) {
	c.validateProcess(at, p)
	p.DurationBetween(at+".timeout", c.Timeout, minDuration, maxTimeout)
	p.DurationBetween(at+".kill_grace", c.KillGrace, minDuration, maxKillGrace)
	if c.Dir != "" && !filepath.IsAbs(c.Dir) {
		p.Addf(at+".dir", "is %q, expected an absolute path", c.Dir)
	}
	validateArgv(at+".argv", c.Argv, p)
	_, err := c.account()
	p.Add(at+".user", err)
	c.validateLimits(at, p)
	p.OneOf(at+".input", string(c.Input), string(InputJSON), string(InputText))
	c.Output.validate(at+".output", p)
}

// validateProcess checks program, arguments and environment.
func (c *Command) validateProcess(at string, p *config.Problems) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		p.Addf(at+".argv", "is empty, expected a program and its arguments")
	} else {
		_, err := c.program()
		p.Add(at+".argv", err)
	}
	for i, arg := range c.Argv {
		if strings.ContainsRune(arg, 0) {
			p.Addf(at+".argv["+strconv.Itoa(i)+"]", "has a zero byte")
		}
	}
	for i, name := range c.PassEnv {
		if !envName.MatchString(name) {
			p.Addf(at+".pass_env["+strconv.Itoa(i)+"]", "is %q, expected the name of a variable", name)
		}
	}
	for name, value := range c.Env {
		if !envName.MatchString(name) || strings.ContainsRune(value, 0) {
			p.Addf(at+".env", "has %q, which cannot be a variable", name)
		}
	}
}

// program looks the program up, so that a missing one is found before the first job. The error
// continues a sentence that begins with the key.
func (c *Command) program() (string, error) {
	name := c.Argv[0]
	if filepath.Base(name) != name && !filepath.IsAbs(name) && filepath.IsAbs(c.Dir) {
		name = filepath.Join(c.Dir, name)
	}
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	if notFound, ok := errors.AsType[*exec.Error](err); ok {
		err = notFound.Err
	}
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		err = file.Err
	}
	return "", fmt.Errorf("begins with %q, which cannot be run: %w", c.Argv[0], err)
}

// account returns the user that the command runs as; nil for the agent's. The error continues a
// sentence that begins with the key.
func (c *Command) account() (*account, error) {
	if c.User == "" {
		return nil, nil //nolint:nilnil // no other user is no failure
	}
	as, err := lookUp(c.User)
	if err != nil || len(c.Argv) == 0 {
		return as, err
	}
	path, err := c.program()
	if err != nil {
		return as, nil //nolint:nilerr // it is a problem of argv
	}
	return as, as.check(path, c.Dir)
}

func (r *Redis) validate(p *config.Problems) {
	config.ValidateRedis(r.URL, r.URLs, r.Cells, p)
	config.ValidateRedisAccess(r.access(), r.URL, r.URLs, p)
	p.Name("redis.key_prefix", r.KeyPrefix)
}

// access returns the credentials and certificates of connections.
func (r *Redis) access() redisclient.Access {
	return config.Redis{
		Username: r.Username, PasswordFile: r.PasswordFile,
		SentinelUsername: r.SentinelUsername, SentinelPasswordFile: r.SentinelPasswordFile, TLS: r.TLS,
	}.Access()
}

// Denied returns the advice for an error by which Redis denies the agent something; "" for other
// errors.
func (c *Config) Denied(err error) string {
	if c.Gateway != "" {
		return ""
	}
	return c.Redis.Denied(err, c.Node.ID)
}

// Denied returns the advice for an error by which Redis denies the agent of a node something; ""
// for other errors.
func (r *Redis) Denied(err error, node string) string {
	if errors.As(err, new(*registry.DeniedError)) { // it has advice of its own
		return ""
	}
	access := r.access()
	url := config.FirstURL(r.URL, r.URLs)
	if other, ok := strings.CutPrefix(access.User(url), "agent-"); ok && other != node && redisclient.IsDenied(err) {
		return fmt.Sprintf("Redis' user is agent-%s and the node is %s: if that is the user of a node %s, look at node.id "+
			"and redis.username; if it is one of several nodes, %q prints what it may lack",
			other, node, other, config.ACLCommand("agent", "agent-"+other, r.KeyPrefix, r.Cells)+" --add")
	}
	return access.Denied(err, url, func(user string) string {
		if user == "" || user == "agent-"+node { // else the other nodes of this user would lose it
			return config.ACLCommand("agent --node "+node, "", r.KeyPrefix, r.Cells)
		}
		return config.ACLCommand("agent", user, r.KeyPrefix, r.Cells)
	})
}

func (r *Redis) workerAccess() worker.RedisAccess {
	return worker.RedisAccess{
		Username: r.Username, PasswordFile: r.PasswordFile,
		SentinelUsername: r.SentinelUsername, SentinelPasswordFile: r.SentinelPasswordFile,
		CAFile: r.TLS.CAFile, CertFile: r.TLS.CertFile, KeyFile: r.TLS.KeyFile, ServerName: r.TLS.ServerName,
	}
}

func httpURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
