package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

// runGateway measures what gateways do for their agents, each question on a Redis of its own.
func runGateway(ctx context.Context, b *tool.Bench) error {
	program, err := measure.BuildProgram(ctx, b.Root, b.Folder, "scheduler")
	if err != nil {
		return err
	}
	if _, err := measure.RaiseFiles(fleetFiles); err != nil {
		return err
	}
	b.Say("Agents are workers with the default settings unless said otherwise, many in a process of their own; gateways are replicas (the scheduler program) with the default settings, whose agents have a listener of their own.")
	for _, run := range []func(context.Context, *tool.Bench, string) error{runGatewayIdle, runGatewayKilled, runGatewayLine} {
		if err := run(ctx, b, program); err != nil {
			return err
		}
	}
	return nil
}

// gateways are replicas with what their agents need.
type gateways struct {
	redis *system.Redis
	all   []*system.Scheduler
	// addrs are where agents connect, also to replicas that are not started yet.
	addrs               []string
	program, token      string
	scheme, certFile    string
	tokensFile, keyFile string
}

// newGateways starts Redis, and no replica. The caller stops them.
func newGateways(ctx context.Context, b *tool.Bench, program string, replicas int, secure bool) (_ *gateways, err error) {
	g := &gateways{program: program, token: rand.Text(), scheme: "ws", tokensFile: filepath.Join(b.Folder, "tokens.yaml")}
	line := fmt.Sprintf("- {name: fleet, sha256: %x, nodes: [\"*\"]}\n", sha256.Sum256([]byte(g.token)))
	if err := os.WriteFile(g.tokensFile, []byte(line), 0o600); err != nil {
		return nil, err
	}
	if secure {
		g.scheme, g.certFile, g.keyFile = "wss", filepath.Join(b.Folder, "cert.pem"), filepath.Join(b.Folder, "key.pem")
		if err := writeCertificate(g.certFile, g.keyFile); err != nil {
			return nil, err
		}
	}
	for range replicas {
		port, err := redisserver.FreePort()
		if err != nil {
			return nil, err
		}
		g.addrs = append(g.addrs, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	g.redis, err = startRedis(ctx, b)
	return g, err
}

// startNext starts the next replica, and waits until it serves.
func (g *gateways) startNext(ctx context.Context) error {
	i := len(g.all)
	env := []string{"FREESLOT_GATEWAY__TOKENS_FILE=" + g.tokensFile, "FREESLOT_GATEWAY__LISTEN=" + g.addrs[i]}
	if g.certFile != "" {
		env = append(env, "FREESLOT_GATEWAY__TLS__CERT_FILE="+g.certFile, "FREESLOT_GATEWAY__TLS__KEY_FILE="+g.keyFile)
	}
	r, err := system.StartScheduler(ctx, g.program, g.redis.URL(), i+1, env...)
	if err != nil {
		return err
	}
	g.all = append(g.all, r)
	return nil
}

// agents are the i-th of so many groups of all agents, with the addresses of all gateways.
func (g *gateways) agents(i, each int) agents {
	urls := make([]string, len(g.addrs))
	for k, addr := range g.addrs {
		urls[k] = g.scheme + "://" + addr
	}
	return agents{Gateways: strings.Join(urls, ","), Token: g.token, CAFile: g.certFile, First: i * each, Count: each, Slots: 4}
}

// kill ends a replica at once.
func (g *gateways) kill(i int) error {
	if err := g.all[i].Cmd.Process.Kill(); err != nil {
		return err
	}
	<-g.all[i].Done
	return nil
}

// stop ends what was started; replicas whose end is not measured are killed.
func (g *gateways) stop() error {
	for i := range g.all {
		_ = g.kill(i) // it may have ended
	}
	return g.redis.Stop()
}

// writeCertificate makes a certificate of the loopback address that signs itself.
func writeCertificate(certFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600),
	)
}
