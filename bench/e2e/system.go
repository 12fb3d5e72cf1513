package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/client"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

// aofOff is the AOF mode without a file; the others are values of appendfsync.
const aofOff = "off"

// shape says how large a system is.
type shape struct {
	replicas, nodes, slots, sessions int
}

// system is everything that one set of scenarios runs against, freshly started.
type system struct {
	redis    *redisserver.Server
	nodes    *measure.Process
	nodesIn  io.Closer
	replicas []*measure.Process
	clients  []*client.Client
}

// startSystem starts the nodes before the replicas: a replica that is ready has loaded every node that
// was registered before it.
func startSystem(ctx context.Context, scheduler, aof string, sh shape) (_ *system, err error) {
	s := &system{redis: redisserver.New(redisserver.Config{AppendOnly: aof != aofOff, AppendFsync: fsyncOf(aof)})}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	startCtx, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	if err := s.redis.Start(startCtx); err != nil {
		return nil, err
	}
	if err := s.startNodes(startCtx, sh); err != nil {
		return nil, err
	}
	var urls []string
	for i := range sh.replicas {
		url, err := s.startReplica(startCtx, scheduler, i)
		if err != nil {
			return nil, err
		}
		urls = append(urls, url)
	}
	for i := range sh.sessions {
		c, err := client.Dial(startCtx, "ws://"+urls[i%len(urls)], client.Options{})
		if err != nil {
			return nil, fmt.Errorf("session %d: %w", i, err)
		}
		s.clients = append(s.clients, c)
	}
	return s, nil
}

func fsyncOf(aof string) string {
	if aof == aofOff {
		return ""
	}
	return aof
}

// startNodes runs this same program again as the fleet, and waits until all its nodes are registered.
func (s *system) startNodes(ctx context.Context, sh shape) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, fleetMode, s.redis.URL(), strconv.Itoa(sh.nodes), strconv.Itoa(sh.slots))
	cmd.Env = measure.PlainEnv()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	read, write := io.Pipe()
	cmd.Stdout = write
	p, err := measure.StartProcess("fleet of nodes", cmd)
	if err != nil {
		return err
	}
	s.nodes, s.nodesIn = p, stdin
	ready := make(chan bool, 1)
	go func() {
		line, _ := bufio.NewReader(read).ReadString('\n')
		ready <- strings.TrimSpace(line) == fleetReady
		_, _ = io.Copy(io.Discard, read)
	}()
	go func() {
		<-p.Done
		_ = write.Close()
	}()
	select {
	case ok := <-ready:
		if !ok {
			<-p.Done
			return p.Exited()
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s did not register in time: %w", p.Name, ctx.Err())
	}
}

func (s *system) startReplica(ctx context.Context, scheduler string, i int) (address string, err error) {
	port, err := redisserver.FreePort()
	if err != nil {
		return "", err
	}
	address = "127.0.0.1:" + strconv.Itoa(port)
	cmd := exec.Command(scheduler, "serve")
	cmd.Env = measure.PlainEnv(
		"FREESLOT_LISTEN="+address,
		"FREESLOT_REPLICA_ID=bench-"+strconv.Itoa(i+1),
		"FREESLOT_REDIS__URL="+s.redis.URL(),
		"FREESLOT_LOG__LEVEL=warn",
	)
	p, err := measure.StartProcess("replica "+strconv.Itoa(i+1), cmd)
	if err != nil {
		return "", err
	}
	s.replicas = append(s.replicas, p)
	return address, p.AwaitOK(ctx, "http://"+address+"/readyz")
}

// stop ends what was started, clients first and Redis last.
func (s *system) stop() error {
	var errs []error
	for _, c := range s.clients {
		_ = c.Close() // nothing is outstanding
	}
	for _, p := range s.replicas {
		errs = append(errs, p.Stop())
	}
	if s.nodes != nil {
		_ = s.nodesIn.Close()
		errs = append(errs, s.nodes.Wait())
	}
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	return errors.Join(append(errs, s.redis.Stop(ctx))...)
}
