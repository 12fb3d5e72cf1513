package boards

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const examples = "../../deploy/autoscaling/"

// scaledObject has the fields of KEDA's kind that the examples use, as in its CRD.
type scaledObject struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		ScaleTargetRef  struct{ Name string } `yaml:"scaleTargetRef"`
		MinReplicaCount int                   `yaml:"minReplicaCount"`
		MaxReplicaCount int                   `yaml:"maxReplicaCount"`
		PollingInterval int                   `yaml:"pollingInterval"`
		Advanced        struct {
			HPA struct {
				Behavior struct {
					ScaleDown struct {
						Window int `yaml:"stabilizationWindowSeconds"`
					} `yaml:"scaleDown"`
				}
			} `yaml:"horizontalPodAutoscalerConfig"`
		}
		Triggers []trigger
		// Of a TriggerAuthentication.
		SecretTargetRef []struct{ Parameter, Name, Key string } `yaml:"secretTargetRef"`
	}
}

type trigger struct {
	Type              string
	MetricType        string `yaml:"metricType"`
	Metadata          map[string]string
	AuthenticationRef struct{ Name string } `yaml:"authenticationRef"`
}

// autoscaler has the fields of autoscaling/v2 that the example uses.
type autoscaler struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		ScaleTargetRef struct {
			APIVersion string `yaml:"apiVersion"`
			Kind, Name string
		} `yaml:"scaleTargetRef"`
		MinReplicas int `yaml:"minReplicas"`
		MaxReplicas int `yaml:"maxReplicas"`
		Behavior    struct {
			ScaleDown struct {
				Window int `yaml:"stabilizationWindowSeconds"`
			} `yaml:"scaleDown"`
		}
		Metrics []struct {
			Type     string
			External struct {
				Metric struct {
					Name     string
					Selector struct {
						MatchLabels map[string]string `yaml:"matchLabels"`
					}
				}
				Target struct {
					Type         string
					AverageValue string `yaml:"averageValue"`
				}
			}
		}
	}
}

// triggerKeys are the keys that KEDA's scalers know, as far as the examples use them.
var triggerKeys = map[string][]string{
	"prometheus":  {"serverAddress", "query", "threshold", "ignoreNullValues"},
	"metrics-api": {"url", "valueLocation", "targetValue", "authMode"},
}

// decodeExample decodes each document of an example, and refuses unknown fields.
func decodeExample[T any](t *testing.T, file string) (all []T) {
	t.Helper()
	dec := yaml.NewDecoder(bytes.NewReader([]byte(read(t, examples+file))))
	dec.KnownFields(true)
	for {
		var one T
		err := dec.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v; want known fields alone", file, err)
		}
		all = append(all, one)
	}
}

// proposed checks an expression: it parses, and takes the largest proposal of one pool.
func proposed(t *testing.T, file, text string, known declared) {
	t.Helper()
	q, err := Parse(text)
	if err != nil {
		t.Fatalf("%s: %s: %v; want an expression", file, text, err)
	}
	if missing := known.missing(&q); missing != nil {
		t.Errorf("%s uses %v, which no process declares", file, missing)
	}
	if len(q.Uses) != 1 || q.Uses[0].Metric != "freeslot_pool_nodes_wanted" || !q.Aggregates || !strings.HasPrefix(text, "max") {
		t.Errorf("%s: %s; want the largest freeslot_pool_nodes_wanted: every replica reports the same", file, text)
	}
}

// TestScaledObjects: KEDA's objects have only known fields and keys, and read what replicas serve.
func TestScaledObjects(t *testing.T) {
	t.Parallel()
	known, _ := reference(t)
	for _, file := range []string{"keda-prometheus.yaml", "keda-metrics-api.yaml"} {
		secrets, scaled := map[string]bool{}, 0
		for _, o := range decodeExample[scaledObject](t, file) {
			if o.APIVersion != "keda.sh/v1alpha1" || o.Metadata.Name == "" {
				t.Errorf("%s: %+v; want a named object of keda.sh/v1alpha1", file, o)
			}
			if o.Kind == "TriggerAuthentication" {
				secrets[o.Metadata.Name] = len(o.Spec.SecretTargetRef) == 1 && o.Spec.SecretTargetRef[0].Parameter == "token"
				continue
			}
			scaled++
			for _, tr := range o.Spec.Triggers {
				for key := range tr.Metadata {
					if !slices.Contains(triggerKeys[tr.Type], key) {
						t.Errorf("%s: a trigger of type %q does not know %s", file, tr.Type, key)
					}
				}
				switch tr.Type {
				case "prometheus":
					proposed(t, file, tr.Metadata["query"], known)
				case "metrics-api":
					demandPath(t, file, &tr)
					if !secrets[tr.AuthenticationRef.Name] || tr.Metadata["authMode"] != "bearer" {
						t.Errorf("%s has no token for its trigger", file)
					}
				}
			}
			if o.Kind != "ScaledObject" || len(o.Spec.Triggers) != 1 || o.Spec.ScaleTargetRef.Name == "" {
				t.Errorf("%s: %+v; want a ScaledObject with a target and a trigger", file, o)
			}
		}
		if scaled != 1 {
			t.Errorf("%s has %d objects that scale; want one", file, scaled)
		}
	}
}

// demandPath follows the trigger's URL and path through the document of the API.
func demandPath(t *testing.T, file string, tr *trigger) {
	t.Helper()
	type schema struct {
		Ref        string            `json:"$ref"`
		Items      *schema           `json:"items"`
		Properties map[string]schema `json:"properties"`
	}
	var doc struct {
		Paths map[string]struct {
			Get struct {
				Parameters []struct{ Name string }
				Responses  map[string]struct {
					Content map[string]struct{ Schema schema }
				}
			}
		}
		Components struct{ Schemas map[string]schema }
	}
	if err := json.Unmarshal([]byte(read(t, "../../internal/api/testdata/openapi.json")), &doc); err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(tr.Metadata["url"])
	if err != nil {
		t.Fatal(err)
	}
	get := doc.Paths[at.Path].Get
	if len(get.Parameters) != 1 || !at.Query().Has(get.Parameters[0].Name) {
		t.Fatalf("%s: %s; want a path of the API with its parameter", file, at)
	}
	now := get.Responses["200"].Content["application/json"].Schema
	resolve := func() {
		if name, ok := strings.CutPrefix(now.Ref, "#/components/schemas/"); ok {
			now = doc.Components.Schemas[name]
		}
	}
	for _, part := range strings.Split(tr.Metadata["valueLocation"], ".") {
		resolve()
		if part == "0" && now.Items != nil {
			now = *now.Items
			continue
		}
		next, there := now.Properties[part]
		if !there {
			t.Fatalf("%s: the answer of %s has no %s", file, at.Path, tr.Metadata["valueLocation"])
		}
		now = next
	}
}

// TestExternalMetric: the adapter's rule and the autoscaler's metric are those that replicas serve.
func TestExternalMetric(t *testing.T) {
	t.Parallel()
	known, _ := reference(t)
	type adapter struct {
		Rules struct {
			External []struct {
				SeriesQuery  string                    `yaml:"seriesQuery"`
				Resources    struct{ Namespaced bool } `yaml:"resources"`
				MetricsQuery string                    `yaml:"metricsQuery"`
			}
		}
	}
	rules := decodeExample[adapter](t, "prometheus-adapter.yaml")[0].Rules.External
	if len(rules) != 1 || known[rules[0].SeriesQuery] == nil {
		t.Fatalf("%+v; want a rule for a metric that replicas declare", rules)
	}
	filled := strings.NewReplacer("<<.Series>>", rules[0].SeriesQuery, "<<.LabelMatchers>>", `pool="gpu"`)
	proposed(t, "prometheus-adapter.yaml", filled.Replace(rules[0].MetricsQuery), known)
	all := decodeExample[autoscaler](t, "hpa-external.yaml")
	if len(all) != 1 || all[0].APIVersion != "autoscaling/v2" || all[0].Kind != "HorizontalPodAutoscaler" ||
		len(all[0].Spec.Metrics) != 1 || all[0].Spec.Metrics[0].Type != "External" {
		t.Fatalf("%+v; want an autoscaler with an external metric", all)
	}
	h := all[0]
	if target := h.Spec.Metrics[0].External.Target; target.Type != "AverageValue" || target.AverageValue != "1" {
		t.Errorf("the target is %+v; want an average of 1, so that there are as many nodes as proposed", target)
	}
	metric := h.Spec.Metrics[0].External.Metric
	if metric.Name != rules[0].SeriesQuery {
		t.Errorf("the autoscaler asks for %s; want %s, which the adapter serves", metric.Name, rules[0].SeriesQuery)
	}
	for label := range metric.Selector.MatchLabels {
		if !slices.Contains(known[metric.Name], label) {
			t.Errorf("the autoscaler selects by %s, which %s does not have", label, metric.Name)
		}
	}
}
