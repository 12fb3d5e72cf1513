package helm

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestRefused: values that cannot work are refused before anything is installed, by a message that
// names the value.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set, path string
		to        any
		want      []string
	}{
		{"trial", "replicas.cuont", 3, []string{"/replicas", "'cuont' not allowed"}},
		{"trial", "replica.count", 3, []string{"'replica' not allowed"}},
		{"trial", "replicas.count", "three", []string{"/replicas/count", "want integer"}},
		{"trial", "replicas.config.lisen", ":7480", []string{"/replicas/config", "'lisen' not allowed"}},
		{"trial", "replicas.config.tokens", []any{map[string]any{"token": "secret"}}, []string{"/replicas/config", "'tokens' not allowed"}},
		{"trial", "replicas.config.gateway.listen", ":7481", []string{"/replicas/config/gateway", "'listen' not allowed"}},
		{"trial", "nodes.groups.cpu.knid", "DaemonSet", []string{"/nodes/groups/cpu", "'knid' not allowed"}},
		{"trial", "nodes.groups.cpu.config.servces", []any{}, []string{"/nodes/groups/cpu/config", "'servces' not allowed"}},
		{"trial", "nodes.groups.CPU.kind", "DaemonSet", []string{"/nodes/groups", "'CPU' not allowed"}},
		{"trial", "redis.connections", 3, []string{"/redis/connections", "1, 2, 4, 8"}},
		{"trial", "image.tag", "", []string{"/image/tag"}},
		{"trial", "replicas.behindProxy", false, []string{"replicas.tls.secretName is empty, expected a Secret with tls.crt and tls.key"}},
		{"trial", "replicas.nodeTokensSecret.name", "", []string{"replicas.nodeTokensSecret.name is empty, expected the Secret"}},
		{"trial", "nodes.groups.cpu.tokenSecret.name", "", []string{"nodes.groups.cpu.tokenSecret.name is empty", "schedctl nodes token 'freeslot-cpu-*'"}},
		{"trial", "redis.trial.enabled", false, []string{"redis.url is empty, expected your Redis"}},
		{"trial", "redis.url", "redis://redis:6379", []string{"redis.trial.enabled and redis.url are set, expected one"}},
		{"server", "redis.urls", []any{"redis://redis:6379"}, []string{"redis.url and redis.urls are set, expected one"}},
		{"server", "redis.url", "redis://replica:secret@redis:6379", []string{"redis or replicas.config has a URL with a password"}},
		{"server", "redis.url", "http://redis:6379", []string{"/redis/url"}},
		{"managed", "replicas.config.lists.sources.crm.url", "postgres://reader:secret@crm/crm", []string{"redis or replicas.config has a URL with a password"}},
		{
			"trial", "nodes.groups.cpu.config.services",
			[]any{map[string]any{"name": "tts", "http": map[string]any{"url": "http://127.0.0.1:8000", "headers": map[string]any{"Authorization": "Bearer secret"}}}},
			[]string{"nodes.groups.cpu.config has a header with a secret"},
		},
		{"gpu", "nodes.groups.whisper.config.node.labels.gpu", "A100", []string{"nodes.groups.whisper has the label gpu in config and in labelsFromNode"}},
		{"gpu", "nodes.groups.whisper.labelsFromNode.image", "", []string{"nodes.groups.whisper.labelsFromNode.image is empty, expected an image"}},
		{"gpu", "replicas.autoscaling", map[string]any{"enabled": true, "cpuPercent": 0}, []string{"replicas.autoscaling has neither cpuPercent nor sessions"}},
	} {
		values := exampleValues(t, c.set)
		setValue(values, c.path, c.to)
		_, err := render(t, values)
		if err == nil {
			t.Errorf("%s with %s of %v is accepted; want a refusal", c.set, c.path, c.to)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s with %s of %v: %v; want %q", c.set, c.path, c.to, err, want)
			}
		}
	}
}

// schema is the part of a JSON schema that tests look at.
type schema struct {
	Ref                  string            `json:"$ref"`
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties any               `json:"additionalProperties"`
	Definitions          map[string]schema `json:"definitions"`
}

func loadSchema(t *testing.T) schema {
	t.Helper()
	var s schema
	if err := json.Unmarshal([]byte(readFile(t, "deploy/helm/freeslot/values.schema.json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSchema: the schema knows each value of values.yaml and no others, so that what is documented
// can be set and nothing else can.
func TestSchema(t *testing.T) {
	t.Parallel()
	var values map[string]any
	if err := yaml.UnmarshalStrict([]byte(readFile(t, "deploy/helm/freeslot/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	top := loadSchema(t)
	delete(top.Properties, "global") // Helm's own
	compareKeys(t, top, top, "", values)
}

func compareKeys(t *testing.T, top, s schema, at string, values map[string]any) {
	t.Helper()
	if s.Ref != "" {
		s = top.Definitions[strings.TrimPrefix(s.Ref, "#/definitions/")]
	}
	if s.Properties == nil || strings.HasSuffix(at, "config.") || strings.HasSuffix(at, "resources.") {
		return
	}
	if s.AdditionalProperties != false {
		t.Errorf("%sother keys are %v; want false", at, s.AdditionalProperties)
	}
	got, want := slices.Sorted(maps.Keys(values)), slices.Sorted(maps.Keys(s.Properties))
	if !slices.Equal(got, want) {
		t.Errorf("%s has the values %v; want those of the schema, %v", at, got, want)
	}
	for name, value := range values {
		if inner, ok := value.(map[string]any); ok {
			compareKeys(t, top, s.Properties[name], at+name+".", inner)
		}
	}
}

var (
	referenceKey = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|")
	valueLine    = regexp.MustCompile(`^\s*[a-zA-Z]+: .`)
)

// TestConfigKeys: the free parts of the values take each key of the programs' configurations, but
// those that the chart sets itself.
func TestConfigKeys(t *testing.T) {
	t.Parallel()
	top := loadSchema(t)
	for file, c := range map[string]struct {
		schema schema
		own    []string
	}{
		"scheduler-config.md": {top.Properties["replicas"].Properties["config"], []string{
			"listen", "tls", "behind_proxy", "metrics_listen", "replica_id", "advertise", "redis", "tokens", "tokens_file", "drain_timeout",
			"lockless_cache", // names of earlier designs
		}},
		"nodeagent-config.md": {top.Definitions["group"].Properties["config"], []string{
			"gateway", "token_file", "gateway_tls", "gateway_insecure", "metrics_listen", "stop_timeout",
			"redis", "registry", // of nodes without a gateway
		}},
	} {
		want := map[string]bool{}
		for _, m := range referenceKey.FindAllStringSubmatch(readFile(t, "docs/reference/"+file), -1) {
			want[m[1]] = true
		}
		for _, own := range c.own {
			if !want[own] {
				t.Errorf("%s has no key %s, which the chart sets; want one", file, own)
			}
			delete(want, own)
		}
		got := slices.Sorted(maps.Keys(c.schema.Properties))
		if wanted := slices.Sorted(maps.Keys(want)); !slices.Equal(got, wanted) {
			t.Errorf("config takes\n%v; want the keys of %s\n%v", got, file, wanted)
		}
	}
}

// TestComments: a comment of one line says what each value means.
func TestComments(t *testing.T) {
	t.Parallel()
	lines := strings.Split(readFile(t, "deploy/helm/freeslot/values.yaml"), "\n")
	for i, line := range lines {
		if !valueLine.MatchString(line) || strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		comment := strings.TrimSpace(lines[i-1])
		if !strings.HasPrefix(comment, "# ") || !strings.HasSuffix(comment, ".") || strings.HasPrefix(strings.TrimSpace(lines[i-2]), "#") {
			t.Errorf("line %d, %q, comes after %q; want a comment of one line", i+1, line, comment)
		}
	}
}

// TestNoSecrets: no rendered object holds a secret; pods get them as files.
func TestNoSecrets(t *testing.T) {
	t.Parallel()
	for _, set := range sets {
		o := example(t, set, nil)
		for _, w := range o.workloads() {
			for _, c := range w.pod.Spec.Containers {
				for _, e := range c.Env {
					if e.ValueFrom == nil && !slices.Contains([]string{"FREESLOT_ADVERTISE", "FREESLOT_NODE__ID", "HOME", "NVIDIA_DRIVER_CAPABILITIES"}, e.Name) {
						t.Errorf("%s: %s has %s=%s; want no other values in the environment", set, w.name, e.Name, e.Value)
					}
				}
			}
			for _, v := range w.pod.Spec.Volumes {
				if v.Secret != nil && (v.Secret.DefaultMode == nil || *v.Secret.DefaultMode != 0o440) {
					t.Errorf("%s: %s mounts %s with another mode; want 0440, for its group alone", set, w.name, v.Secret.SecretName)
				}
				if v.Name == "ca" && (len(v.Secret.Items) != 1 || v.Secret.Items[0].Path != "ca.crt") {
					t.Errorf("%s: %s gets %v of the replicas' certificate; want the authority alone", set, w.name, v.Secret.Items)
				}
			}
		}
	}
}
