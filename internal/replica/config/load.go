package config

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"
)

// EnvPrefix begins the name of every environment variable that [Load] reads.
const EnvPrefix = "FREESLOT_"

// foreignEnv holds patterns of variables that begin with EnvPrefix and are not configuration keys.
// A key whose name fits one of them cannot be set by a variable: agents have one, token_file.
var foreignEnv = []string{
	// For the command lines.
	"FREESLOT_CONFIG", "FREESLOT_SERVER", "FREESLOT_TOKEN", "FREESLOT_TOKEN_FILE", "FREESLOT_TOKEN_COMMAND",
	"FREESLOT_CA_FILE", "FREESLOT_CERT_FILE", "FREESLOT_KEY_FILE", "FREESLOT_SERVER_NAME",
	// For the tests.
	"FREESLOT_NO_DOCKER", "FREESLOT_TEST_*",
	// An agent sets these for the commands that it runs, which may be schedctl or an agent.
	"FREESLOT_JOB_ID", "FREESLOT_ATTEMPT", "FREESLOT_TENANT", "FREESLOT_SERVICE", "FREESLOT_SLOTS", "FREESLOT_POOL",
	"FREESLOT_SOURCE_LANGUAGE", "FREESLOT_TARGET_LANGUAGE", "FREESLOT_PAYLOAD_*",
}

// Options are the sources of a configuration. The zero value reads only the environment.
type Options struct {
	// File is the path of a YAML file, or of a TOML file if it ends in ".toml"; empty means none.
	File string
	// Environ is the environment in the form of os.Environ; nil means the process' own.
	Environ []string
	// Flags are the settings of the command line. If two have the same path, the later one wins.
	Flags []Flag
}

// Flag is one setting of the command line.
type Flag struct {
	// Name is the flag as the user typed it ("--redis-url"), for error messages.
	Name string
	// Path is the key that it sets ("redis.url").
	Path  string
	Value string
}

// Config is a struct that [Load] fills, with a Validate method that records everything wrong with
// the values. Validate is called with defaults applied. It is called even if there are other
// problems, so it must cope with any value of the field types.
type Config[T any] interface {
	*T
	Validate(p *Problems)
}

// Resolver is a configuration with work to do between decoding and Validate: follow old names, read
// files. isSet reports whether the file, the environment or a flag gave the key at path a value.
type Resolver interface {
	Resolve(isSet func(path string) bool, p *Problems)
}

// Load reads a configuration over defaults. The error is [Problems].
func Load[T any, P Config[T]](defaults T, opts Options) (T, error) {
	cfg, problems := load[T, P](defaults, opts)
	if len(problems) > 0 {
		return defaults, problems
	}
	return cfg, nil
}

// load also returns a configuration that has problems.
func load[T any, P Config[T]](defaults T, opts Options) (cfg T, problems Problems) {
	cfg = defaults
	layers := readLayers(opts, &problems)
	merged := koanf.New(".")
	for _, l := range layers {
		problems.Add("", merged.Merge(l.values))
	}
	problems = append(problems, Decode(merged.Raw(), &cfg)...)
	if r, ok := any(&cfg).(Resolver); ok {
		r.Resolve(func(path string) bool { return layers.find(path) != nil }, &problems)
	}
	P(&cfg).Validate(&problems)
	for i, p := range problems {
		if l := layers.find(p.Path); l != nil {
			problems[i].Source = l.source(p.Path)
		}
	}
	problems.sort()
	return cfg, slices.Compact(problems)
}

// layer is one source of values.
type layer struct {
	values *koanf.Koanf
	// source names the origin of the value at a path.
	source func(path string) string
}

// layers are ordered by rising precedence.
type layers []layer

// find returns the layer that decides the value at path; nil if it is a default.
func (ls layers) find(path string) *layer {
	path, _, _ = strings.Cut(path, "[")
	if path == "" {
		return nil
	}
	for i := range slices.Backward(ls) {
		if ls[i].values.Exists(path) {
			return &ls[i]
		}
	}
	return nil
}

func readLayers(opts Options, problems *Problems) layers {
	var ls layers
	if opts.File != "" {
		ls = append(ls, readFile(opts.File, problems))
	}
	return append(ls, readEnv(opts.Environ), readFlags(opts.Flags))
}

func readFile(name string, problems *Problems) layer {
	values := koanf.New(".")
	lineOf := func(string) int { return 1 }
	data, err := os.ReadFile(name)
	if err != nil {
		problems.Addf("", "cannot read the configuration file %s: %v", name, fsCause(err))
	} else if document, lines, err := parseFile(name, data); err != nil {
		problems.Addf("", "%s: %v", name, err)
	} else {
		lineOf = lines
		problems.Add("", values.Load(confmap.Provider(document, ""), nil))
	}
	return layer{values, func(path string) string { return name + ":" + strconv.Itoa(lineOf(path)) }}
}

// parseFile also returns a function that finds the line of the value at a path.
func parseFile(name string, data []byte) (map[string]any, func(path string) int, error) {
	if strings.EqualFold(filepath.Ext(name), ".toml") {
		return parseTOML(data)
	}
	var root yaml.Node
	document, err := parseDocument(data, &root)
	if err != nil && toml.Unmarshal(data, new(map[string]any)) == nil {
		err = fmt.Errorf("%w; TOML needs a name that ends in .toml", err)
	}
	return document, func(path string) int { return line(&root, path) }, err
}

func readEnv(environ []string) layer {
	if environ == nil {
		environ = os.Environ()
	}
	values := koanf.New(".")
	for _, variable := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(variable, "=")
		if path, ok := strings.CutPrefix(name, EnvPrefix); ok && !foreign(name) {
			_ = values.Set(strings.ReplaceAll(strings.ToLower(path), "__", "."), text(value)) // never fails
		}
	}
	return layer{values, EnvName}
}

func foreign(name string) bool {
	return slices.ContainsFunc(foreignEnv, func(pattern string) bool {
		ok, _ := path.Match(pattern, name)
		return ok
	})
}

// EnvName returns the name of the variable that sets the key at path: FREESLOT_REDIS__URL for
// redis.url.
func EnvName(path string) string {
	path, _, _ = strings.Cut(path, "[")
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "__"))
}

func readFlags(flags []Flag) layer {
	values, names := koanf.New("."), map[string]string{}
	for _, f := range flags {
		_ = values.Set(f.Path, text(f.Value)) // never fails
		names[f.Path] = f.Name
	}
	return layer{values, func(path string) string {
		path, _, _ = strings.Cut(path, "[")
		return names[path]
	}}
}
