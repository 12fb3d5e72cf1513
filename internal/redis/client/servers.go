package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// Servers returns the addresses behind a client: all members of a cluster, or a master and its
// replicas. Errors: from Redis, together with the addresses that are known.
func Servers(ctx context.Context, client rueidis.Client) ([]string, error) {
	nodes := client.Nodes()
	var addrs []string
	for addr := range nodes {
		addrs = append(addrs, addr)
	}
	slices.Sort(addrs)
	if client.Mode() == rueidis.ClientModeCluster {
		return addrs, nil
	}
	for addr, node := range nodes {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		said, err := node.Do(ctx, node.B().Role().Build()).ToArray()
		if err != nil {
			return addrs, fmt.Errorf("ask redis at %s for its replicas: %w", addr, err)
		}
		addrs = append(addrs, replicas(said)...)
	}
	return addrs, nil
}

// replicas reads a master's answer to ROLE.
func replicas(said []rueidis.RedisMessage) []string {
	if len(said) < 3 {
		return nil
	}
	list, err := said[2].ToArray()
	if err != nil {
		return nil
	}
	var addrs []string
	for _, m := range list {
		parts, err := m.AsStrSlice()
		if err != nil || len(parts) < 2 {
			continue
		}
		if _, err := strconv.Atoi(parts[1]); err == nil {
			addrs = append(addrs, net.JoinHostPort(parts[0], parts[1]))
		}
	}
	return addrs
}

// CertificateEnd returns when the certificate of the server at addr ends; zero if c asks for no
// TLS. ctx bounds the call.
func CertificateEnd(ctx context.Context, c Config, addr string) (time.Time, error) {
	opt, err := c.option()
	if err != nil || opt.TLSConfig == nil {
		return time.Time{}, err
	}
	conn, err := (&tls.Dialer{NetDialer: &opt.Dialer, Config: opt.TLSConfig}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return time.Time{}, err
	}
	defer conn.Close()
	end := time.Time{}
	if secure, ok := conn.(*tls.Conn); ok {
		end = secure.ConnectionState().PeerCertificates[0].NotAfter
	}
	return end, nil
}
