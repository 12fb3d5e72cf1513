package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestReplicaIsKilledInAChangeOfAChain: another replica decides by the old or the new version,
// never by a part of one, and every version has its entry in the audit, which was begun before.
func TestReplicaIsKilledInAChangeOfAChain(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	replicas := s.startReplicas(2, 0)
	first, second := replicas[0], replicas[1]
	if err := first.putChain(1); err != nil {
		t.Fatal(err)
	}
	second.decides(t, 1)

	var acknowledged atomic.Int64
	acknowledged.Store(1)
	failed := make(chan error, 1)
	go func() { // one change after the other: the kill hits one of them
		for {
			if err := first.putChain(acknowledged.Load() + 1); err != nil {
				failed <- err
				return
			}
			acknowledged.Add(1)
		}
	}()
	waittest.Until(t, "some changes", func() bool { return acknowledged.Load() >= 4 })
	first.signal(syscall.SIGKILL)
	first.wait()
	if err := waittest.Receive(t, "the end of the changes", failed); strings.Contains(err.Error(), "status") {
		t.Fatalf("a change was refused: %v; want a broken connection", err)
	}
	var kept struct{ Versions []struct{ Version int64 } }
	if status, err := second.get("/v1/chains/checkout/versions", &kept); err != nil || status != http.StatusOK || len(kept.Versions) == 0 {
		t.Fatalf("the versions: %d, %v; want 200", status, err)
	}
	last, serves := acknowledged.Load(), kept.Versions[0].Version
	if serves != last && serves != last+1 {
		t.Errorf("version %d serves; want %d or the one in the kill", serves, last)
	}
	second.decides(t, serves)

	outcomes := strings.Split(second.audit("put-chain"), ", ") // the newest first
	done := 0
	for i, one := range outcomes {
		switch one {
		case "/v1/chains/checkout done":
			done++
		case "/v1/chains/checkout under_way":
			if i > 0 {
				t.Errorf("entry %d is under way; want only the newest", i)
			}
		default:
			t.Errorf("the audit has %q; want changes that are done, or under way", one)
		}
	}
	if int64(done) < last || int64(len(outcomes)) < serves || int64(len(outcomes)) > last+1 {
		t.Errorf("%d entries, %d of them done, after %d answers, and version %d serves", len(outcomes), done, last, serves)
	}
	if err := second.putChain(serves + 1); err != nil {
		t.Errorf("a change by the other replica: %v; want none", err)
	}
	second.decides(t, serves+1)
}

// putChain writes a version of a chain that decides its own number.
func (r *replica) putChain(version int64) error {
	body := fmt.Sprintf(`{"version": %d, "document": {"name": "checkout", "variants": {"v%[2]d": %[2]d},
		"rules": [], "default": "variant: v%[2]d"}}`, version-1, version)
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPut, r.http()+"/v1/chains/checkout", bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	var answer struct {
		Code    string
		Version int64
	}
	status, err := do(req, &answer)
	if err == nil && (status != http.StatusOK || answer.Version != version) {
		err = fmt.Errorf("status %d, %+v", status, answer)
	}
	return err
}

// decides waits until a replica decides by a version, and checks that each decision is of one
// alone.
func (r *replica) decides(t *testing.T, version int64) {
	t.Helper()
	waittest.Until(t, fmt.Sprint("decisions by version ", version), func() bool {
		var answer struct {
			Decisions []struct {
				Variant        string
				Value, Version int64
			}
		}
		r.post(t, "/v1/chains/checkout/evaluate", map[string]any{"subjects": []any{map[string]any{"key": "a"}}}, &answer)
		d := answer.Decisions[0]
		if d.Version > 0 && (d.Value != d.Version || d.Variant != fmt.Sprint("v", d.Version)) {
			t.Errorf("a decision has version %d, variant %q and value %d; want all of one version", d.Version, d.Variant, d.Value)
		}
		return d.Version == version
	})
}
