package client

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot/internal/testing/gatewaytest"
)

// refuseWith makes the gateway answer so many handshakes as a proxy does, and returns how many come.
func refuseWith(g *gatewaytest.Gateway, status int, times int32) *atomic.Int32 {
	var n atomic.Int32
	g.Refuse = func(w http.ResponseWriter, _ *http.Request) bool {
		if n.Add(1) > times {
			return false
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "<html>"+http.StatusText(status)+"</html>")
		return true
	}
	return &n
}

// TestGatewayBehindProxy: a proxy that has no gateway for a moment costs no more than a gateway that
// is away.
func TestGatewayBehindProxy(t *testing.T) {
	for _, status := range []int{
		http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	} {
		synctest.Test(t, func(t *testing.T) {
			var p gatewaytest.Network
			g := gatewaytest.Serve(t, &p, "a")
			startScriptedStore(t, &p, Config{Gateway: "ws://a"})
			g.Session()
			refuseWith(g, status, 3)
			begin := time.Now()
			p.Fail(false)
			g.Session()
			if took := time.Since(begin); took > g.Limit/4 {
				t.Errorf("after HTTP status %d it was back in %s", status, took)
			}
		})
	}
}

// TestGatewayDefectAtOneAddress: an address that is no gateway is left alone for a minute, and the
// others are tried meanwhile.
func TestGatewayDefectAtOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p gatewaytest.Network
		bad, good := gatewaytest.Serve(t, &p, "a"), gatewaytest.Serve(t, &p, "b")
		tries := refuseWith(bad, http.StatusNotFound, 1)
		startScriptedStore(t, &p, Config{Gateway: "ws://a,ws://b"})
		good.Session()
		refuseWith(good, http.StatusBadGateway, 3)
		begin := time.Now()
		p.Fail(false)
		good.Session()
		if took := time.Since(begin); took > good.Limit/4 {
			t.Errorf("it was back in %s", took)
		}
		if n := tries.Load(); n != 1 {
			t.Errorf("%d dials of the address that is no gateway", n)
		}
		time.Sleep(2 * defectPause) // in virtual time
		p.Fail(false)
		bad.Session()
	})
}
