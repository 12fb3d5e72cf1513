package agent

import (
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
	"github.com/freeslot/freeslot/internal/config"
	"github.com/freeslot/freeslot/internal/node/check"
	"github.com/freeslot/freeslot/internal/redisclient"
	"github.com/freeslot/freeslot/worker"
)

// Defaults of the configuration, besides those of package worker.
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

// defaultPassEnv are the variables that commands get from the agent's environment
// unless configured: what programs need to find their files and to speak to people.
var defaultPassEnv = []string{"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"}

// Config is the configuration of one nodeagent.
type Config struct {
	Node Node `koanf:"node"`
	// Services are what the node runs, at least one.
	Services []Service `koanf:"services"`
	Redis    Redis     `koanf:"redis"`
	// HeartbeatInterval must be at most half of the schedulers' heartbeat_limit.
	HeartbeatInterval time.Duration `koanf:"heartbeat_interval"`
	// MetadataInterval is how often a heartbeat brings the figures of Metrics at least;
	// ImmediateUpdate has them told as soon as one has changed by its threshold, by "type.field".
	MetadataInterval time.Duration              `koanf:"metadata_interval"`
	ImmediateUpdate  bool                       `koanf:"immediate_update"`
	ChangeThresholds map[string]ChangeThreshold `koanf:"change_thresholds"`
	// HeartbeatLimit is the schedulers' heartbeat_limit; 0 is the default of package worker.
	HeartbeatLimit time.Duration `koanf:"heartbeat_limit"`
	// StopTimeout is how long running jobs may go on after SIGTERM.
	StopTimeout time.Duration `koanf:"stop_timeout"`
	// MaxResultBytes is the largest result, and the most that is read of a
	// response or of a command's output.
	MaxResultBytes int `koanf:"max_result_bytes"`
	// MetricsListen is host:port of /metrics and /healthz; empty serves neither.
	MetricsListen string `koanf:"metrics_listen"`
	// Metrics are the figures of the machine that heartbeats tell.
	Metrics Metrics        `koanf:"metrics"`
	Log     config.Log     `koanf:"log"`
	Tracing config.Tracing `koanf:"tracing"`
}

// Node is the profile.
type Node struct {
	// ID is unique in the fleet. The default is the host's name.
	ID             string            `koanf:"id"`
	MaxConcurrency int               `koanf:"max_concurrency"`
	Languages      Languages         `koanf:"languages"`
	Labels         map[string]string `koanf:"labels"`
	Pools          []string          `koanf:"pools"`
	Features       map[string]bool   `koanf:"features"`
}

// Languages are BCP 47 tags by stage.
type Languages struct {
	ASR      []string `koanf:"asr"`
	TTS      []string `koanf:"tts"`
	Semantic []string `koanf:"semantic"`
}

// Service is one service of the node: exactly one of HTTP and Command is set.
type Service struct {
	Name    string `koanf:"name"`
	Version string `koanf:"version"`
	// Endpoint is shown with the node; see freeslot.Service.
	Endpoint string   `koanf:"endpoint"`
	HTTP     *HTTP    `koanf:"http"`
	Command  *Command `koanf:"command"`
	// Check lets the node offer the service only while it is well; nil: always.
	Check *check.Config `koanf:"check"`
}

// HTTP runs a job by a POST.
type HTTP struct {
	URL     string        `koanf:"url" secret:"true"`
	Timeout time.Duration `koanf:"timeout"`
	// IdleTimeout is how long a streamed response may bring nothing; 0 is no limit.
	IdleTimeout time.Duration `koanf:"idle_timeout"`
	// Headers are sent besides the executor's own, which win.
	Headers map[string]string `koanf:"headers" secret:"true"`
	Output  Output            `koanf:"output"`
}

// Command runs a job by a process.
type Command struct {
	// Argv is the program and its arguments, which may have placeholders. There is no
	// shell unless it names one.
	Argv    []string      `koanf:"argv"`
	Timeout time.Duration `koanf:"timeout"`
	// KillGrace is how long the process may take to end after SIGTERM.
	KillGrace time.Duration `koanf:"kill_grace"`
	// Dir is the working directory; empty is the agent's.
	Dir string `koanf:"dir"`
	// PassEnv are the variables of the agent's environment that the command gets;
	// nil means defaultPassEnv.
	PassEnv []string          `koanf:"pass_env"`
	Env     map[string]string `koanf:"env" secret:"true"`
	Input   Input             `koanf:"input"`
	Output  Output            `koanf:"output"`
	// Limits bound the process and all that it starts; nil is none.
	Limits *Limits `koanf:"limits"`
	// LimitsRequired fails the start of an agent that cannot set the limits. Without it
	// the command runs without.
	LimitsRequired bool `koanf:"limits_required"`
}

// Redis says where the shared state is; all of it must be the schedulers'.
type Redis struct {
	// URL is one server, sentinels or a cluster; empty when URLs are set.
	URL string `koanf:"url" secret:"true"`
	// URLs are several standalone servers, in the schedulers' order.
	URLs []string `koanf:"urls" secret:"true"`
	// Username and PasswordFile are the user to connect as, in place of one in the URL; see config.Redis.
	Username             string          `koanf:"username"`
	PasswordFile         string          `koanf:"password_file"`
	SentinelUsername     string          `koanf:"sentinel_username"`
	SentinelPasswordFile string          `koanf:"sentinel_password_file"`
	TLS                  config.RedisTLS `koanf:"tls"`
	Cells                int             `koanf:"cells"`
	KeyPrefix            string          `koanf:"key_prefix"`
}

// DefaultConfig is a configuration without services.
func DefaultConfig() Config {
	return Config{
		Node:              Node{ID: hostName(), MaxConcurrency: 1},
		Redis:             Redis{URL: "redis://127.0.0.1:6379", Cells: 1, KeyPrefix: "scheduler"},
		HeartbeatInterval: worker.DefaultHeartbeatInterval,
		MetadataInterval:  worker.DefaultMetadataInterval,
		ImmediateUpdate:   true,
		ChangeThresholds:  defaultThresholds(),
		StopTimeout:       worker.DefaultStopTimeout,
		MaxResultBytes:    worker.DefaultMaxResultBytes,
		Metrics:           defaultMetricsConfig(),
		Log:               config.Log{Level: "info", Format: "json"},
		Tracing:           config.Tracing{SampleRatio: 0.1},
	}
}

// Load reads a configuration over the defaults. The error is config.Problems.
func Load(opts config.Options) (Config, error) { return config.Load(DefaultConfig(), opts) }

// hostName is the host's name as far as it can be a node's; empty when it cannot.
func hostName() string {
	host, err := os.Hostname()
	if err != nil || freeslot.ValidateName("host", host) != nil {
		return ""
	}
	return host
}

// Resolve gives the services their defaults, which no loader can: how many there
// are is not known before.
func (c *Config) Resolve(isSet func(string) bool, p *config.Problems) {
	config.ResolveRedis(&c.Redis.URL, c.Redis.URLs, isSet, p)
	c.Metrics.resolve()
	for i := range c.Services {
		if k := c.Services[i].Check; k != nil {
			k.Resolve()
		}
		if h := c.Services[i].HTTP; h != nil {
			h.Timeout = orDefault(h.Timeout, DefaultTimeout)
			h.Output = orDefault(h.Output, OutputAuto)
		}
		if m := c.Services[i].Command; m != nil {
			m.Timeout = orDefault(m.Timeout, DefaultTimeout)
			m.KillGrace = orDefault(m.KillGrace, DefaultKillGrace)
			m.Input = orDefault(m.Input, InputJSON)
			m.Output = orDefault(m.Output, OutputAuto)
			if m.PassEnv == nil {
				m.PassEnv = defaultPassEnv
			}
		}
	}
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Validate notes every value that cannot be used.
func (c *Config) Validate(p *config.Problems) {
	c.Node.validate(p)
	// A file that could not be read, a problem without a path, may have held them.
	if len(c.Services) == 0 && !p.Has("services") && !p.Has("") {
		p.Addf("services", "is empty, expected at least one service")
	}
	if len(c.Services) > freeslot.MaxServices {
		p.Addf("services", "has %d entries, expected at most %d", len(c.Services), freeslot.MaxServices)
	}
	first := make(map[string]int, len(c.Services))
	for i := range c.Services {
		at := "services[" + strconv.Itoa(i) + "]"
		c.Services[i].validate(at, p)
		if j, ok := first[c.Services[i].Name]; ok && c.Services[i].Name != "" {
			p.Addf(at+".name", "is %q like that of services[%d], expected each name once", c.Services[i].Name, j)
		} else {
			first[c.Services[i].Name] = i
		}
	}
	c.Redis.validate(p)
	p.DurationBetween("heartbeat_interval", c.HeartbeatInterval, worker.MinHeartbeatInterval, 10*time.Minute)
	c.validateHeartbeats(p)
	if c.HeartbeatLimit != 0 {
		low := c.HeartbeatInterval
		if p.Has("heartbeat_interval") {
			low = worker.MinHeartbeatInterval // which is sure to leave a range
		}
		if c.HeartbeatLimit < low || c.HeartbeatLimit > maxHeartbeatLimit {
			p.Addf("heartbeat_limit", "is %s, expected %s to %s: no less than heartbeat_interval",
				config.FormatDuration(c.HeartbeatLimit), config.FormatDuration(low), config.FormatDuration(maxHeartbeatLimit))
		}
	}
	p.DurationBetween("stop_timeout", c.StopTimeout, minDuration, maxTimeout)
	p.Between("max_result_bytes", c.MaxResultBytes, 1, worker.MaxResultBytesLimit)
	if c.MetricsListen != "" {
		p.Listen("metrics_listen", c.MetricsListen, "127.0.0.1:7490")
	}
	c.Metrics.validate(p)
	c.Log.Validate(p)
	c.Tracing.Validate(p)
}

// profileKeys are the keys of the configuration by the fields that Node.Validate names.
var profileKeys = map[string]string{
	"node.pool_ids":                        "node.pools",
	"node.features_supported":              "node.features",
	"node.capabilities.asr_languages":      "node.languages.asr",
	"node.capabilities.tts_languages":      "node.languages.tts",
	"node.capabilities.semantic_languages": "node.languages.semantic",
}

func (n *Node) validate(p *config.Problems) {
	addName(p, "node.id", n.ID)
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
		var e *freeslot.Error
		if errors.As(part.Validate("node"), &e) {
			p.Addf(orDefault(profileKeys[e.Field], e.Field), "%s", strings.TrimPrefix(e.Message, e.Field+" "))
		}
	}
}

// profile is the node with its services.
func (c *Config) profile() freeslot.Node {
	node := c.Node.profile()
	for _, s := range c.Services {
		node.Services = append(node.Services, freeslot.Service{Name: s.Name, Version: s.Version, Endpoint: s.Endpoint})
	}
	return node
}

// profile is the node without its services.
func (n *Node) profile() freeslot.Node {
	return freeslot.Node{
		ID: n.ID, MaxConcurrency: n.MaxConcurrency, Labels: n.Labels, Pools: n.Pools, Features: n.Features,
		Languages: freeslot.Languages{ASR: n.Languages.ASR, TTS: n.Languages.TTS, Semantic: n.Languages.Semantic},
	}
}

func (s *Service) validate(at string, p *config.Problems) {
	addName(p, at+".name", s.Name)
	if s.Version != "" {
		addName(p, at+".version", s.Version)
	}
	if s.Endpoint != "" {
		addCoded(p, at+".endpoint", freeslot.ValidateEndpoint(at+".endpoint", s.Endpoint))
	}
	if s.Check != nil {
		s.Check.Validate(at+".check", p)
	}
	switch {
	case s.HTTP == nil && s.Command == nil:
		if !p.Has(at) {
			p.Addf(at, "says not how it is run, expected http or command")
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

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

func (h *HTTP) validate(at string, p *config.Problems) {
	if !httpURL(h.URL) {
		p.Addf(at+".url", "is not a URL of a service, expected one such as http://127.0.0.1:8000/run")
	}
	p.DurationBetween(at+".timeout", h.Timeout, minDuration, maxTimeout)
	if h.IdleTimeout != 0 {
		p.DurationBetween(at+".idle_timeout", h.IdleTimeout, minDuration, maxTimeout)
	}
	h.Output.validate(at+".output", p)
	for name, value := range h.Headers {
		if !headerName.MatchString(name) || strings.ContainsAny(value, "\r\n\x00") {
			p.Addf(at+".headers", "has %q, which cannot be sent as a header", name)
		}
	}
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
	c.validateLimits(at, p)
	p.OneOf(at+".input", string(c.Input), string(InputJSON), string(InputText))
	c.Output.validate(at+".output", p)
}

// validateProcess is for what can be run at all: program, arguments and environment.
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

// program looks the program up, so that a missing one is known before the first job.
// The error continues a sentence that begins with the key.
func (c *Command) program() (string, error) {
	name := c.Argv[0]
	if filepath.Base(name) != name && !filepath.IsAbs(name) && filepath.IsAbs(c.Dir) {
		name = filepath.Join(c.Dir, name)
	}
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	var notFound *exec.Error
	if errors.As(err, &notFound) {
		err = notFound.Err
	}
	var file *fs.PathError
	if errors.As(err, &file) {
		err = file.Err
	}
	return "", fmt.Errorf("begins with %q, which cannot be run: %w", c.Argv[0], err)
}

func (r *Redis) validate(p *config.Problems) {
	config.ValidateRedis(r.URL, r.URLs, r.Cells, p)
	config.ValidateRedisAccess(r.access(), r.URL, r.URLs, p)
	addName(p, "redis.key_prefix", r.KeyPrefix)
}

// access is what connections are made with.
func (r *Redis) access() redisclient.Access {
	return config.Redis{
		Username: r.Username, PasswordFile: r.PasswordFile,
		SentinelUsername: r.SentinelUsername, SentinelPasswordFile: r.SentinelPasswordFile, TLS: r.TLS,
	}.Access()
}

// Denied is what to do where Redis refuses the agent of a node something, "" for other errors.
func (r *Redis) Denied(err error, node string) string {
	access := r.access()
	url := config.FirstURL(r.URL, r.URLs)
	if other, ok := strings.CutPrefix(access.User(url), "agent-"); ok && other != node && redisclient.IsDenied(err) {
		return fmt.Sprintf("Redis' user is agent-%s and the node is %s: if that is the user of a node %s, look at node.id and redis.username; if it is one of several nodes, %q prints what it may lack",
			other, node, other, config.ACLCommand("agent", "agent-"+other, r.KeyPrefix, r.Cells)+" --add")
	}
	return access.Denied(err, url, func(user string) string {
		if user == "" || user == "agent-"+node { // else a user of several nodes, who would lose the others
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

func addName(p *config.Problems, path, name string) {
	addCoded(p, path, freeslot.ValidateName(path, name))
}

// addCoded notes an error of package freeslot that names path.
func addCoded(p *config.Problems, path string, err error) {
	var e *freeslot.Error
	if errors.As(err, &e) {
		p.Addf(path, "%s", strings.TrimPrefix(e.Message, path+" "))
	}
}

func httpURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
