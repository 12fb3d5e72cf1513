package gateway_test

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/gateway"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func startListener(t *testing.T, cfg gateway.ListenerConfig, log *zap.Logger) *gateway.Listener {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	l := gateway.NewListener(cfg, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }), log)
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		if err := l.Err(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// TestListenerSilent: strangers that connect and say nothing leave room for others.
func TestListenerSilent(t *testing.T) {
	l := startListener(t, gateway.ListenerConfig{}, zap.NewNop())
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(waittest.Limit)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	ask := func(conn net.Conn) error {
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") // the connection may be closed
		_, err := conn.Read(make([]byte, 1))
		return err
	}
	silent := make([]net.Conn, 256)
	for i := range silent {
		silent[i] = dial()
	}
	served := 0
	for range 60 {
		if err := ask(dial()); err == nil {
			served++
		}
	}
	if served != 60 {
		t.Errorf("%d of 60 others were served while 256 connections are silent, expected all", served)
	}
	if ask(silent[0]) == nil {
		t.Error("the oldest silent connection was served, expected that it was closed")
	}
	if err := ask(silent[255]); err != nil {
		t.Errorf("the latest silent connection: %v, expected that it is served", err)
	}
}
