package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/listener"
)

const (
	maxScrapes    = 4
	scrapeTimeout = 10 * time.Second
	// monitorStrangers bounds the connections to the address of monitoring.
	monitorStrangers = 256
)

// scrape serves the metrics.
func (s *Server) scrape() http.Handler {
	served := promhttp.HandlerFor(s.deps.Gatherer, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes, Timeout: CallTimeout,
		ErrorLog: zap.NewStdLog(s.log.Named("metrics")),
	})
	if !s.cfg.MetricsAuth {
		return served
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := s.deps.Auth.Authenticate(r)
		listener.Tried(r, who.Tenant, err)
		if err == nil {
			_, err = who.May(identity.Metrics)
		}
		if err != nil {
			writeError(w, body(coded(err)))
			return
		}
		served.ServeHTTP(w, r)
	})
}

// newMonitor returns the listener for monitoring alone; nil without an address.
func (s *Server) newMonitor() *listener.Server {
	if s.cfg.MetricsListen == "" {
		return nil
	}
	mux := http.NewServeMux()
	s.health(mux)
	if s.deps.Gatherer != nil {
		mux.Handle("GET /metrics", s.scrape())
	}
	return listener.New("metrics_listen", s.cfg.MetricsListen, &http.Server{
		Handler: s.recovered(mux), ReadTimeout: readHeaderTimeout, WriteTimeout: scrapeTimeout,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: zap.NewStdLog(s.log.Named("http")),
	}, nil,
		listener.Limits{Strangers: monitorStrangers, PerAddress: strangersOfAddress, BoundLoopback: s.cfg.BoundLoopback})
}

// Start listens on the address of monitoring, if it has one of its own, and on the address of
// callers.
func (s *Server) Start(ctx context.Context) error {
	if s.monitor == nil {
		return s.Server.Start(ctx)
	}
	if err := s.monitor.Start(ctx); err != nil {
		return err
	}
	err := s.Server.Start(ctx)
	if err != nil {
		_ = s.monitor.Stop(ctx) // the caller gets the error of the start
	}
	return err
}

// MetricsAddr returns the address of monitoring; empty unless it has one of its own and was
// started.
func (s *Server) MetricsAddr() string {
	if s.monitor == nil {
		return ""
	}
	return s.monitor.Addr()
}

// stopListeners stops the address of monitoring last, so that it shows the end of the sessions.
func (s *Server) stopListeners(ctx context.Context) error {
	err := s.Server.Stop(ctx)
	if s.monitor != nil {
		err = errors.Join(err, s.monitor.Stop(ctx))
	}
	return err
}
