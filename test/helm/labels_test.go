package helm

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestLabelsFromNode: the init container, run with a real kubectl, adds the labels that the
// Kubernetes node has to those of the values.
func TestLabelsFromNode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ of, want map[string]string }{
		"all": {
			map[string]string{"nvidia.com/gpu.product": "NVIDIA-A100", "topology.kubernetes.io/zone": "eu-1a", "other": "x"},
			map[string]string{"model": "large-v3", "gpu": "NVIDIA-A100", "zone": "eu-1a"},
		},
		"a text that is a number": {map[string]string{"topology.kubernetes.io/zone": "1"}, map[string]string{"model": "large-v3", "zone": "1"}},
		"none":                    {map[string]string{"other": "x"}, map[string]string{"model": "large-v3"}},
	} {
		o := example(t, "gpu", nil)
		w := o.one("node", "whisper")
		p := &fakePod{t: t, dir: t.TempDir()}
		p.initLabels(o, w, secrets(t), c.of)
		data, err := os.ReadFile(filepath.Join(p.dir, "etc/freeslot/config/nodeagent.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var config struct {
			Node struct {
				Labels map[string]string `json:"labels"`
			} `json:"node"`
		}
		if err := yaml.Unmarshal(data, &config); err != nil || !maps.Equal(config.Node.Labels, c.want) {
			t.Errorf("%s: the labels are %v, %v; want %v, in\n%s", name, config.Node.Labels, err, c.want, data)
		}
	}
}

// TestRights: the init container may read Kubernetes nodes and nothing else, and the agent has no
// token of Kubernetes.
func TestRights(t *testing.T) {
	t.Parallel()
	o := example(t, "gpu", nil)
	role, binding := of[*rbac.ClusterRole](o)[0], of[*rbac.ClusterRoleBinding](o)[0]
	if len(role.Rules) != 1 || len(role.Rules[0].Resources) != 1 || role.Rules[0].Resources[0] != "nodes" || len(role.Rules[0].Verbs) != 1 || role.Rules[0].Verbs[0] != "get" {
		t.Errorf("the role may %+v; want to get nodes alone", role.Rules)
	}
	w := o.one("node", "whisper")
	account := of[*core.ServiceAccount](o)[0]
	if s := binding.Subjects[0]; binding.RoleRef.Name != role.Name || s.Name != account.Name || s.Namespace != namespace || w.pod.Spec.ServiceAccountName != account.Name {
		t.Errorf("the binding gives %+v to %+v, and the pod runs as %s; want one account", binding.RoleRef, s, w.pod.Spec.ServiceAccountName)
	}
	for _, mount := range w.pod.Spec.Containers[0].VolumeMounts {
		if mount.Name == "kubernetes" {
			t.Error("the agent has Kubernetes' token, which its commands could use; want it in the init container alone")
		}
	}
}

// initLabels runs the init container of a group on a Kubernetes node with labels. What it writes is
// in the pod p then.
func (p *fakePod) initLabels(o *objects, w workload, made map[string]map[string][]byte, labels map[string]string) {
	p.t.Helper()
	init := w.pod.Spec.InitContainers[0]
	laid := pod(p.t, o, w, init, made)
	program, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	tools := p.t.TempDir()
	if err := os.Symlink(program, filepath.Join(tools, "kubectl")); err != nil {
		p.t.Fatal(err)
	}
	config := filepath.Join(tools, "kubeconfig")
	server := kubernetes(p.t, labels)
	text := "{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x}}], clusters: [{name: x, cluster: {server: " + server + "}}]}"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.CommandContext(p.t.Context(), init.Command[0], append(init.Command[1:], laid.args...)...)
	cmd.Env = environment(append(laid.env, "KUBECONFIG="+config, "PATH="+tools+":"+os.Getenv("PATH")))
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("the init container: %v\n%s", err, out)
	}
	data, err := os.ReadFile(filepath.Join(laid.dir, "etc/freeslot/config/nodeagent.yaml"))
	if err != nil {
		p.t.Fatal(err)
	}
	// Both containers see the same files, and here each has a folder of its own.
	data = []byte(p.local(laid.inPod(string(data))))
	if err := os.MkdirAll(filepath.Join(p.dir, "etc/freeslot/config"), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "etc/freeslot/config/nodeagent.yaml"), data, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// kubernetes serves what kubectl asks for to get one node.
func kubernetes(t *testing.T, labels map[string]string) string {
	t.Helper()
	answers := map[string]any{
		"/api":  meta.APIVersions{TypeMeta: meta.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
		"/apis": meta.APIGroupList{TypeMeta: meta.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}},
		"/api/v1": meta.APIResourceList{
			TypeMeta: meta.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
			APIResources: []meta.APIResource{{Name: "nodes", SingularName: "node", Kind: "Node", Verbs: meta.Verbs{"get"}}},
		},
		"/api/v1/nodes/worker-1": core.Node{
			TypeMeta: meta.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: meta.ObjectMeta{Name: "worker-1", Labels: labels},
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}
