package replica

import (
	"encoding/json"
	"slices"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/demand"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/history"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/process/version"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/tenant"
)

// statusInterval is how often a replica says what it says of itself, also if nothing has changed.
const statusInterval = 10 * time.Second

// selfStatus makes what the replica says of itself to the others.
type selfStatus struct {
	cfg     config.Replica
	cluster bool
	fleet   *fleet
	jobs    *dispatch.Dispatcher
	tenants *tenant.Meter
	kinds   *demand.Meter
	checks  atomic.Pointer[[]api.Check] // nil until the front is made, and in an embedded replica

	// Presence's loop alone uses these: when the status was last told, and the readiness and the
	// number of cells with an answer in it.
	toldAt    time.Time
	failed    []history.FailedCheck
	connected int
}

func newSelfStatus(
	cfg config.Replica, conn *connections, f *fleet, d *dispatch.Dispatcher, m *tenant.Meter,
	kinds *demand.Meter,
) *selfStatus {
	return &selfStatus{cfg: cfg, cluster: conn.topology.Cluster, fleet: f, jobs: d, tenants: m, kinds: kinds}
}

// next returns the status to tell now; "" if there is nothing new. It asks no one.
func (s *selfStatus) next(keeps bool) string {
	checks, failed := s.checks.Load(), []history.FailedCheck(nil)
	ready := true
	if checks != nil {
		for _, c := range *checks {
			if ok, detail := c.Ready(); !ok || detail != "" {
				failed, ready = append(failed, history.FailedCheck{Name: c.Name, OK: ok, Detail: detail}), ready && ok
			}
		}
	}
	// The texts of checks hold times, so they change all the time.
	same := slices.EqualFunc(
		failed, s.failed, func(a, b history.FailedCheck) bool { return a.Name == b.Name && a.OK == b.OK },
	)
	loads, connected := s.jobs.Loads(), 0
	for _, l := range loads {
		if l != nil {
			connected++
		}
	}
	if same && connected == s.connected && time.Since(s.toldAt) < statusInterval {
		return ""
	}
	s.toldAt, s.failed, s.connected = time.Now(), failed, connected
	status := history.Status{
		Build: version.String(), Embedded: !keeps, Features: presence.Features(), Ready: ready, Failed: failed,
		ConfigVersion: s.fleet.cache.ConfigVersion(), Redis: redisServers(s.cfg, s.cluster, loads),
	}
	// The route of statuses does not read the tenants and the demand. The list of tenants, and package
	// demand, read nothing else.
	text, _ := json.Marshal(struct { // it has no value that cannot be encoded
		history.Status
		Tenants []tenant.Submits `json:"tenants,omitempty"`
		Demand  []demand.Told    `json:"demand,omitempty"`
	}{status, s.tenants.Take(), s.kinds.Take()})
	return string(text)
}

// redisServers groups the cells by server. On a cluster the address of a cell's server is not
// known.
func redisServers(cfg config.Replica, cluster bool, loads []*dispatch.CellLoad) (all []history.ServerStatus) {
	hosts := redisHosts(cfg.Redis)
	for cell, load := range loads {
		s := history.ServerStatus{Cells: []int{cell}}
		if !cluster && len(hosts) > 0 {
			s.Address = hosts[cell%len(hosts)]
		}
		if load != nil {
			s.Connected, s.Role, s.Run, s.UsedBytes, s.MaxBytes = true, load.Role, load.Run, load.UsedBytes, load.LimitBytes
			s.LatencyMS = float64(load.Took.Microseconds()) / 1000
		}
		same := func(o history.ServerStatus) bool {
			return o.Run == s.Run && o.Address == s.Address && o.Connected == s.Connected
		}
		if i := slices.IndexFunc(all, same); i >= 0 {
			all[i].Cells = append(all[i].Cells, cell)
			continue
		}
		all = append(all, s)
	}
	return all
}
