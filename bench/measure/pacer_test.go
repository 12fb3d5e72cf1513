package measure

import (
	"context"
	"testing"
	"time"
)

func TestPacer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	p, err := NewPacer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	begin := time.Now()
	for i := 1; i <= 20; i++ {
		at := begin.Add(time.Duration(i) * 500 * time.Microsecond)
		if err := p.Wait(ctx, at); err != nil {
			t.Fatal(err)
		}
		if now := time.Now(); now.Before(at) {
			t.Errorf("woke %s too early", at.Sub(now))
		}
	}
	if err := p.Wait(ctx, begin); err != nil {
		t.Errorf("a moment in the past: %v", err)
	}
	cancel()
	if err := p.Wait(ctx, begin.Add(time.Hour)); err == nil {
		t.Error("waited for an hour after the end of the context")
	}
}
