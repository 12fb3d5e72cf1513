package helm

import (
	"testing"

	autoscaling "k8s.io/api/autoscaling/v2"
)

// TestExternalAutoscaler: the example for Kubernetes' own autoscaler has the fields of its type, and
// a target that follows the proposal.
func TestExternalAutoscaler(t *testing.T) {
	t.Parallel()
	const file = "deploy/autoscaling/hpa-external.yaml"
	found := decode(t, map[string]string{file: readFile(t, file)})
	if len(found.all) != 1 {
		t.Fatalf("%s has %d objects; want one", file, len(found.all))
	}
	hpa, ok := found.all[0].(*autoscaling.HorizontalPodAutoscaler)
	if !ok || len(hpa.Spec.Metrics) != 1 || hpa.Spec.Metrics[0].External == nil {
		t.Fatalf("%s has %T; want an autoscaler with an external metric", file, found.all[0])
	}
	target := hpa.Spec.Metrics[0].External.Target
	if target.Type != autoscaling.AverageValueMetricType || target.AverageValue.Value() != 1 {
		t.Errorf("the target is %+v; want an average of 1, so that there are as many nodes as proposed", target)
	}
}
