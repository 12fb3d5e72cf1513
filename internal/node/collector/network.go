package collector

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/shirou/gopsutil/v4/net"
)

var loopback = regexp.MustCompile(`^(lo\d*|Loopback.*)$`)

// Network collects "network": rx_bytes_per_second, tx_bytes_per_second and errors_per_second,
// together for all its interfaces. They cover the time since the last collection, so the first
// collection has none. It adds established_connections where they are cheap to count.
type Network struct {
	builtIn
	// interfaces holds the chosen ones; empty means all except the loopback.
	interfaces []string
	at         time.Time
	before     map[string]net.IOCountersStat
}

// NewNetwork returns a collector for the named interfaces. None means all except the loopback; a
// byte that a bridge forwards then counts on each of its interfaces.
func NewNetwork(interfaces ...string) *Network {
	return &Network{
		builtIn: builtIn{
			"network", CostLow,
			[]string{"rx_bytes_per_second", "tx_bytes_per_second", "errors_per_second", "established_connections"},
		},
		interfaces: slices.Clone(interfaces),
	}
}

// Collect reads the counters and compares them with the last ones. For a chosen interface that does
// not exist, it returns an error together with the figures of the others.
func (n *Network) Collect(ctx context.Context) (Metrics, error) {
	counters, err := net.IOCountersWithContext(ctx, true)
	if err != nil {
		return nil, err
	}
	now := make(map[string]net.IOCountersStat, len(counters))
	for _, c := range counters {
		if n.counts(c.Name) {
			now[c.Name] = c
		}
	}
	var missing error
	for _, name := range n.interfaces {
		if _, ok := now[name]; !ok {
			missing = errors.Join(missing, fmt.Errorf("there is no interface %s", name))
		}
	}
	figures := n.take(time.Now(), now)
	if tcp, err := net.ProtoCountersWithContext(ctx, []string{"tcp"}); err == nil && len(tcp) == 1 {
		if established, ok := tcp[0].Stats["CurrEstab"]; ok {
			figures["established_connections"] = established
		}
	}
	return figures, missing
}

func (n *Network) counts(name string) bool {
	if len(n.interfaces) > 0 {
		return slices.Contains(n.interfaces, name)
	}
	return !loopback.MatchString(name)
}

// take computes the rates since the last reading. An interface that is new, or whose counters began
// again, counts from the next reading on.
func (n *Network) take(at time.Time, now map[string]net.IOCountersStat) Metrics {
	before, elapsed := n.before, at.Sub(n.at).Seconds()
	n.before, n.at = now, at
	if before == nil || elapsed <= 0 {
		return Metrics{}
	}
	var rx, tx, failed uint64
	for name, b := range now {
		a, ok := before[name]
		if !ok || b.BytesRecv < a.BytesRecv || b.BytesSent < a.BytesSent || b.Errin+b.Errout < a.Errin+a.Errout {
			continue
		}
		rx += b.BytesRecv - a.BytesRecv
		tx += b.BytesSent - a.BytesSent
		failed += b.Errin + b.Errout - a.Errin - a.Errout
	}
	return Metrics{
		"rx_bytes_per_second": int64(float64(rx) / elapsed),
		"tx_bytes_per_second": int64(float64(tx) / elapsed),
		"errors_per_second":   rounded(float64(failed) / elapsed),
	}
}
