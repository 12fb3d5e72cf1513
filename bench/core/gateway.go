package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
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
func runGateway(ctx context.Context, b *tool.Bench) {
	tool.Must(measure.RaiseFiles(fleetFiles))
	b.Say("Agents are workers with the default settings unless said otherwise, many in a process of their own; gateways are " +
		"replicas (the scheduler program) with the default settings, whose agents have a listener of their own.")
	runGatewayIdle(ctx, b)
	runGatewayKilled(ctx, b)
	runGatewayLine(ctx, b)
}

// gateways are replicas with what their agents need.
type gateways struct {
	redis *system.Redis
	all   []*system.Scheduler
	// addrs are where agents connect, also to replicas that are not started yet.
	addrs                     []string
	program                   string
	tokens                    *system.Tokens
	scheme, certFile, keyFile string
	// env are more of the replicas' settings.
	env []string
}

// newGateways starts Redis, and no replica. The caller stops them.
func newGateways(ctx context.Context, b *tool.Bench, replicas int, secure bool) *gateways {
	g := &gateways{program: b.Program(ctx, "scheduler"), scheme: "ws"}
	if secure {
		g.scheme, g.certFile, g.keyFile = "wss", filepath.Join(b.Folder, "cert.pem"), filepath.Join(b.Folder, "key.pem")
		tool.Check(writeCertificate(g.certFile, g.keyFile))
	}
	for range replicas {
		port := tool.Must(redisserver.FreePort())
		g.addrs = append(g.addrs, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	g.tokens = tool.Must(system.WriteTokens())
	g.redis = b.StartRedis(ctx)
	return g
}

// startNext starts the next replica.
func (g *gateways) startNext(ctx context.Context) {
	i := len(g.all)
	env := append([]string{"FREESLOT_GATEWAY__TOKENS_FILE=" + g.tokens.File, "FREESLOT_GATEWAY__LISTEN=" + g.addrs[i]}, g.env...)
	if g.certFile != "" {
		env = append(env, "FREESLOT_GATEWAY__TLS__CERT_FILE="+g.certFile, "FREESLOT_GATEWAY__TLS__KEY_FILE="+g.keyFile)
	}
	g.all = append(g.all, tool.Must(system.StartScheduler(ctx, g.program, g.redis.URL(), i+1, env...)))
}

// agents know the addresses of all gateways.
func (g *gateways) agents(count int) agents {
	urls := make([]string, len(g.addrs))
	for k, addr := range g.addrs {
		urls[k] = g.scheme + "://" + addr
	}
	return agents{Gateways: strings.Join(urls, ","), Token: g.tokens.Secret, CAFile: g.certFile, Count: count, Slots: 4}
}

// stop ends what was started; replicas whose end is not measured are killed.
func (g *gateways) stop() error {
	for _, r := range g.all {
		r.Kill()
	}
	return errors.Join(g.redis.Stop(), g.tokens.Remove())
}

// writeCertificate makes a certificate of the loopback address that signs itself.
func writeCertificate(certFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
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
