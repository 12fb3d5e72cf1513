package helm

import (
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// killGrace is the longest kill_grace that an agent accepts.
const killGrace = time.Minute

// TestLint: `helm lint` finds nothing to warn of in any set.
func TestLint(t *testing.T) {
	t.Parallel()
	for _, set := range sets {
		for _, message := range lint.All(chartDir, exampleValues(t, set), namespace, true).Messages {
			if message.Severity > support.InfoSev {
				t.Errorf("%s: %v; want no warning", set, message)
			}
		}
	}
}

// TestExamples: no set of values is forgotten by the other tests.
func TestExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(chartDir, "examples", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		found = append(found, strings.TrimSuffix(filepath.Base(file), ".yaml"))
	}
	if want := slices.Sorted(slices.Values(sets)); !slices.Equal(found, want) {
		t.Errorf("the chart has the values %v; want %v", found, want)
	}
}

// TestObjects: each set makes the objects that it promises, each name once, and no Secret.
func TestObjects(t *testing.T) {
	t.Parallel()
	always := []string{
		"ConfigMap freeslot", "Deployment freeslot", "NetworkPolicy freeslot", "PodDisruptionBudget freeslot", "Service freeslot", "Service freeslot-metrics",
	}
	for set, more := range map[string][]string{
		"trial": {
			"ConfigMap freeslot-cpu", "Deployment freeslot-cpu", "NetworkPolicy freeslot-nodes", "NetworkPolicy freeslot-redis",
			"Service freeslot-nodes-metrics", "Service freeslot-redis", "StatefulSet freeslot-redis",
		},
		"server":   nil,
		"sentinel": {"ServiceMonitor freeslot-scheduler"},
		"cluster":  nil,
		"managed":  {"ConfigMap freeslot-cpu", "Deployment freeslot-cpu", "NetworkPolicy freeslot-nodes", "Service freeslot-nodes-metrics"},
		"gpu": {
			"ClusterRole fleet-freeslot-whisper", "ClusterRoleBinding fleet-freeslot-whisper", "ConfigMap freeslot-tts", "ConfigMap freeslot-whisper",
			"DaemonSet freeslot-whisper", "Deployment freeslot-tts", "HorizontalPodAutoscaler freeslot", "NetworkPolicy freeslot-nodes",
			"NetworkPolicy freeslot-whisper-labels", "Service freeslot-nodes-metrics", "ServiceAccount freeslot-whisper",
			"PrometheusRule freeslot", "ServiceMonitor freeslot-node", "ServiceMonitor freeslot-scheduler",
		},
	} {
		var found []string
		for _, object := range example(t, set, nil).all {
			found = append(found, nameOf(object))
		}
		slices.Sort(found)
		if want := slices.Sorted(slices.Values(append(more, always...))); !slices.Equal(found, want) {
			t.Errorf("%s makes\n%v; want\n%v", set, found, want)
		}
	}
}

// TestPods: the pods of all sets run without rights, with limits, and without service links, whose
// variables would be keys of the configuration.
func TestPods(t *testing.T) {
	t.Parallel()
	for _, set := range sets {
		for _, w := range example(t, set, nil).workloads() {
			pod, at := w.pod.Spec, set+": "+w.name
			if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
				t.Errorf("%s has service links or a token of Kubernetes; want neither", at)
			}
			if s := pod.SecurityContext; s == nil || !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.FSGroup == nil || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s runs with %+v; want a user that is not root, its group for files and the runtime's seccomp profile", at, s)
			}
			if selector, err := meta.LabelSelectorAsSelector(w.selector); err != nil || selector.Empty() || !selector.Matches(labels.Set(w.pod.Labels)) {
				t.Errorf("%s selects %v, %v; want its pods, which have %v", at, w.selector, err, w.pod.Labels)
			}
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				checkContainer(t, at+": "+c.Name, c)
			}
		}
	}
}

func checkContainer(t *testing.T, at string, c core.Container) {
	t.Helper()
	s := c.SecurityContext
	if s == nil || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
		t.Errorf("%s runs with %+v; want a read-only system and no rights", at, s)
	}
	if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
		t.Errorf("%s has the resources %+v; want a limit of memory and a request of CPU", at, c.Resources)
	}
}

// TestProbes: each probe asks an address that the configuration opens, and a restart is far away
// while the program waits for Redis or its replicas.
func TestProbes(t *testing.T) {
	t.Parallel()
	for _, set := range sets {
		o := example(t, set, nil)
		for _, w := range o.workloads() {
			file, ready := map[string]string{"scheduler": "scheduler.yaml", "node": "nodeagent.yaml"}[w.component()], "/healthz"
			if file == "" {
				continue // Redis
			}
			if w.component() == "scheduler" {
				ready = "/readyz"
			}
			c := w.pod.Spec.Containers[0]
			listen := configOf(t, o, w, file)["metrics_listen"]
			for name, probe := range map[string]*core.Probe{"/healthz": c.StartupProbe, "/healthz ": c.LivenessProbe, ready + "  ": c.ReadinessProbe} {
				path := strings.TrimSpace(name)
				if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Scheme != "" {
					t.Errorf("%s: %s: a probe is %+v; want one of %s by http", set, w.name, probe, path)
				} else if port := portOf(c, probe.HTTPGet.Port); listen != ":"+port {
					t.Errorf("%s: %s: a probe asks port %s, and the program listens at %v; want the same", set, w.name, port, listen)
				}
			}
			if s := c.StartupProbe; time.Duration(s.PeriodSeconds*s.FailureThreshold)*time.Second < 24*time.Hour {
				t.Errorf("%s: %s: Kubernetes waits %d times %d s for the start; want a day", set, w.name, s.FailureThreshold, s.PeriodSeconds)
			}
		}
	}
}

// portOf returns the number of a container's port.
func portOf(c core.Container, port intstr.IntOrString) string {
	for _, p := range c.Ports {
		if p.Name == port.StrVal {
			return strconv.Itoa(int(p.ContainerPort))
		}
	}
	return port.String()
}

// configOf returns the configuration in a workload's ConfigMap.
func configOf(t *testing.T, o *objects, w workload, file string) map[string]any {
	t.Helper()
	for _, m := range of[*core.ConfigMap](o) {
		if m.Name == w.name {
			var config map[string]any
			if err := yaml.UnmarshalStrict([]byte(m.Data[file]), &config); err != nil {
				t.Fatalf("%s has no YAML: %v", m.Name, err)
			}
			return config
		}
	}
	t.Fatalf("there is no ConfigMap %s", w.name)
	return nil
}

// TestGrace: Kubernetes gives each program the time that its orderly stop may take, and what comes
// before it.
func TestGrace(t *testing.T) {
	t.Parallel()
	for _, set := range sets {
		o := example(t, set, func(values map[string]any) {
			setValue(values, "replicas.drainSeconds", 40)
			setValue(values, "replicas.preStopSeconds", 7)
			setValue(values, "nodes.defaults.stopSeconds", 300)
		})
		for _, w := range o.workloads() {
			var need time.Duration
			switch w.component() {
			case "scheduler":
				sleep := w.pod.Spec.Containers[0].Lifecycle.PreStop.Sleep.Seconds
				need = duration(t, configOf(t, o, w, "scheduler.yaml")["drain_timeout"]) + time.Duration(sleep)*time.Second
				if need != 47*time.Second {
					t.Errorf("%s: the stop of a replica takes %v; want the 40s and 7s of the values", set, need)
				}
			case "node":
				need = duration(t, configOf(t, o, w, "nodeagent.yaml")["stop_timeout"]) + killGrace
				if want := 300*time.Second + killGrace; need != want && w.pod.Labels["freeslot/group"] != "whisper" {
					t.Errorf("%s: the stop of %s takes %v; want %v, as in the values", set, w.name, need, want)
				}
			}
			if grace := time.Duration(*w.pod.Spec.TerminationGracePeriodSeconds) * time.Second; grace < need+10*time.Second && w.component() != "redis" {
				t.Errorf("%s: %s has %v to stop; want %v and 10s more", set, w.name, grace, need)
			}
		}
	}
}

func duration(t *testing.T, value any) time.Duration {
	t.Helper()
	text, _ := value.(string)
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSelectors: what selects pods or Services finds the right ones, at ports that they have.
func TestSelectors(t *testing.T) {
	t.Parallel()
	for _, set := range sets {
		o := example(t, set, nil)
		for _, s := range of[*core.Service](o) {
			component, found := s.Labels["app.kubernetes.io/component"], 0
			for _, w := range o.workloads() {
				if !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(w.pod.Labels)) {
					continue
				}
				found++
				for _, p := range s.Spec.Ports {
					if got := portOf(w.pod.Spec.Containers[0], p.TargetPort); w.component() != component || got != strconv.Itoa(int(p.Port)) {
						t.Errorf("%s: the Service %s leads from %d to port %s of %s; want the same port of %s", set, s.Name, p.Port, got, w.name, component)
					}
				}
			}
			if found == 0 {
				t.Errorf("%s: the Service %s selects no pods; want some", set, s.Name)
			}
		}
		checkMonitors(t, set, o)
		budget := of[*policy.PodDisruptionBudget](o)[0]
		selector, err := meta.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range o.workloads() {
			if got, want := selector.Matches(labels.Set(w.pod.Labels)), w.component() == "scheduler"; got != want {
				t.Errorf("%s: the disruption budget selects %s: %t; want %t", set, w.name, got, want)
			}
		}
		for _, spread := range o.one("scheduler", "").pod.Spec.TopologySpreadConstraints {
			if !labels.SelectorFromSet(spread.LabelSelector.MatchLabels).Matches(labels.Set(o.one("scheduler", "").pod.Labels)) {
				t.Errorf("%s: the spread over %s does not select the replicas; want them", set, spread.TopologyKey)
			}
		}
	}
}

// checkMonitors: each ServiceMonitor selects one Service, and gives its series the job that the
// alerts and boards ask for.
func checkMonitors(t *testing.T, set string, o *objects) {
	t.Helper()
	for _, m := range of[*monitoring.ServiceMonitor](o) {
		var found []string
		for _, s := range of[*core.Service](o) {
			if labels.SelectorFromSet(m.Spec.Selector.MatchLabels).Matches(labels.Set(s.Labels)) && s.Spec.Ports[0].Name == m.Spec.Endpoints[0].Port {
				found = append(found, s.Name)
			}
		}
		component := m.Labels["app.kubernetes.io/component"]
		service := map[string]string{"scheduler": "freeslot-metrics", "node": "freeslot-nodes-metrics"}[component]
		if !slices.Equal(found, []string{service}) {
			t.Errorf("%s: %s selects the Services %v; want %s", set, m.Name, found, service)
		}
		job := map[string]string{"scheduler": "freeslot", "node": "freeslot-agents"}[component]
		if r := m.Spec.Endpoints[0].RelabelConfigs[0]; r.TargetLabel != "job" || *r.Replacement != job {
			t.Errorf("%s: %s sets %s to %s; want the job %s", set, m.Name, r.TargetLabel, *r.Replacement, job)
		}
	}
}

// TestAutoscaling: the autoscaler alone sets the number of replicas where there is one, by the
// metrics that the values name.
func TestAutoscaling(t *testing.T) {
	t.Parallel()
	o := example(t, "gpu", nil)
	scaler := of[*autoscaling.HorizontalPodAutoscaler](o)[0]
	for _, d := range of[*apps.Deployment](o) {
		if scaled := d.Name == scaler.Spec.ScaleTargetRef.Name; scaled != (d.Spec.Replicas == nil) {
			t.Errorf("%s is scaled: %t, with a number of its own: %t; want one of them", d.Name, scaled, d.Spec.Replicas != nil)
		}
	}
	if scaler.Spec.ScaleTargetRef.Name != "freeslot" || *scaler.Spec.MinReplicas != 2 || scaler.Spec.MaxReplicas != 8 {
		t.Errorf("the autoscaler has %+v; want 2 to 8 replicas of freeslot", scaler.Spec)
	}
	m := scaler.Spec.Metrics
	if len(m) != 2 || *m[0].Resource.Target.AverageUtilization != 60 || m[1].Pods.Metric.Name != "freeslot_sessions" || m[1].Pods.Target.AverageValue.Value() != 3000 {
		t.Errorf("the autoscaler asks for %+v; want 60 %% of CPU and 3000 sessions", m)
	}
	if !strings.Contains(readFile(t, "docs/reference/metrics.md"), "`freeslot_sessions`") {
		t.Error("replicas have no metric freeslot_sessions, by which the autoscaler counts; want it")
	}
}

// TestNodesAutoscaler: the example that scales nodes by their proposal is an object of Kubernetes, for
// a workload that the chart makes.
func TestNodesAutoscaler(t *testing.T) {
	t.Parallel()
	const file = "deploy/autoscaling/hpa-external.yaml"
	scaler := of[*autoscaling.HorizontalPodAutoscaler](decode(t, map[string]string{file: readFile(t, file)}))[0]
	target, made := scaler.Spec.ScaleTargetRef, false
	o := example(t, "managed", func(values map[string]any) {
		groups := values["nodes"].(map[string]any)["groups"].(map[string]any)
		groups["gpu"] = groups["cpu"]
	})
	for _, d := range of[*apps.Deployment](o) {
		made = made || d.Name == target.Name
	}
	if !made || target.Kind != "Deployment" || target.APIVersion != apps.SchemeGroupVersion.String() {
		t.Errorf("the autoscaler scales %+v; want a Deployment of the chart", target)
	}
	m := scaler.Spec.Metrics
	if len(m) != 1 || m[0].External == nil || m[0].External.Target.AverageValue.Value() != 1 || *scaler.Spec.MinReplicas < 1 {
		t.Errorf("the autoscaler asks for %+v; want an external metric, a node for each", m)
	}
}

// TestGPU: the agent or the container beside it has the GPU, on the Kubernetes nodes that have one.
func TestGPU(t *testing.T) {
	t.Parallel()
	o := example(t, "gpu", nil)
	for group, container := range map[string]string{"whisper": "nodeagent", "tts": "server"} {
		w := o.one("node", group)
		for _, c := range slices.Concat(w.pod.Spec.InitContainers, w.pod.Spec.Containers) {
			gpus := c.Resources.Limits["nvidia.com/gpu"]
			if want := c.Name == container; gpus.IsZero() == want {
				t.Errorf("%s: %s has %s GPUs; want them at %s alone", group, c.Name, gpus.String(), container)
			}
		}
		if w.pod.Spec.NodeSelector["nvidia.com/gpu.present"] != "true" || len(w.pod.Spec.Tolerations) != 1 || *w.pod.Spec.RuntimeClassName != "nvidia" {
			t.Errorf("%s runs where %+v; want Kubernetes nodes with GPUs", group, w.pod.Spec.NodeSelector)
		}
	}
}

// TestServicesOutliveTheirAgent: Kubernetes starts a service beside an agent before the agent, and
// stops it after the agent, which drains: its jobs need the service until they end.
func TestServicesOutliveTheirAgent(t *testing.T) {
	t.Parallel()
	pod := example(t, "gpu", nil).one("node", "tts").pod.Spec
	if len(pod.Containers) != 1 || pod.Containers[0].Name != "nodeagent" || pod.Containers[0].Lifecycle != nil {
		t.Errorf("the containers are %+v; want the agent alone, without a hook", pod.Containers)
	}
	if s := pod.InitContainers; len(s) != 1 || s[0].Name != "server" || s[0].RestartPolicy == nil || *s[0].RestartPolicy != core.ContainerRestartPolicyAlways {
		t.Errorf("the containers before it are %+v; want the server, which goes on", s)
	}
}

// TestRules: the PrometheusRule has the alerts of deploy/prometheus, to the letter.
func TestRules(t *testing.T) {
	t.Parallel()
	found := of[*monitoring.PrometheusRule](example(t, "gpu", nil))
	if len(found) != 1 || found[0].Labels["release"] != "prometheus" {
		t.Fatalf("there are %d PrometheusRules; want one, with the labels of the values", len(found))
	}
	var want monitoring.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict([]byte(readFile(t, "deploy/prometheus/freeslot.rules.yaml")), &want); err != nil {
		t.Fatal(err)
	}
	if len(want.Groups) == 0 || !reflect.DeepEqual(found[0].Spec, want) {
		t.Errorf("the PrometheusRule has\n%+v; want\n%+v", found[0].Spec, want)
	}
}

// TestNotes: the notes say where the console is, and have the command of a first job.
func TestNotes(t *testing.T) {
	t.Parallel()
	for set, address := range map[string]string{"trial": "http://127.0.0.1:7480/console/", "managed": "https://127.0.0.1:7480/console/"} {
		notes := example(t, set, nil).notes
		for _, want := range []string{address, "port-forward service/freeslot 7480", "schedctl --server " + strings.TrimSuffix(address, "/console/"), " submit "} {
			if !strings.Contains(notes, want) {
				t.Errorf("%s: the notes are\n%s\nwant %q in them", set, notes, want)
			}
		}
	}
}
