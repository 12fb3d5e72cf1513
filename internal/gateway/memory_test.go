package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

const (
	// agentsOf has the gateway's URL, for the process that holds the agents of TestMemory.
	agentsOf    = "FREESLOT_TEST_AGENTS_OF"
	idleAgents  = 1000
	dialsAtOnce = 32
)

// TestMemory: what an idle session keeps in memory. Its agent is in another process.
func TestMemory(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit uint64
		start func(*httptest.Server)
	}{
		{"plain", 40 << 10, (*httptest.Server).Start},
		{"TLS", 64 << 10, (*httptest.Server).StartTLS},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, idleAgents)
			s.Handler.cfg.HeartbeatLimit = time.Hour // idle agents send no heartbeats
			beats := make(chan struct{}, 2*idleAgents)
			s.cell.heartbeat = func(context.Context, cell.Heartbeat, cell.Link) (cell.HeartbeatReply, error) {
				beats <- struct{}{}
				return cell.HeartbeatReply{AtMS: 100}, nil
			}
			web := httptest.NewUnstartedServer(s.Handler)
			c.start(web)
			defer web.Close()
			before := memoryInUse()
			died, end := startAgents(t, web.URL)
			came := 0
			waittest.Until(t, fmt.Sprint(2*idleAgents, " heartbeats"), func() bool {
				select {
				case err := <-died:
					t.Fatalf("the agents have ended: %v", err)
				default:
				}
				for ; len(beats) > 0; came++ {
					<-beats
				}
				return came == 2*idleAgents
			}, func() any { return came })
			// What the handshakes left behind goes as their goroutines come to rest.
			var each uint64
			waittest.Until(t, fmt.Sprintf("at most %d bytes a session", c.limit), func() bool {
				each = (memoryInUse() - before) / idleAgents
				return each <= c.limit
			}, func() any { return each >> 10 })
			t.Logf("%d bytes a session", each)
			end()
		})
	}
}

func memoryInUse() uint64 {
	var m runtime.MemStats
	for range 2 { // stacks shrink at the first, their memory is given back at the second
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// startAgents starts the process of the agents, which tells died when it has ended. end ends it.
func startAgents(t *testing.T, url string) (died <-chan error, end func()) {
	t.Helper()
	agents := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAgents$")
	agents.Env = append(os.Environ(), agentsOf+"="+strings.Replace(url, "http", "ws", 1)+frame.Path)
	agents.Stderr = os.Stderr
	in, err := agents.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agents.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	var waiting sync.WaitGroup
	waiting.Go(func() { ended <- agents.Wait() })
	t.Cleanup(waiting.Wait)
	return ended, func() { _ = in.Close() }
}

// TestAgents is the process of the agents, which live until its input ends.
func TestAgents(t *testing.T) {
	url := os.Getenv(agentsOf)
	if url == "" {
		t.Skip("TestMemory starts it")
	}
	options := &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}},
		HTTPHeader: http.Header{"Authorization": {"Bearer gpu"}}, Subprotocols: []string{frame.Protocol},
	}
	dials := make(chan struct{}, dialsAtOnce)
	var all sync.WaitGroup
	ctx, end := context.WithCancel(t.Context())
	for i := range idleAgents {
		dials <- struct{}{}
		all.Go(func() {
			conn, err := idleAgent(ctx, url, options, i)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			<-dials
			_, _, _ = conn.Read(ctx) // answers pings until the end
			_ = conn.CloseNow()
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	end()
	all.Wait()
}

// idleAgent has said all that an agent without jobs says.
func idleAgent(ctx context.Context, url string, options *websocket.DialOptions, number int) (*websocket.Conn, error) {
	conn, _, err := websocket.Dial(ctx, url, options)
	if err != nil {
		return nil, err
	}
	for _, text := range []string{
		fmt.Sprintf(`{"type":"hello","node":"gpu-%d","epoch":"e1","connection":1,"version":"0.4"}`, number),
		`{"type":"register","id":1,"profile":{"max_concurrency":2,"installed_services":[{"name":"tts"}]}}`,
		`{"type":"heartbeat","id":2,"status":"online","resources":{"cpu":0.5}}`,
		`{"type":"heartbeat","id":3,"status":"online","resources":{"cpu":0.5}}`,
	} {
		if err := conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			return nil, err
		}
		if _, _, err := conn.Read(ctx); err != nil {
			return nil, err
		}
	}
	return conn, nil
}
