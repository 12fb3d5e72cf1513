package cell

import (
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
)

// Limit bounds how many jobs run or wait at a time in a cell: max_running and max_waiting of a
// tenant, or max_running of a concurrency key. A running job counts towards its running limits, a
// waiting job towards its waiting limits. The latest submission sets the number. lib/limit.lua
// enforces limits.
type Limit struct {
	name string
	most int
}

// RunningLimit lets at most this many jobs of the tenant run. Further ones are held back.
func RunningLimit(tenant string, most int) Limit { return Limit{"r:" + tenant, most} }

// KeyLimit lets at most this many jobs of the tenant with this concurrency key run. Further ones
// are held back. All jobs of a key must go to the same cell.
func KeyLimit(tenant, key string, most int) Limit {
	return Limit{"k:" + tenant + ":" + shortHash(key), most}
}

// WaitingLimit lets at most this many jobs of the tenant wait, whether for a slot, after a failure
// or for a time. Further ones are refused.
func WaitingLimit(tenant string, most int) Limit { return Limit{"w:" + tenant, most} }

// limitsArg returns limits in the form that scripts read.
func limitsArg(limits []Limit) string {
	parts := make([]string, len(limits))
	for i, l := range limits {
		parts[i] = l.name + " " + strconv.Itoa(l.most)
	}
	return strings.Join(parts, " ")
}

// limitTenant returns the tenant whose jobs a limit counts.
func limitTenant(name string) string {
	tenant, _, _ := strings.Cut(name[min(2, len(name)):], ":")
	return tenant
}

// limitKind returns the kind of a limit that holds jobs back, as a job's status names it; "" for
// any other limit.
func limitKind(name string) string {
	switch {
	case strings.HasPrefix(name, "r:"):
		return freeslot.HeldByTenant
	case strings.HasPrefix(name, "k:"):
		return freeslot.HeldByKey
	default:
		return ""
	}
}

// limitedJob returns the job in a member of Layout.LimitedBy.
func limitedJob(member string) string { return member[strings.IndexByte(member, ' ')+1:] }
