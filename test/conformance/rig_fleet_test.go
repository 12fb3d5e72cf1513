package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	redisserver "github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

const (
	replicaCount = 3
	fleetToken   = "fsn_conformance"
)

// fleet is a Redis with several replicas, which are gateways, too. Drivers reach each replica by a
// way of their own.
type fleet struct {
	t        *testing.T
	replicas []*replica
	proxies  *toxiproxy.ApiServer
	// ways lead to the replicas, in their order.
	clientWays, workerWays []*toxiproxy.Proxy
}

// replica is a scheduler process, over all its lives.
type replica struct {
	t       *testing.T
	name    string
	address string
	args    []string
	log     *os.File
	process *os.Process
	ended   chan struct{}
}

// newFleet starts all of it, and returns when the replicas are ready.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	program := buildScheduler(t)
	redis := redistest.New(t)
	folder := t.TempDir()
	tokens := filepath.Join(folder, "tokens.yaml")
	line := fmt.Sprintf("- {name: fleet, sha256: %x, nodes: [\"*\"]}\n", sha256.Sum256([]byte(fleetToken)))
	if err := os.WriteFile(tokens, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, proxies: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())}
	for i := range replicaCount {
		name := "r" + strconv.Itoa(i+1)
		r := &replica{t: t, name: name, address: freeAddress(t)}
		config, err := json.Marshal(object{ // JSON is YAML, too
			"listen": r.address, "redis": object{"url": redis.Process().URL()}, "gateway": object{"tokens_file": tokens},
			"lists": object{"dir": filepath.Join(folder, name)},
		})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(folder, name+".yaml")
		if err := os.WriteFile(file, config, 0o600); err != nil {
			t.Fatal(err)
		}
		r.args = []string{program, "serve", "--config", file}
		if r.log, err = os.Create(filepath.Join(folder, name+".log")); err != nil {
			t.Fatal(err)
		}
		r.start()
		t.Cleanup(r.end)
		f.replicas = append(f.replicas, r)
		f.clientWays = append(f.clientWays, f.way("client-"+name, r.address))
		f.workerWays = append(f.workerWays, f.way("worker-"+name, r.address))
	}
	for _, r := range f.replicas {
		waittest.Succeeds(t, "replica "+r.name+" is ready", r.ready)
	}
	return f
}

// buildScheduler builds the program of replicas.
func buildScheduler(t *testing.T) string {
	t.Helper()
	program := filepath.Join(root, ".dev", "conformance", "scheduler")
	cmd := exec.CommandContext(waittest.Context(t), "go", "build", "-buildvcs=false", "-o", program, "./cmd/scheduler")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the scheduler: %v\n%s", err, out)
	}
	return program
}

func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := redisserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return "127.0.0.1:" + strconv.Itoa(port)
}

// way makes a proxy that can be cut.
func (f *fleet) way(name, to string) *toxiproxy.Proxy {
	f.t.Helper()
	w := toxiproxy.NewProxy(f.proxies, name, freeAddress(f.t), to)
	if err := w.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(w.Stop)
	return w
}

// urls lists the ways as drivers take them.
func urls(ways []*toxiproxy.Proxy) string {
	list := make([]string, len(ways))
	for i, w := range ways {
		list[i] = "ws://" + w.Listen
	}
	return strings.Join(list, ",")
}

// start starts the process.
func (r *replica) start() {
	r.t.Helper()
	cmd := exec.Command(r.args[0], r.args[1:]...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "FREESLOT_") })
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = r.log, r.log, childAttr()
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		// The signal at the parent's death is bound to the thread that forked.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is always killed
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		r.t.Fatalf("start replica %s: %v", r.name, err)
	}
	r.process, r.ended = cmd.Process, ended
}

// kill ends the process as a crash does, and returns when it is gone.
func (r *replica) kill() {
	r.t.Helper()
	r.signal(syscall.SIGKILL)
	waittest.Receive(r.t, "the end of replica "+r.name, r.ended)
}

func (r *replica) signal(sig syscall.Signal) {
	r.t.Helper()
	if err := r.process.Signal(sig); err != nil {
		r.t.Errorf("replica %s cannot be sent %s: %v\n%s", r.name, sig, err, r.tail())
	}
}

// end is for the end of the test.
func (r *replica) end() {
	_ = r.process.Kill() // fails if it has ended
	<-r.ended
	if r.t.Failed() {
		r.t.Logf("replica %s:\n%s", r.name, r.tail())
	}
	_ = r.log.Close()
}

// tail returns the end of the log.
func (r *replica) tail() []byte {
	log, err := os.ReadFile(r.log.Name())
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(log[max(0, len(log)-4000):])
}

func (r *replica) ready() error {
	_, err := r.get("/readyz")
	return err
}

// connected are the metrics that count what is connected to a replica.
var connected = map[string]string{"client": "freeslot_sessions", "worker": "freeslot_gateway_agents"}

// has reports whether the driver of this kind is connected to the replica.
func (r *replica) has(kind string) bool {
	page, err := r.get("/metrics")
	return err == nil && strings.Contains(page, "\n"+connected[kind]+" 1\n")
}

// get returns what the replica serves at a path.
func (r *replica) get(path string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), waittest.Limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.address+path, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s says %s", path, resp.Status)
	}
	return string(body), err
}
