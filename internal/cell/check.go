package cell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// SchemaVersion is the version of the key layout that this release uses.
const SchemaVersion = 3

const checkTimeout = 5 * time.Second

// Check checks that Redis can be trusted with the jobs of a system of one cell. [Set.Check] does it
// for any number of cells.
func Check(ctx context.Context, client rueidis.Client, layout Layout) (warnings []string, err error) {
	c, err := New(Config{Layout: layout}, client, zap.NewNop(), nil)
	if err != nil {
		return nil, err
	}
	warnings, _, err = NewSet(c).Check(ctx)
	return warnings, err
}

// Check checks that every server can be trusted with jobs, before the first job is accepted. A
// warning names a setting that costs safety or cannot be read. An error says what must be changed,
// and how. If nothing is recorded yet, Check records the schema version and the numbers of cells
// and servers. What is recorded stays as it is.
//
// down holds the cells that cannot serve now, and why: they do not answer, or their server says so
// (for example while it loads its data). They are not trusted yet. They are not an error as long as
// one cell serves. Call [Cell.Check] when one of them comes up.
func (s *Set) Check(ctx context.Context) (warnings []string, down map[int]error, err error) {
	found := make([][]string, len(s.cells))
	refused := make([]error, len(s.cells))
	down = byCell(s.each(func(c *Cell) error {
		var err error
		found[c.cfg.Index%len(s.cells)], err = c.Check(ctx)
		var unreachable *unreachableError
		if errors.As(err, &unreachable) {
			return err
		}
		refused[c.cfg.Index%len(s.cells)] = err
		return nil
	}))
	// All cells of a server report the same about it.
	seen := make(map[string]bool)
	for _, w := range slices.Concat(found...) {
		if !seen[w] {
			seen[w] = true
			warnings = append(warnings, w)
		}
	}
	for _, err := range refused {
		if err != nil {
			return warnings, down, err
		}
	}
	if len(down) == len(s.cells) {
		return warnings, down, down[0]
	}
	return warnings, down, nil
}

// Check is [Set.Check] for this cell and its server.
func (c *Cell) Check(ctx context.Context) (warnings []string, err error) {
	if warnings, err = c.CheckServers(ctx); err != nil {
		return nil, err
	}
	if err := c.checkRecord(ctx, true); err != nil || c.cfg.Scripts != script.Keep {
		return warnings, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err = c.runner.Load(ctx)
	if script.IsRefused(err) {
		return append(warnings, fmt.Sprintf("redis does not let us load scripts (%v): agents whose user may not either "+
			"wait for ever; `schedctl acl --role replica` has what this user needs", err)), nil
	}
	return warnings, unreachableOr(err)
}

// CheckServers is the part of Check that looks at the settings of the cell's server, or of all
// servers of a cluster. It writes nothing.
func (c *Cell) CheckServers(ctx context.Context) (warnings []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if c.client.Mode() == rueidis.ClientModeCluster {
		if err := c.checkCluster(ctx); err != nil {
			return nil, err
		}
	}
	nodes := c.client.Nodes()
	for addr, node := range nodes {
		w, err := checkNode(ctx, addr, node, c.client.Mode() == rueidis.ClientModeCluster)
		if err != nil {
			return nil, err
		}
		warnings = append(warnings, w...)
	}
	slices.Sort(warnings)
	return warnings, nil
}

// CheckRecord compares the schema version and the numbers of cells and servers with the recorded
// ones. It finds no difference if nothing is recorded. It is for agents, so it records nothing: a
// wrongly configured agent that starts first would otherwise make every replica refuse to start.
func (c *Cell) CheckRecord(ctx context.Context) error {
	return c.checkRecord(ctx, false)
}

// Record compares the same as CheckRecord, and records it if nothing is recorded. It is for
// replicas that keep running after Redis lost its data.
func (c *Cell) Record(ctx context.Context) error {
	return c.checkRecord(ctx, true)
}

// IsRefusal reports whether an error of Check or Record is a finding that somebody must fix, not an
// outage.
func IsRefusal(err error) bool {
	var finding *refusal
	return errors.As(err, &finding)
}

func (c *Cell) checkRecord(ctx context.Context, write bool) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := c.checkCells(ctx, write); err != nil {
		return unreachableOr(err)
	}
	return unreachableOr(c.checkSchema(ctx, write))
}

// checkNode looks at one server. It ignores a member of a cluster that is down: the cluster
// replaces it.
func checkNode(ctx context.Context, addr string, node rueidis.Client, cluster bool) (warnings []string, err error) {
	info, err := serverInfo(ctx, node)
	var refused *rueidis.RedisError
	switch {
	case errors.As(err, &refused):
		return []string{fmt.Sprintf("redis at %s does not let us read its settings (%v): "+
			"make sure that it is 7.0 or later, maxmemory-policy is noeviction and appendonly is yes", addr, err)}, nil
	case err != nil && cluster:
		return []string{fmt.Sprintf("redis at %s, a member of the cluster, does not answer: %v", addr, err)}, nil
	case err != nil:
		return nil, &unreachableError{fmt.Errorf("redis at %s does not answer: %w", addr, err)}
	}
	if info["cluster_enabled"] == "1" && !cluster {
		return nil, refuse("redis at %s is a member of a cluster, and is used as a standalone server: name the cluster's "+
			"nodes in redis.url, and leave redis.urls out", addr)
	}
	return checkServer(addr, info)
}

// minMasters is the least number of masters of a cluster that can agree on a failover.
const minMasters = 3

func (c *Cell) checkCluster(ctx context.Context) error {
	reply, err := c.client.Do(ctx, c.client.B().ClusterInfo().Build()).ToString()
	if err != nil {
		return unreachableOr(fmt.Errorf("ask for the state of the cluster: %w", err))
	}
	info := infoFields(strings.TrimPrefix(reply, "txt:"))
	if info["cluster_state"] != "ok" {
		return refuse("the Redis Cluster is not whole (cluster_state %s, %s of %d hash slots served): mend it, see "+
			"`redis-cli --cluster check`",
			info["cluster_state"], info["cluster_slots_ok"], script.HashSlots)
	}
	if n, err := strconv.Atoi(info["cluster_size"]); err != nil || n < minMasters {
		return refuse("the Redis Cluster has %s masters with hash slots, expected at least %d: fewer cannot agree on a "+
			"failover; add masters, or use standalone servers",
			info["cluster_size"], minMasters)
	}
	return nil
}

func (c *Cell) checkCells(ctx context.Context, write bool) error {
	server := c.cfg.Index % c.cfg.Servers
	args := []string{strconv.Itoa(c.cfg.Cells), strconv.Itoa(c.cfg.Servers), strconv.Itoa(server)}
	var found []string
	var err error
	if write {
		found, err = c.runner.Call(ctx, c.scripts["cells"], []string{c.layout.Cells()}, args).AsStrSlice()
	} else {
		found, err = c.recorded(ctx)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", c.layout.Cells(), err)
	}
	if len(found) == 0 && !write {
		return nil
	}
	if len(found) != 3 {
		return refuse("%s has %d fields, expected 3: no release wrote it", c.layout.Cells(), len(found))
	}
	switch prefix := c.layout.Prefix; {
	case found[0] != args[0]:
		return refuse("redis.cells is %s, and the data under %s was made with %s: the number is fixed by the first start; "+
			"set redis.cells to %s, or set another redis.key_prefix",
			args[0], prefix, found[0], found[0])
	case found[1] != args[1]:
		return refuse("redis.urls names %s servers, and the data under %s was spread over %s: list the same servers, or "+
			"set another redis.key_prefix",
			args[1], prefix, found[1])
	case found[2] != args[2]:
		return refuse("the server at redis.urls[%s] holds the cells of redis.urls[%s], such as cell %s: list the servers "+
			"in the order in which they were first used",
			args[2], found[2], found[2])
	}
	return nil
}

// recorded returns what cells.lua returns, or nil if nothing is recorded. It is for agents, which
// may not write to these keys of the whole system.
func (c *Cell) recorded(ctx context.Context) ([]string, error) {
	read := c.client.B().Hmget().Key(c.layout.Cells()).Field("cells", "servers", "server").Build()
	fields, err := c.runner.Do(ctx, "check", read).ToArray()
	if err != nil {
		return nil, err
	}
	found := make([]string, len(fields))
	for i := range fields {
		if found[i], err = fields[i].ToString(); err != nil && !rueidis.IsRedisNil(err) {
			return nil, err
		}
	}
	if found[0] == "" {
		return nil, nil
	}
	return found, nil
}

// serverInfo returns the sections of INFO that Check needs, as one map.
func serverInfo(ctx context.Context, client rueidis.Client) (map[string]string, error) {
	text, err := client.Do(ctx, client.B().Info().Build()).ToString()
	if err != nil {
		return nil, err
	}
	return infoFields(text), nil
}

func infoFields(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

func checkServer(addr string, info map[string]string) (warnings []string, err error) {
	version, told := info["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); !told {
		warnings = append(warnings, fmt.Sprintf("redis at %s does not tell its version: "+
			"make sure that it is 7.0 or later", addr))
	} else if err != nil || n < 7 {
		return nil, refuse("redis at %s is version %q, expected 7.0 or later: upgrade the server", addr, version)
	}
	switch policy := info["maxmemory_policy"]; policy {
	case "noeviction":
	case "":
		warnings = append(warnings, fmt.Sprintf("redis at %s does not tell its maxmemory-policy: make sure that it is "+
			"noeviction", addr))
	default:
		return nil, refuse("redis at %s has maxmemory-policy %s, which deletes jobs when memory runs short, expected "+
			"noeviction: run `redis-cli CONFIG SET maxmemory-policy noeviction` and put the same into redis.conf", addr, policy)
	}
	switch info["aof_enabled"] {
	case "1":
	case "":
		warnings = append(warnings, fmt.Sprintf("redis at %s does not tell whether it keeps an append-only file: without "+
			"one a restart loses jobs", addr))
	default:
		warnings = append(warnings, fmt.Sprintf("redis at %s keeps no append-only file: a restart loses jobs; "+
			"run `redis-cli CONFIG SET appendonly yes` and put the same into redis.conf", addr))
	}
	return warnings, nil
}

func (c *Cell) checkSchema(ctx context.Context, write bool) error {
	key := c.layout.Schema()
	if write {
		set := c.client.B().Set().Key(key).Value(strconv.Itoa(SchemaVersion)).Nx().Build()
		if err := c.client.Do(ctx, set).Error(); err != nil && !rueidis.IsRedisNil(err) {
			return fmt.Errorf("write %s: %w", key, err)
		}
	}
	text, err := c.client.Do(ctx, c.client.B().Get().Key(key).Build()).ToString()
	if rueidis.IsRedisNil(err) && !write {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	found, err := strconv.Atoi(text)
	switch {
	case err == nil && found == SchemaVersion:
		return nil
	case err == nil && found > SchemaVersion:
		return refuse("the data under %s was written by a newer release (schema %d, this one knows %d): upgrade this "+
			"process, or set another redis.key_prefix",
			c.layout.Prefix, found, SchemaVersion)
	case err == nil && found >= 1:
		return refuse("the data under %s was written by an older release (schema %d, this one writes %d): let that one "+
			"finish its jobs, then delete the data with "+
			"`redis-cli --scan --pattern '%s:*' | xargs redis-cli del`, or set another redis.key_prefix",
			c.layout.Prefix, found, SchemaVersion, c.layout.Prefix)
	default:
		return refuse("%s is %q, expected %d: no release wrote it; delete the data with "+
			"`redis-cli --scan --pattern '%s:*' | xargs redis-cli del`, or set another redis.key_prefix",
			key, text, SchemaVersion, c.layout.Prefix)
	}
}

// ServerLoad is what a cell's server says of itself, and of the cell's jobs.
type ServerLoad struct {
	// UsedBytes is the memory in use, LimitBytes is maxmemory; 0 if there is none, or it is not told.
	UsedBytes, LimitBytes int64
	// Run identifies the server's run, Role is master or slave; "" if it is not told.
	Run, Role string
	// AtUS is the time of the reading in microseconds since 1970, by the server's clock.
	AtUS int64
	// Ends is how many of the cell's jobs have ended since the reading before.
	Ends Ends
	// Retries counts the attempts that failed or were lost and were followed by another one, since
	// the cell's data began. It falls if Redis loses data.
	Retries int64
}

// Ends counts ended jobs by state, in the order of EndStates.
type Ends [5]int64

// EndStates returns the states in which a job ends.
func EndStates() [5]freeslot.State {
	return [...]freeslot.State{
		freeslot.StateSucceeded, freeslot.StateDead, freeslot.StateFailed, freeslot.StateCancelled, freeslot.StateExpired,
	}
}

// ServerLoad reads the load of the cell's server. since is AtUS of the reading before, 0 for none.
func (c *Cell) ServerLoad(ctx context.Context, since int64) (load ServerLoad, err error) {
	keys := []string{c.layout.Version(), c.layout.Finished()}
	states := EndStates()
	for _, state := range states[1:] { // those that succeeded have no index
		keys = append(keys, c.layout.Ended(string(state)))
	}
	keys = append(keys, c.layout.EndedInfo())
	reply, err := c.runner.Call(ctx, c.scripts["memory"], keys, []string{strconv.FormatInt(since, 10)}).ToArray()
	if err == nil && len(reply) != 6+len(load.Ends) {
		err = fmt.Errorf("%d values, expected %d", len(reply), 6+len(load.Ends))
	}
	if err != nil {
		return load, fmt.Errorf("load of redis: %w", err)
	}
	number := func(i int) int64 {
		text, _ := reply[i].ToString()
		n, _ := strconv.ParseInt(text, 10, 64) // not told
		return n
	}
	load.UsedBytes, load.LimitBytes, load.AtUS = number(0), number(1), number(3)
	load.Run, _ = reply[2].ToString()
	load.Role, _ = reply[4].ToString()
	load.Retries = number(5)
	for i := range load.Ends {
		if load.Ends[i], err = reply[6+i].AsInt64(); err != nil {
			return load, fmt.Errorf("load of redis: jobs that ended: %w", err)
		}
	}
	return load, nil
}

// MemoryUse returns the share of its maxmemory that the server uses, from 0. It is 0 if there is no
// limit or the server does not report it.
func (l *ServerLoad) MemoryUse() float64 {
	if l.LimitBytes <= 0 {
		return 0
	}
	return float64(l.UsedBytes) / float64(l.LimitBytes)
}

// MemoryUse returns what ServerLoad.MemoryUse returns for the cell's server.
func (c *Cell) MemoryUse(ctx context.Context) (float64, error) {
	load, err := c.ServerLoad(ctx, 0)
	return load.MemoryUse(), err
}

// unreachableError says that a server does not serve now. Whether it can be trusted is unknown.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }

func (e *unreachableError) Unwrap() error { return e.err }

// passing lists the error codes of a server that cannot serve now but will without any change on
// our side: it loads its data, waits for its master, does not know yet that it is the master,
// cannot write to its disk, or its slots are being moved.
var passing = []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MISCONF", "NOREPLICAS"}

// unreachableOr returns err as an unreachableError, unless it is a finding of ours or an answer of
// a Redis that serves.
func unreachableOr(err error) error {
	var answer *rueidis.RedisError
	switch {
	case err == nil || IsRefusal(err):
		return err
	case errors.As(err, &answer):
		if code, _, _ := strings.Cut(answer.Error(), " "); !slices.Contains(passing, code) {
			return err
		}
	}
	return &unreachableError{err}
}

// refusal is a finding that somebody must fix.
type refusal struct{ message string }

func (e *refusal) Error() string { return e.message }

func refuse(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }

// MemoryUse is [Cell.MemoryUse] by cell. failed holds the cells that did not report it.
func (s *Set) MemoryUse(ctx context.Context) (shares []float64, failed map[int]error) {
	shares = make([]float64, len(s.cells))
	return shares, byCell(s.each(func(c *Cell) (err error) {
		shares[c.cfg.Index], err = c.MemoryUse(ctx)
		return err
	}))
}
