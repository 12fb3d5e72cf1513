package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

const (
	readTimeout       = 5 * time.Second
	serverStopTimeout = 2 * time.Second
)

// metricsServer serves /metrics and /healthz. An agent is healthy from its registration to its end,
// also while Redis is away: a restart would only cost it its jobs.
type metricsServer struct {
	address string
	server  *http.Server
	log     *zap.Logger
	// addr and served belong to start and stop.
	addr   net.Addr
	served chan struct{}
	// registered is closed once the node is registered.
	registered chan struct{}
}

func newMetricsServer(address string, reg prometheus.Gatherer, ended <-chan struct{}, log *zap.Logger) *metricsServer {
	registered := make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-ended:
			http.Error(w, "ended", http.StatusServiceUnavailable)
			return
		default:
		}
		select {
		case <-registered:
			_, _ = w.Write([]byte("ok\n")) // the client may have gone
		default:
			http.Error(w, "the node is not registered yet; the log says why", http.StatusServiceUnavailable)
		}
	})
	return &metricsServer{address: address, log: log, served: make(chan struct{}), registered: registered, server: &http.Server{
		Handler: mux, ReadTimeout: readTimeout, WriteTimeout: 2 * readTimeout, MaxHeaderBytes: 16 << 10,
	}}
}

func (m *metricsServer) start(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", m.address)
	if err != nil {
		return fmt.Errorf("listen on metrics_listen %s: %w", m.address, cause(err))
	}
	m.addr = listener.Addr()
	go func() {
		defer close(m.served)
		if err := m.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			m.log.Error("metrics.serve_failed", zap.Error(err))
		}
	}()
	return nil
}

// stop may be called twice and without start.
func (m *metricsServer) stop(ctx context.Context) error {
	if m.addr == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, serverStopTimeout)
	defer cancel()
	err := m.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, m.server.Close())
	}
	<-m.served
	return err
}

// cause returns a listen error without the operation and address, which the message has already.
func cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}
