package cell

import (
	"fmt"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/selection"
)

// MaxCells is the most cells that a system can have.
const MaxCells = selection.MaxCells

// DefaultPrefix is the first part of every key and channel, unless another one is configured.
const DefaultPrefix = "scheduler"

// Layout builds the names of one cell's keys and channels for jobs, nodes, slots and queues.
// Features build the names of their own keys.
type Layout script.Layout

// Layouts returns the layouts of n cells (1 to MaxCells), in the order of their indexes. A single
// cell on a standalone server has no tag.
func Layouts(prefix string, n int, cluster bool) []Layout {
	if n > MaxCells {
		panic(fmt.Sprintf("cell: %d cells, expected at most %d", n, MaxCells))
	}
	layouts := make([]Layout, n)
	for i, l := range script.Layouts(prefix, n, cluster) {
		layouts[i] = Layout(l)
	}
	return layouts
}

// NodeCell returns the index of a node's cell.
func NodeCell(node string, cells int) int { return script.CellOf(node, cells) }

func (l Layout) key(kind, rest string) string { return script.Layout(l).Key(kind, rest) }

// Slot returns the hash slot of all keys with the layout's tag. It returns false without a tag:
// each key then has a slot of its own.
func (l Layout) Slot() (slot int, ok bool) { return script.Layout(l).Slot() }

// Node names the hash of a node's profile.
func (l Layout) Node(id string) string { return l.key("nodes", id) }

// Load names the string of a node's last heartbeat: its time, in milliseconds of Redis' clock with
// 13 digits, and for a node behind a gateway a space and its [Link]. It does not exist before the
// first heartbeat. Until then the time of the registration counts.
func (l Layout) Load(id string) string { return l.key("load", id) }

// Metrics names the string of the figures that a node reported last of its machine, a JSON object.
// It does not exist before the first report.
func (l Layout) Metrics(id string) string { return l.key("metrics", id) }

// Slots names the hash of the jobs that a node owns, job -> attempt:epoch:slots, and of their sum.
func (l Layout) Slots(id string) string { return l.key("slots", id) }

// Dispatch names the stream that delivers jobs and control entries to a node.
func (l Layout) Dispatch(id string) string { return l.key("dispatch", id) }

// Job names the hash of a job's record.
func (l Layout) Job(id string) string { return l.key("jobs", id) }

// Replies names the stream that delivers results to a replica.
func (l Layout) Replies(replica string) string { return l.key("replies", replica) }

// Gateway names the stream that delivers jobs and control entries to the nodes behind a replica's
// gateway.
func (l Layout) Gateway(replica string) string { return l.key("gateway", replica) }

// Finished names the zset of terminal jobs by the time (us) they ended, except dead ones.
func (l Layout) Finished() string { return l.key("finished", "") }

// Ended names the zset of the jobs that ended in a state other than succeeded, by the time (us).
func (l Layout) Ended(state string) string { return l.key("ended", state) }

// EndedInfo names the hash of when these indexes began, and for how long dead jobs are kept.
func (l Layout) EndedInfo() string { return l.key("ended", "") }

// Kept names the hash of how many bytes the records of Finished take, if that is limited.
func (l Layout) Kept() string { return l.key("kept", "") }

// KeptDead is Kept for dead jobs.
func (l Layout) KeptDead() string { return l.key("kept", string(freeslot.StateDead)) }

// Due names the zset of jobs by the time (ms) at which a replica must look at them.
func (l Layout) Due() string { return l.key("due", "") }

// Waiting names the hash of the classes with waiting jobs: id -> definition.
func (l Layout) Waiting() string { return l.key("waiting", "") }

// WaitingVersion names a number that changes with the set of these classes.
func (l Layout) WaitingVersion() string { return l.key("version:waiting", "") }

// Queue names the zset of the waiting jobs of a class, in the order in which they are served.
func (l Layout) Queue(class string) string { return l.key("waiting", class) }

// Fair names the hash of a class's virtual time and of its tenants' tags.
func (l Layout) Fair(class string) string { return l.key("fair", class) }

// Kinds names the set of the classes whose queues a tenant has made. Some of the queues are gone.
func (l Layout) Kinds(tenant string) string { return l.key("kinds", tenant) }

// Later names the zset of a tenant's jobs for later, by their times (ms). Some times are over.
func (l Layout) Later(tenant string) string { return l.key("later", tenant) }

// Drained names the set of the nodes that operators have drained.
func (l Layout) Drained() string { return l.key("drained", "") }

// Serves names the string of the classes that a node was found to serve.
func (l Layout) Serves(node string) string { return l.key("serves", node) }

// ServesVersion names the newest version of the pools' configuration that a replica reported.
func (l Layout) ServesVersion() string { return l.key("version:serves", "") }

// ServesGeneration names the generation of the counter that ServesVersion came from.
func (l Layout) ServesGeneration() string { return l.key("version:serves-of", "") }

// Rate names the string of how many permits a tenant's bucket had left, and when.
func (l Layout) Rate(tenant string) string { return l.key("rate", tenant) }

// Replicated names a key that is written to learn how far Redis' replicas have come.
func (l Layout) Replicated() string { return script.Layout(l).Replicated() }

// The names of limits in Redis are older, and stay: a limit is a gate there, and a limited job,
// which is one that a limit holds back, is parked.

// Limits names the hash of limits, by name.
func (l Layout) Limits() string { return l.key("gates", "") }

// Counted names the set of the jobs that count against a limit.
func (l Layout) Counted(name string) string { return l.key("gate", name) }

// FullLimits names the zset of the limits that hold jobs back, by the time (ms) at which they were
// last looked at.
func (l Layout) FullLimits() string { return l.key("parked", "") }

// LimitedBy names the zset of the jobs that a limit holds back. Each member is the job's class, a
// space, and the job.
func (l Layout) LimitedBy(limit string) string { return l.key("parked", limit) }

// Moves names the zset of the jobs that move to another cell, by the time (ms) at which a replica
// must look at them. Moved is the same for records that point to a job that has moved.
func (l Layout) Moves() string { return l.key("moves", "") }

// Moved is explained at Moves.
func (l Layout) Moved() string { return l.key("moved", "") }

// Online names the set of online nodes.
func (l Layout) Online() string { return l.key("nodes:index:online", "") }

// PoolMembers names the set of the nodes that name the pool in their profile.
func (l Layout) PoolMembers(pool string) string { return l.key("pool", pool+":members") }

// Revisions names the zset of nodes by the revision of their last change.
func (l Layout) Revisions() string { return l.key("index:revision", "") }

// Heartbeats names the zset of nodes by the time (ms) of their last heartbeat that no event told of.
func (l Layout) Heartbeats() string { return l.key("index:heartbeats", "") }

// Version names the hash of the cell's revision and generation.
func (l Layout) Version() string { return l.key("version:nodes", "") }

// Schema names the version of the key layout.
func (l Layout) Schema() string { return l.key("version:schema", "") }

// Cells names the record of the number of cells. It has no tag: a start with another number of
// cells, and so with other tags, must find it.
func (l Layout) Cells() string { return Layout{Prefix: l.Prefix}.key("version:cells", "") }

// NodeEvents names the channel of node events. It uses sharded pub/sub if Sharded is true.
func (l Layout) NodeEvents() string { return l.key("events:node_update", "") }

// String returns the name of the cell for logs.
func (l Layout) String() string { return script.Layout(l).String() }
