package config

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
)

// EnvPrefix begins the name of every environment variable that [Load] reads.
const EnvPrefix = "FREESLOT_"

// foreignEnv are patterns of variables that begin with EnvPrefix and are no
// configuration keys. No key may have a name that one of them fits.
var foreignEnv = []string{
	// What the command lines read.
	"FREESLOT_CONFIG", "FREESLOT_SERVER", "FREESLOT_TOKEN", "FREESLOT_TOKEN_FILE",
	// What developers set for the tests.
	"FREESLOT_NO_DOCKER", "FREESLOT_TEST_*",
	// What an agent sets for the commands that it runs, which may be ours.
	"FREESLOT_JOB_ID", "FREESLOT_ATTEMPT", "FREESLOT_TENANT", "FREESLOT_SERVICE", "FREESLOT_SLOTS", "FREESLOT_POOL",
	"FREESLOT_SOURCE_LANGUAGE", "FREESLOT_TARGET_LANGUAGE", "FREESLOT_PAYLOAD_*",
}

// Options says where a configuration comes from. The zero value reads only the
// environment.
type Options struct {
	// File is the path of a YAML file; empty means none.
	File string
	// Environ is the environment as os.Environ has it; nil means the process'.
	Environ []string
	// Flags are what the command line sets. Of two with the same path the later wins.
	Flags []Flag
}

// Flag is one setting of the command line.
type Flag struct {
	// Name is what the user typed ("--redis-url"), for error messages.
	Name string
	// Path is the key that it sets ("redis.url").
	Path  string
	Value string
}

// Config is what [Load] fills: a struct with a Validate method that notes
// everything wrong with the values. Validate is called with defaults applied,
// and also when other problems are known already, so that it must cope with
// any value of the field types.
type Config[T any] interface {
	*T
	Validate(p *Problems)
}

// Resolver is implemented by configurations that have work to do between
// decoding and Validate: follow old names, read files. isSet reports whether
// the file, the environment or a flag gave the key at path a value.
type Resolver interface {
	Resolve(isSet func(path string) bool, p *Problems)
}

// Load reads a configuration over defaults. The error is [Problems].
func Load[T any, P Config[T]](defaults T, opts Options) (T, error) {
	cfg := defaults
	var problems Problems
	layers := readLayers(opts, &problems)
	merged := koanf.New(".")
	for _, l := range layers {
		// The confmap provider copies, so that merging leaves the layers as they are.
		if err := merged.Load(confmap.Provider(l.values.Raw(), ""), nil); err != nil {
			problems.Add("", err)
		}
	}
	known := Keys(cfg)
	dec := decoder{problems: &problems, known: known}
	dec.structure("", merged.Raw(), reflect.ValueOf(&cfg).Elem())
	if r, ok := any(&cfg).(Resolver); ok {
		r.Resolve(func(path string) bool { return layers.find(path) != nil }, &problems)
	}
	P(&cfg).Validate(&problems)
	if len(problems) == 0 {
		return cfg, nil
	}
	for i := range problems {
		if l := layers.find(problems[i].Path); l != nil && problems[i].Source == "" {
			problems[i].Source = l.source(problems[i].Path)
		}
	}
	slices.SortStableFunc(problems, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) })
	return defaults, slices.Compact(problems)
}

// layer is one source of values.
type layer struct {
	values *koanf.Koanf
	// source names the origin of the value at a path.
	source func(path string) string
}

// layers are ordered by rising precedence.
type layers []layer

// find returns the layer that decides the value at path, nil when it is a default.
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
	l := layer{values: koanf.New("."), source: func(string) string { return name }}
	var pathError *fs.PathError
	switch err := l.values.Load(file.Provider(name), strictYAML{}); {
	case errors.As(err, &pathError):
		problems.Addf("", "cannot read the configuration file %s: %v", name, pathError.Err)
	case err != nil:
		problems.Addf("", "%s: %v", name, err)
	}
	return l
}

func readEnv(environ []string) layer {
	if environ == nil {
		environ = os.Environ()
	}
	l := layer{values: koanf.New("."), source: EnvName}
	// An environment that cannot be read as a map does not exist: the provider
	// has no other error.
	_ = l.values.Load(env.Provider(".", env.Opt{
		Prefix:      EnvPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			if foreign(name) {
				return "", nil
			}
			return envPath(name), text(value)
		},
	}), nil)
	return l
}

func foreign(name string) bool {
	return slices.ContainsFunc(foreignEnv, func(pattern string) bool {
		ok, _ := path.Match(pattern, name)
		return ok
	})
}

// envPath is the key that a variable sets: redis.url for FREESLOT_REDIS__URL.
func envPath(name string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, EnvPrefix)), "__", ".")
}

// EnvName is the variable that sets the key at path: FREESLOT_REDIS__URL for redis.url.
func EnvName(path string) string {
	path, _, _ = strings.Cut(path, "[")
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "__"))
}

func readFlags(flags []Flag) layer {
	l := layer{values: koanf.New(".")}
	names := make(map[string]string, len(flags))
	for _, f := range flags {
		_ = l.values.Load(confmap.Provider(map[string]any{f.Path: text(f.Value)}, "."), nil)
		names[f.Path] = f.Name
	}
	l.source = func(path string) string {
		path, _, _ = strings.Cut(path, "[")
		return names[path]
	}
	return l
}
