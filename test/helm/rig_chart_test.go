package helm

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"sigs.k8s.io/yaml"
)

const (
	chartDir  = "../../deploy/helm/freeslot"
	release   = "freeslot"
	namespace = "fleet"
)

// sets are the sets of values that the chart brings.
var sets = []string{"trial", "server", "sentinel", "cluster", "managed", "gpu"}

// exampleValues returns the values of a set.
func exampleValues(t *testing.T, set string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(chartDir, "examples", set+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(data, &values); err != nil {
		t.Fatalf("%s has no YAML: %v", set, err)
	}
	return values
}

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	loaded, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// render returns the rendered templates by name, as `helm template` makes them.
func render(t *testing.T, values map[string]any) (map[string]string, error) {
	t.Helper()
	loaded := loadChart(t)
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(loaded, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(loaded, all)
}

// objects are the objects of a rendered set.
type objects struct {
	t     *testing.T
	all   []runtime.Object
	notes string
	text  string // of all
}

func (o *objects) workloads() []workload {
	var found []workload
	for _, object := range o.all {
		switch w := object.(type) {
		case *apps.Deployment:
			found = append(found, workload{w.Name, w.Kind, w.Spec.Selector, w.Spec.Template})
		case *apps.DaemonSet:
			found = append(found, workload{w.Name, w.Kind, w.Spec.Selector, w.Spec.Template})
		case *apps.StatefulSet:
			found = append(found, workload{w.Name, w.Kind, w.Spec.Selector, w.Spec.Template})
		}
	}
	return found
}

// workload is a Deployment, DaemonSet or StatefulSet.
type workload struct {
	name, kind string
	selector   *meta.LabelSelector
	pod        core.PodTemplateSpec
}

func (w workload) component() string { return w.pod.Labels["app.kubernetes.io/component"] }

// of returns the objects of one type.
func of[T runtime.Object](o *objects) []T {
	var found []T
	for _, object := range o.all {
		if one, ok := object.(T); ok {
			found = append(found, one)
		}
	}
	return found
}

// one returns the only workload of a component, or the one of a group of nodes.
func (o *objects) one(component, group string) workload {
	o.t.Helper()
	for _, w := range o.workloads() {
		if w.component() == component && w.pod.Labels["freeslot/group"] == group {
			return w
		}
	}
	o.t.Fatalf("no workload is %s %s", component, group)
	return workload{}
}

func types() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		apps.AddToScheme, autoscaling.AddToScheme, core.AddToScheme, networking.AddToScheme, policy.AddToScheme, rbac.AddToScheme, monitoring.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}

var documentEnd = regexp.MustCompile(`(?m)^---\s*$`)

// decode decodes each document into its type, and refuses fields that the type does not have.
func decode(t *testing.T, rendered map[string]string) *objects {
	t.Helper()
	scheme := types()
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	found := &objects{t: t}
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			found.notes = rendered[name]
			continue
		}
		found.text += rendered[name]
		for _, document := range documentEnd.Split(rendered[name], -1) {
			if !strings.Contains(document, "kind:") {
				if strings.TrimSpace(document) != "" {
					t.Errorf("%s has a document without a kind; want an object:\n%s", name, document)
				}
				continue
			}
			object, _, err := strict.Decode([]byte(document), nil, nil)
			if err != nil {
				t.Errorf("%s is refused: %v; want fields of its type, in\n%s", name, err, document)
				continue
			}
			found.all = append(found.all, object)
		}
	}
	return found
}

// example renders a set of the chart, changed by change if it is not nil.
func example(t *testing.T, set string, change func(values map[string]any)) *objects {
	t.Helper()
	values := exampleValues(t, set)
	if change != nil {
		change(values)
	}
	rendered, err := render(t, values)
	if err != nil {
		t.Fatalf("%s is not rendered: %v", set, err)
	}
	return decode(t, rendered)
}

// set sets a value by its path of names with dots between.
func setValue(values map[string]any, path string, to any) {
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		next, ok := values[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			values[name] = next
		}
		values = next
	}
	values[names[len(names)-1]] = to
}

func nameOf(object runtime.Object) string {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if named, ok := object.(meta.Object); ok {
		return fmt.Sprintf("%s %s", kind, named.GetName())
	}
	return kind
}
