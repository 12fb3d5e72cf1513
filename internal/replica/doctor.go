package replica

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/doctor"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/history"
	"github.com/freeslot/freeslot/internal/listener"
	"github.com/freeslot/freeslot/internal/presence"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/script"
)

// Doctor checks the Redis of a configuration, what replicas say there of themselves, and the
// certificates and tokens of the configuration. It starts no replica, and writes nothing. The error
// says why it could not begin. A part that does not answer in time is unknown in the report.
func Doctor(ctx context.Context, cfg config.Replica) (finding.Report, error) {
	r := NewEmbedded(cfg, nil, zap.NewNop(), nil)
	conn := new(connections)
	var err error
	if conn.topology, err = redisclient.Inspect(ctx, redisConfig(cfg)); err != nil {
		return finding.Report{}, r.unreachable(err)
	}
	if conn.commands, err = conn.topology.Open(redisclient.Commands); err != nil {
		return finding.Report{}, r.unreachable(err)
	}
	defer conn.commands.Close()
	look, err := doctorsSources(cfg, conn)
	if err != nil {
		return finding.Report{}, err
	}
	return finding.New(look, zap.NewNop()).Look(), nil
}

// doctorsSources returns the sources that need no replica. They make the checks that replicas make,
// and look closely at the servers.
func doctorsSources(cfg config.Replica, conn *connections) ([]finding.Source, error) {
	cells, err := doctorsCells(cfg, conn)
	if err != nil {
		return nil, err
	}
	auth, err := newAuthenticator(cfg, zap.NewNop())
	if err != nil {
		return nil, err
	}
	var gate *door
	if cfg.Gateway.TokensFile != "" {
		gate = new(door)
		if gate.tokens, err = openTokens(cfg, auth, zap.NewNop()); err != nil {
			return nil, err
		}
	}
	served := []*listener.TLS{
		newTLS("tls", cfg.TLS, zap.NewNop(), nil), newTLS("gateway.tls", cfg.Gateway.TLS, zap.NewNop(), nil),
	}
	for _, t := range served {
		if _, err := t.Config(); err != nil { // reads the files
			return nil, err
		}
	}
	replicas := storedPeers(cfg.Findings, presence.NewStore(cells.At(0).Runner()))
	return []finding.Source{
		{Name: "redis", Look: func(ctx context.Context) ([]finding.Finding, error) {
			return redisNow(ctx, &cfg.Findings, cells, conn.topology)
		}},
		{Name: "memory", Look: func(ctx context.Context) ([]finding.Finding, error) {
			used, err := memoryOf(ctx, conn)
			return full(used, cfg.Findings.RedisMemory), err
		}},
		{Name: "replicas", Look: func(ctx context.Context) ([]finding.Finding, error) {
			return replicas.look(ctx, time.Now())
		}},
		agentsSource(replicas, storedAgents(cells)),
		{Name: "certificates", Look: func(context.Context) ([]finding.Finding, error) {
			return certificates(cfg.Findings.Expiry, served), nil
		}},
		{Name: "tokens", Look: func(context.Context) ([]finding.Finding, error) {
			return runOut(listed(auth, gate)(), time.Now(), cfg.Findings.Expiry), nil
		}},
		serversSource(cfg, conn),
	}, nil
}

// storedPeers compares the replicas that report themselves in Redis.
func storedPeers(limits config.Findings, store *presence.Store) *peers {
	return &peers{limits: limits, read: func(ctx context.Context) ([]history.ReplicaStatus, error) {
		running, err := store.Running(ctx)
		if err != nil || len(running) == 0 {
			return nil, err
		}
		past := history.New()
		past.Observe(running[0].AtMS, reportsOf(running))
		return past.Replicas(ctx, store.Statuses)
	}}
}

// doctorsCells makes cells that are only read.
func doctorsCells(cfg config.Replica, conn *connections) (*cell.Set, error) {
	layouts := cell.Layouts(cfg.Redis.KeyPrefix, cfg.Redis.Cells, conn.topology.Cluster)
	cells := make([]*cell.Cell, len(layouts))
	for i, layout := range layouts {
		c, err := cell.New(cell.Config{
			Layout: layout, Index: i, Cells: len(layouts), Servers: conn.topology.Servers, Scripts: script.Keep,
		}, conn.commands.For(i), zap.NewNop(), nil)
		if err != nil {
			return nil, err
		}
		cells[i] = c
	}
	return cell.NewSet(cells...), nil
}

// memoryOf returns how much memory the servers use, as far as they tell it.
func memoryOf(ctx context.Context, conn *connections) (all []history.ServerStatus, err error) {
	for _, client := range conn.commands.All() {
		for addr, node := range client.Nodes() {
			text, err := node.Do(ctx, node.B().Info().Section("memory").Build()).ToString()
			if err != nil {
				return nil, fmt.Errorf("memory of redis at %s: %w", addr, err)
			}
			info, s := doctor.Fields(text), history.ServerStatus{Address: addr}
			s.UsedBytes, _ = strconv.ParseInt(info["used_memory"], 10, 64) // not told
			s.MaxBytes, _ = strconv.ParseInt(info["maxmemory"], 10, 64)
			all = append(all, s)
		}
	}
	return all, nil
}

// serversSource returns the checks of Redis' servers that are made when somebody asks for them.
func serversSource(cfg config.Replica, conn *connections) finding.Source {
	return finding.Source{Name: "servers", Look: func(ctx context.Context) ([]finding.Finding, error) {
		s := new(servers)
		defer s.close()
		for i, client := range conn.commands.All() {
			s.open(ctx, conn.topology.Config(i), client)
		}
		found, err := doctor.Look(ctx, s.all, doctor.Config{})
		if unchecked, ok := errors.AsType[finding.Unchecked](err); ok {
			s.unchecked = append(s.unchecked, unchecked...)
		}
		found = append(found, s.certificates(ctx, &cfg)...)
		if len(s.unchecked) > 0 {
			return found, s.unchecked
		}
		return found, nil
	}}
}

// servers holds the servers that a doctor looks at, and what it could not look at.
type servers struct {
	all       []doctor.Server
	configs   []redisclient.Config // by server
	opened    []rueidis.Client
	unchecked finding.Unchecked
}

func (s *servers) close() {
	for _, client := range s.opened {
		client.Close()
	}
}

// open adds the servers behind a client, and the replicas that they name.
func (s *servers) open(ctx context.Context, c redisclient.Config, client rueidis.Client) {
	nodes := client.Nodes()
	for addr, node := range nodes {
		s.all, s.configs = append(s.all, doctor.Server{Addr: addr, Client: node}), append(s.configs, c)
	}
	addrs, err := redisclient.Servers(ctx, client)
	if err != nil {
		s.unchecked = append(s.unchecked, err.Error())
	}
	for _, addr := range addrs {
		if nodes[addr] != nil {
			continue
		}
		at, err := redisclient.At(c, addr)
		if err != nil {
			s.unchecked = append(s.unchecked, fmt.Sprintf("redis at %s, a replica, cannot be reached from here: %v", addr, err))
			continue
		}
		s.opened = append(s.opened, at)
		s.all = append(s.all, doctor.Server{Addr: addr, Client: at, Replica: true})
		s.configs = append(s.configs, c)
	}
}

// certificates returns the certificates of connections to Redis that are over, or will be soon.
func (s *servers) certificates(ctx context.Context, cfg *config.Replica) (found []finding.Finding) {
	if file := cfg.Redis.TLS.CertFile; file != "" {
		end, err := endOf(file)
		if err != nil {
			s.unchecked = append(s.unchecked, fmt.Sprintf("redis.tls.cert_file: %v", err))
		} else {
			found = append(found, certificate("redis.tls", end, cfg.Findings.Expiry)...)
		}
	}
	for i := range s.all {
		end, err := redisclient.CertificateEnd(ctx, s.configs[i], s.all[i].Addr)
		switch {
		case err != nil:
			s.unchecked = append(s.unchecked, fmt.Sprintf("redis at %s: its certificate: %v", s.all[i].Addr, err))
		case !end.IsZero():
			found = append(found, certificate("redis at "+s.all[i].Addr, end, cfg.Findings.Expiry)...)
		}
	}
	slices.SortFunc(found, func(a, b finding.Finding) int { return strings.Compare(a.ID, b.ID) })
	return found
}

// endOf returns when the first certificate of a file ends.
func endOf(file string) (time.Time, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return time.Time{}, fmt.Errorf("%s has no certificate", file)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", file, err)
	}
	return cert.NotAfter, nil
}
