package config_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/reference"
)

func TestReference(t *testing.T) {
	t.Parallel()
	defaults := config.DefaultReplica()
	defaults.ReplicaID = "" // differs in each call
	defaults.Tokens = []config.Token{{}}
	defaults.Resolve(func(string) bool { return false }, new(config.Problems))
	reference.Check(t, "scheduler-config.md", "Keys", reference.Table(t, defaults))
}

func TestExample(t *testing.T) {
	t.Parallel()
	const name = "../../../deploy/scheduler.example.yaml"
	cfg, err := config.LoadReplica(config.Options{File: name, Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	// Apart from its examples, the file has the defaults.
	cfg.Pools, cfg.ReplicaID = nil, ""
	want := config.DefaultReplica()
	want.ReplicaID = ""
	if diff := cmp.Diff(want, cfg); diff != "" {
		t.Error(diff)
	}
	// The commented keys work too.
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	uncommented := uncomment(string(data))
	for _, path := range []string{"/run/secrets/acme-token", "/run/secrets/operator-token"} {
		uncommented = strings.Replace(uncommented, path, writeFile(t, "secret-of-"+path), 1)
	}
	cfg, problems := loadYAML(t, uncommented)
	if problems != nil {
		t.Fatal(problems)
	}
	if len(cfg.Tokens) != 2 || len(cfg.AllowedOrigins) != 1 || cfg.Tracing.OTLPEndpoint == "" {
		t.Errorf("uncommenting did not work: %+v", cfg)
	}
}

// uncomment drops the "# " before YAML, but not before prose.
func uncomment(s string) string {
	sections := []string{"tokens:", "allowed_origins:", "cache:", "tracing:"}
	inside := false
	var out []string
	for line := range strings.SplitSeq(s, "\n") {
		rest, ok := strings.CutPrefix(line, "# ")
		switch {
		case ok && slices.Contains(sections, rest):
			inside = true
		case !ok || !strings.HasPrefix(rest, " "):
			inside = false
		}
		if inside {
			line = rest
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}
