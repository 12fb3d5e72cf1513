package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/reference"
)

// sample has a field of every kind that the loader supports.
type sample struct {
	Name     string            `koanf:"name"`
	Wait     time.Duration     `koanf:"wait"`
	Count    int               `koanf:"count"`
	Ratio    float64           `koanf:"ratio"`
	On       bool              `koanf:"on"`
	Maybe    *bool             `koanf:"maybe"`
	Tags     []string          `koanf:"tags"`
	Labels   map[string]string `koanf:"labels"`
	Features map[string]bool   `koanf:"features"`
	Secret   string            `koanf:"secret" secret:"true"`
	Redis    struct {
		URL  string `koanf:"url" secret:"true"`
		Pool int    `koanf:"pool_size"`
	} `koanf:"redis"`
	Items []sampleItem `koanf:"items"`

	validated bool
}

type sampleItem struct {
	ID   string        `koanf:"id"`
	Wait time.Duration `koanf:"wait"`
}

func (s *sample) Validate(p *config.Problems) {
	s.validated = true
	if s.Count < 0 {
		p.Addf("count", "is %d, expected 0 or more", s.Count)
	}
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "freeslot.yaml")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// lines are the problems of err, without the name of the file.
func lines(t *testing.T, err error, file string) []string {
	t.Helper()
	var problems config.Problems
	if !errors.As(err, &problems) {
		t.Fatalf("error is %T %v, expected Problems", err, err)
	}
	return strings.Split(strings.ReplaceAll(err.Error(), file, "FILE"), "\n")
}

func TestLoadPrecedence(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "name: file\ncount: 2\nwait: 2s\nredis:\n  url: file\n  pool_size: 2\n")
	defaults := sample{Name: "default", Count: 1, Wait: time.Second, Ratio: 0.5}
	got, err := config.Load(defaults, config.Options{
		File:    file,
		Environ: []string{"FREESLOT_COUNT=3", "FREESLOT_REDIS__POOL_SIZE=3", "FREESLOT_WAIT=3s", "OTHER=1"},
		Flags:   []config.Flag{{Name: "--wait", Path: "wait", Value: "4s"}, {Name: "--set", Path: "wait", Value: "5s"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := sample{Name: "file", Count: 3, Wait: 5 * time.Second, Ratio: 0.5, validated: true}
	want.Redis.URL, want.Redis.Pool = "file", 3
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(sample{})); diff != "" {
		t.Error(diff)
	}
}

func TestLoadEveryKind(t *testing.T) {
	t.Parallel()
	yes := true
	want := sample{
		Name: "n", Wait: 90 * time.Second, Count: -0, Ratio: 2, On: true, Maybe: &yes,
		Tags:     []string{"a", "b"},
		Labels:   map[string]string{"zone": "eu", "gpu.model": "a100"},
		Features: map[string]bool{"fast": true},
		Secret:   "s",
		Items:    []sampleItem{{ID: "x", Wait: time.Second}, {ID: "y"}},

		validated: true,
	}
	want.Redis.URL = "u"
	sources := map[string]config.Options{
		"file": {File: writeFile(t, `
name: n
wait: 1m30s
ratio: 2
on: true
maybe: true
tags: [a, b]
labels: {zone: eu, gpu.model: a100}
features: {fast: true}
secret: s
redis: {url: u}
items:
  - {id: x, wait: 1s}
  - id: y
`)},
		"environment": {Environ: []string{
			"FREESLOT_NAME=n", "FREESLOT_WAIT=1m30s", "FREESLOT_RATIO=2", "FREESLOT_ON=yes",
			"FREESLOT_MAYBE=1", "FREESLOT_TAGS=a, b", "FREESLOT_LABELS=zone=eu,gpu.model=a100", "FREESLOT_FEATURES__FAST=true",
			"FREESLOT_SECRET=s", "FREESLOT_REDIS__URL=u", "FREESLOT_ITEMS=[{id: x, wait: 1s}, {id: y}]",
		}},
	}
	for name, opts := range sources {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if opts.Environ == nil {
				opts.Environ = []string{}
			}
			got, err := config.Load(sample{}, opts)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(sample{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLoadReportsEverything(t *testing.T) {
	t.Parallel()
	file := writeFile(t, `
nmae: x
wait: 8
count: 1.5
ratio: half
on: 1
tags: a
labels: [a]
secret: {token: hidden}
redis:
  uri: x
  url: [hidden]
redis_url: x
items:
  - {id: 7, wiat: 1s, wait: soon}
zzzzzzzzzzzz: 1
`)
	_, err := config.Load(sample{Count: -1}, config.Options{
		File:    file,
		Environ: []string{"FREESLOT_MAYBE=perhaps", "FREESLOT_REDIS__POOL_SIZE=ten", "FREESLOT_REDIS_POOL_SIZE=1", "FREESLOT_TOKEN=belongs to schedctl"},
		Flags:   []config.Flag{{Name: "--features", Path: "features", Value: "fast"}},
	})
	const known = "expected name, wait, count, ratio, on, maybe, tags, labels, features, secret, redis or items"
	want := []string{
		`count is 1.5, expected a whole number (from FILE:4)`,
		`count is -1, expected 0 or more (from FILE:4)`,
		`features is a text, expected names with values such as {a: 1, b: 2} (from --features)`,
		`items[0].id is 7, expected a text (put it in quotes) (from FILE:15)`,
		`items[0].wait is "soon", expected a duration such as 500ms, 8s or 1h30m (from FILE:15)`,
		`items[0].wiat is not a key of the configuration, expected id or wait (from FILE:15)`,
		`labels is a list, expected names with values such as {a: 1, b: 2} (from FILE:8)`,
		`maybe is "perhaps", expected true or false (from FREESLOT_MAYBE)`,
		`nmae is not a key of the configuration, ` + known + ` (from FILE:2)`,
		`on is 1, expected true or false (from FILE:6)`,
		`ratio is "half", expected a number (from FILE:5)`,
		`redis.pool_size is "ten", expected a whole number (from FREESLOT_REDIS__POOL_SIZE)`,
		`redis.uri is not a key of the configuration, expected url or pool_size (from FILE:11)`,
		`redis.url is a list, expected a text (put it in quotes) (from FILE:12)`,
		`redis_pool_size is not a key of the configuration, ` + known + ` (from FREESLOT_REDIS_POOL_SIZE)`,
		`redis_url is not a key of the configuration, ` + known + ` (from FILE:13)`,
		`secret is a section, expected a text (put it in quotes) (from FILE:9)`,
		`tags is a text, expected a list such as [a, b] (from FILE:7)`,
		`wait is 8, expected a duration such as 500ms, 8s or 1h30m (from FILE:3)`,
		`zzzzzzzzzzzz is not a key of the configuration, ` + known + ` (from FILE:16)`,
	}
	if diff := cmp.Diff(want, lines(t, err, file)); diff != "" {
		t.Error(diff)
	}
}

// TestProblemsNameTheLine: also inside lists and maps, after anchors, and when the key is missing.
func TestProblemsNameTheLine(t *testing.T) {
	t.Parallel()
	file := writeFile(t, `
one: &one
  id: x
  wait: soon
redis: {pool_size: ten}
labels:
  gpu.model: 7
  "": 7
features:
  - fast
items:
  - *one
  - id: [x]

  -
    wait: &s 1
`)
	_, err := config.Load(sample{}, config.Options{File: file, Environ: []string{}})
	var got []string
	for _, l := range lines(t, err, file) {
		path, _, _ := strings.Cut(l, " ")
		got = append(got, path+l[strings.LastIndex(l, ":"):len(l)-1])
	}
	want := []string{
		"features:9", "items[0].wait:4", "items[1].id:13", "items[2].wait:16", "labels.:8", "labels.gpu.model:7", "one:2", "redis.pool_size:5",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestSecretsAreNotShown: not even when a list or section that can contain one is malformed.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	for _, variable := range []string{
		"TOKENS=hidden", "TOKENS={hidden", "TOKENS=[hidden", "TOKENS=[hidden]", "TOKENS={token: hidden}", "TOKENS=[{token: [hidden], tenant: a}]",
		"REDIS=hidden", "REDIS=[hidden]", "REDIS={url: {a: hidden}}", "REDIS__URL=[hidden", "REDIS__URLS=hidden,hidden", "REDIS__URLS={a: hidden}",
		"LOCKLESS_CACHE__REDIS_URL=hidden",
	} {
		_, err := config.LoadReplica(config.Options{Environ: []string{"FREESLOT_" + variable}})
		if err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf(`%s: %v; want an error, not strings.Contains(err.Error(), "hidden")`, variable, err)
		}
	}
}

func TestLoadBadFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ content, want string }{
		"empty":     {content: ""},
		"comments":  {content: "# nothing\n"},
		"null":      {content: "redis:\nname:\n"},
		"syntax":    {content: "name: [a\n", want: `FILE: line 2: did not find expected ',' or ']'`},
		"in a list": {content: "name: a\n\nhosts: [a\nnone: b\n", want: `FILE: line 3: did not find expected ',' or ']'`},
		"in a map":  {content: "name: a\n\nhosts: {a: b\nnone: b: c\n", want: `FILE: line 3: did not find expected ',' or '}'`},
		"quote":     {content: "name: a\n\nhosts: \"a\n", want: `FILE: line 3: found unexpected end of stream`},
		"tab":       {content: "redis:\n\turl: x\n", want: `FILE: line 2: found character that cannot start any token`},
		"twice":     {content: "name: a\nname: b\n", want: `FILE: line 2: mapping key "name" already defined at line 1`},
		"TOML":      {content: "name = 1\n", want: `FILE: is not a mapping, expected lines such as "key: value"; TOML needs a name that ends in .toml`},
		"list":      {content: "- a\n", want: `FILE: is not a mapping, expected lines such as "key: value"`},
		"documents": {content: "name: a\n---\nname: b\n", want: `FILE: holds more than one YAML document, expected one`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := writeFile(t, c.content)
			_, err := config.Load(sample{}, config.Options{File: file, Environ: []string{}})
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if diff := cmp.Diff([]string{c.want}, lines(t, err, file)); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		t.Parallel()
		_, err := config.Load(sample{}, config.Options{File: "/nowhere/freeslot.yaml", Environ: []string{}})
		want := []string{"cannot read the configuration file FILE: no such file or directory"}
		if diff := cmp.Diff(want, lines(t, err, "/nowhere/freeslot.yaml")); diff != "" {
			t.Error(diff)
		}
	})
}

func TestLoadLeavesDefaultsAlone(t *testing.T) {
	t.Parallel()
	defaults := sample{Labels: map[string]string{"zone": "eu"}, Tags: []string{"a"}}
	got, err := config.Load(defaults, config.Options{Environ: []string{"FREESLOT_LABELS__RACK=7", "FREESLOT_TAGS=b"}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"zone": "eu", "rack": "7"}, got.Labels); diff != "" {
		t.Error("maps merge by key:", diff)
	}
	if diff := cmp.Diff([]string{"b"}, got.Tags); diff != "" {
		t.Error("lists are replaced:", diff)
	}
	if diff := cmp.Diff(map[string]string{"zone": "eu"}, defaults.Labels); diff != "" {
		t.Error("the caller's defaults changed:", diff)
	}
}

func TestFormatDuration(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"1h": time.Hour, "1h30m": 90 * time.Minute, "1m": time.Minute, "1m30s": 90 * time.Second, "50ms": 50 * time.Millisecond, "0s": 0, "10s": 10 * time.Second,
	} {
		if got := config.FormatDuration(d); got != want {
			t.Errorf("FormatDuration(%v) is %q, expected %q", d, got, want)
		}
	}
}

// TestForeignVariables: variables with our prefix that are no keys. An agent may run one of our
// commands, and a developer's shell has variables for the tests.
func TestForeignVariables(t *testing.T) {
	t.Parallel()
	environ := []string{
		"FREESLOT_CONFIG=x", "FREESLOT_SERVER=x", "FREESLOT_TOKEN=x", "FREESLOT_TOKEN_FILE=x",
		"FREESLOT_NO_DOCKER=1", "FREESLOT_TEST_REDIS_SERVER=x", "FREESLOT_TEST_REDIS_IMAGE=x",
		"FREESLOT_JOB_ID=x", "FREESLOT_ATTEMPT=1", "FREESLOT_TENANT=x", "FREESLOT_SERVICE=x", "FREESLOT_SLOTS=1",
		"FREESLOT_POOL=x", "FREESLOT_SOURCE_LANGUAGE=en", "FREESLOT_TARGET_LANGUAGE=de", "FREESLOT_PAYLOAD_TEXT=x", "FREESLOT_PAYLOAD_A__B=x",
	}
	if _, err := config.LoadReplica(config.Options{Environ: environ}); err != nil {
		t.Error(err)
	}
	if _, err := config.LoadReplica(config.Options{Environ: []string{"FREESLOT_JOB=x"}}); err == nil {
		t.Error("an unknown variable is accepted")
	}
	foreign := make(map[string]bool)
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		foreign[name] = true
	}
	for _, k := range reference.Keys(config.DefaultReplica()) {
		if name := k.Env(); foreign[name] || strings.HasPrefix(name, "FREESLOT_TEST_") || strings.HasPrefix(name, "FREESLOT_PAYLOAD_") {
			t.Errorf("%s can never be set by its variable %s", k.Path, name)
		}
	}
}
