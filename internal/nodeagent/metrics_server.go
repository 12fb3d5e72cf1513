package nodeagent

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/listener"
)

const (
	readTimeout       = 5 * time.Second
	serverStopTimeout = 2 * time.Second
)

// metricsServer serves /metrics and /healthz. An agent is healthy from its registration to its end,
// also while Redis is away: a restart would only cost it its jobs.
type metricsServer struct {
	*listener.Server
	log      *zap.Logger
	watching sync.WaitGroup
	// registered is closed once the node is registered.
	registered chan struct{}
}

func newMetricsServer(address string, reg prometheus.Gatherer, ended <-chan struct{}, log *zap.Logger) *metricsServer {
	registered := make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true}))
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
	server := &http.Server{
		Handler: mux, ReadTimeout: readTimeout, WriteTimeout: 2 * readTimeout, MaxHeaderBytes: 16 << 10,
	}
	return &metricsServer{
		Server: listener.New("listen on metrics_listen", address, server, nil, listener.Limits{}), log: log,
		registered: registered,
	}
}

func (m *metricsServer) start(ctx context.Context) error {
	if err := m.Start(ctx); err != nil {
		return err
	}
	m.watching.Go(func() {
		<-m.Done()
		if err := m.Err(); err != nil {
			m.log.Error("metrics.serve_failed", zap.Error(err))
		}
	})
	return nil
}

// stop may be called twice and without start.
func (m *metricsServer) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serverStopTimeout)
	defer cancel()
	err := m.Stop(ctx)
	m.watching.Wait()
	return err
}
