package helm

import (
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// peer is a pod, or an address outside of the cluster if it has no namespace.
type peer struct {
	namespace string
	labels    map[string]string
}

func (p peer) namespaceLabels() labels.Set { return labels.Set{core.LabelMetadataName: p.namespace} }

// TestNetworkPolicy: the policies of each set open the ways that a system needs, and no others.
func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	for _, set := range sets {
		o := example(t, set, nil)
		replica := peer{namespace, o.one("scheduler", "").pod.Labels}
		app, foreign, internet := peer{namespace, map[string]string{"app": "shop"}}, peer{"other", nil}, peer{}
		monitor, ingress := peer{"monitoring", nil}, peer{"ingress-nginx", nil}
		redisPort := map[string]int32{"managed": 6380}[set]
		if redisPort == 0 {
			redisPort = 6379
		}
		type way struct {
			what     string
			from, to peer
			port     int32
			open     bool
		}
		ways := []way{
			{"a client in the namespace, to a replica", app, replica, 7480, true},
			{"a client in another namespace, to a replica", foreign, replica, 7480, false},
			{"an ingress, to a replica", ingress, replica, 7480, set == "server"},
			{"Prometheus, to a replica", monitor, replica, 7491, true},
			{"a client in the namespace, to the metrics of a replica", app, replica, 7491, false},
			{"a replica, to Redis outside", replica, internet, redisPort, true},
			{"a replica, to a sentinel", replica, internet, 26379, set == "sentinel"},
			{"a replica, to a source of lists", replica, internet, 5432, set == "managed"},
			{"a replica, to anything outside", replica, internet, 443, false},
			{"a replica, to DNS", replica, peer{"kube-system", nil}, 53, true},
		}
		for _, w := range o.workloads() {
			to := peer{namespace, w.pod.Labels}
			switch w.component() {
			case "redis":
				ways = append(
					ways, way{"a replica, to the trial's Redis", replica, to, 6379, true}, way{"a client, to the trial's Redis", app, to, 6379, false},
					way{"the trial's Redis, to anything", to, app, 80, false},
				)
			case "node":
				ways = append(
					ways, way{w.name + ", to a replica", to, replica, 7480, true}, way{w.name + ", to a pod of others", to, app, 8080, false},
					way{w.name + ", to Redis", to, internet, 6379, false}, way{w.name + ", to DNS", to, peer{"kube-system", nil}, 53, true},
					way{"Prometheus, to " + w.name, monitor, to, 7490, true}, way{"a client, to " + w.name, app, to, 7490, false},
					way{w.name + ", to Kubernetes", to, internet, 443, w.pod.Labels["freeslot/group"] == "whisper"},
				)
			}
		}
		policies := of[*networking.NetworkPolicy](o)
		for _, w := range ways {
			if got := allowed(t, policies, w.from, w.to, w.port); got != w.open {
				t.Errorf("%s: the way of %s at port %d is open: %t; want %t", set, w.what, w.port, got, w.open)
			}
		}
	}
}

// TestNetworkPolicyOff: without policies every way is open.
func TestNetworkPolicyOff(t *testing.T) {
	t.Parallel()
	o := example(t, "trial", func(values map[string]any) { setValue(values, "networkPolicy.enabled", false) })
	if found := of[*networking.NetworkPolicy](o); len(found) > 0 {
		t.Errorf("there are %d policies; want none", len(found))
	}
}

// allowed reports whether policies let from connect to a port of to by TCP: where a policy selects
// a pod for a direction, one such policy must have a rule for the way.
func allowed(t *testing.T, policies []*networking.NetworkPolicy, from, to peer, port int32) bool {
	t.Helper()
	in, out := true, true
	for _, p := range policies {
		for _, kind := range p.Spec.PolicyTypes {
			out = out && !(kind == networking.PolicyTypeEgress && selects(t, p, from))
			in = in && !(kind == networking.PolicyTypeIngress && selects(t, p, to))
		}
	}
	for _, p := range policies {
		for _, rule := range p.Spec.Egress {
			out = out || selects(t, p, from) && hasPort(rule.Ports, port) && hasPeer(t, rule.To, to)
		}
		for _, rule := range p.Spec.Ingress {
			in = in || selects(t, p, to) && hasPort(rule.Ports, port) && hasPeer(t, rule.From, from)
		}
	}
	return in && out
}

func selects(t *testing.T, p *networking.NetworkPolicy, pod peer) bool {
	t.Helper()
	return pod.namespace == namespace && matches(t, &p.Spec.PodSelector, pod.labels)
}

func hasPort(ports []networking.NetworkPolicyPort, port int32) bool {
	for _, p := range ports {
		if p.Port.IntVal == port && *p.Protocol == core.ProtocolTCP {
			return true
		}
	}
	return len(ports) == 0
}

func hasPeer(t *testing.T, peers []networking.NetworkPolicyPeer, other peer) bool {
	t.Helper()
	for _, p := range peers {
		in := other.namespace == namespace
		if p.NamespaceSelector != nil {
			in = other.namespace != "" && matches(t, p.NamespaceSelector, other.namespaceLabels())
		}
		if in && (p.PodSelector == nil || matches(t, p.PodSelector, other.labels)) {
			return true
		}
	}
	return len(peers) == 0
}

func matches(t *testing.T, selector *meta.LabelSelector, set map[string]string) bool {
	t.Helper()
	s, err := meta.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(labels.Set(set))
}
