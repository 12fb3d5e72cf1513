package operator

import (
	"context"
	"net"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/process/config"
	"github.com/freeslot/freeslot/internal/redis/redistest"
	"github.com/freeslot/freeslot/internal/replica/feature"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// A list server that does not answer holds up those who need it alone, and is tried again.
func TestServerThatHangs(t *testing.T) {
	t.Parallel()
	hanging, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hanging.Close() }()
	env := &feature.Env{Log: zap.NewNop(), Config: config.Replica{Lists: config.Lists{Servers: map[string]config.ListServer{
		"hangs": {URL: "redis://" + hanging.Addr().String()}, "refuses": {URL: "redis://127.0.0.1:1"},
	}}}}
	env.Config.Redis.URL = redistest.Shared(t).URL()
	s := &servers{env: env, opened: make(map[string]*dial)}
	ctx, cancel := context.WithCancel(context.Background())
	waiting := make(chan error, 1)
	go func() {
		_, err := s.open(ctx, "hangs")
		waiting <- err
	}()
	if _, err := hanging.Accept(); err != nil { // the attempt is under way
		t.Fatal(err)
	}
	begin := time.Now()
	if _, err := s.open(context.Background(), ""); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > dialTimeout/2 {
		t.Errorf("another server took %s", took)
	}
	cancel()
	if err := <-waiting; err == nil {
		t.Error("it is open")
	}
	for range 2 {
		if _, err := s.open(context.Background(), "refuses"); err == nil {
			t.Error("a server that refuses is open")
		}
	}
	s.close()
	if _, err := s.open(context.Background(), ""); err == nil {
		t.Error("a server is open after the end")
	}
}
