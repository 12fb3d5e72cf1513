package ending

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAwait(t *testing.T) {
	t.Parallel()
	waited := false
	if err := Await(t.Context(), "stop", func() { waited = true }); err != nil || !waited {
		t.Errorf("await: %v, waited %t, expected no error after the wait", err, waited)
	}
	cause := errors.New("too late")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	release, released := make(chan struct{}), make(chan struct{})
	err := Await(ctx, "stop it", func() {
		defer close(released)
		<-release
	})
	if !errors.Is(err, cause) || err.Error() != "stop it: too late" {
		t.Errorf("await after the end of its context: %v, expected %v", err, cause)
	}
	close(release)
	<-released
}
