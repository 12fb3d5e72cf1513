package namelist

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

const (
	// ReportLists is the largest number of lists in a report.
	ReportLists = 100
	// ReportClients is the largest number of clients that a tenant has in the reports on a list.
	ReportClients = 1000
	// Live is how long a client counts as live after its last report.
	Live = 15 * time.Second
)

// ClientReport is a client's report on one list. Without Birth it takes the client's report back,
// and leaves only what was counted last.
type ClientReport struct {
	Birth    string `json:"birth"`
	Revision int64  `json:"revision"`
	// Serves is the version that it answers from; 0 means none.
	Serves int64 `json:"serves"`
	// Loaded lists the versions whose blocks it has, as far as they fit.
	Loaded []int64 `json:"loaded,omitzero"`
	// SDK is the client's name and version.
	SDK string `json:"sdk,omitzero"`
	// Counts is the text of a [count.Report], for a chain of a [count.RuleReport]; empty from a
	// client that does not count.
	Counts string `json:"counts,omitzero" doc:"What it has counted since its start: a name that it makes anew at each start, then name=number with spaces between, such as filter_no=9. age_ms is the time since the start. For a chain, rule=n,n,n: decisions allow, deny, variant and unknown, then what a shadow decided: the same, something else, or undecided; (default) is a rule, too, and (age_ms) the time."`
}

// Owner says by which token a client reports through a replica. Reports of different owners never
// meet, even if their clients have one name. The zero value stands for processes that report to
// Redis themselves: Redis lets all of them write the same reports.
type Owner struct {
	// Tenant is the token's tenant. Name is the token's name; empty for a token without one.
	Tenant, Name string
}

// direct is the owner of clients that report to Redis themselves. No tenant has such a name.
const direct = "(redis)"

// String returns the owner as operators see it: tenant/name, only the tenant for a token without
// name, or (redis).
func (o Owner) String() string {
	switch {
	case o == Owner{}:
		return direct
	case o.Name == "":
		return o.Tenant
	default:
		return o.Tenant + "/" + o.Name
	}
}

// Report records in the name of a process with Redis what a client has loaded and serves, for up to
// ReportLists lists by their names, or chains by their marks.
func (c *Control) Report(ctx context.Context, client string, lists map[string]ClientReport) error {
	if err := freeslot.ValidateName("client", client); err != nil {
		return err
	}
	var keys []string
	args := []string{client, c.k.index()}
	for list, report := range lists {
		text, err := report.text()
		if err != nil {
			return err
		}
		keys, args = append(keys, c.k.clients(list)), append(args, list, text)
	}
	if err := c.runner.Call(ctx, scripts["report"], keys, args).Error(); err != nil {
		return fmt.Errorf("report of client %s: %w", client, noMemory(err))
	}
	return nil
}

func (r *ClientReport) text() (string, error) {
	if r.Birth == "" && r.Counts == "" {
		return "", nil
	}
	text, err := json.Marshal(r)
	if r.Birth == "" {
		return leftBy + string(text), err
	}
	return string(text), err
}

// leftBy stands before the last report of a client that has closed.
const leftBy = "left "

// Relay records a report that came to a replica from a client with this owner's token. It refuses
// the reports on lists that have [ReportClients] live clients of the owner's tenant without this
// one, and returns those lists. A client that was refused is not waited for; its answers are right.
func (c *Control) Relay(
	ctx context.Context, owner Owner, client string, lists map[string]ClientReport,
) (refused []string, err error) {
	if err := freeslot.ValidateName("client", client); err != nil {
		return nil, err
	}
	keys := []string{c.k.index()}
	args := []string{owner.Tenant, owner.String() + " " + client, number(ReportClients)}
	for list, report := range lists {
		text, err := report.text()
		if err != nil {
			return nil, err
		}
		keys, args = append(keys, c.k.readers(list), c.k.readerCounts(list)), append(args, list, text)
	}
	r := script.ReadReply(c.runner.Call(ctx, scripts["relay"], keys, args))
	redisTime(&r)
	if refused = r.Texts(); r.Err != nil {
		return nil, fmt.Errorf("report of client %s: %w", client, noMemory(r.Err))
	}
	return refused, nil
}

// Client is a live client of a list.
type Client struct {
	// Owner is tenant/name of the client's token, only the tenant for a token without name, or
	// (redis).
	Owner string
	ID    string
	At    time.Time // when it reported, by Redis' clock
	ClientReport
}

// Clients returns the clients that have reported within Live, by their ids. at is Redis' time.
func (c *Control) Clients(ctx context.Context, list string) (live []Client, at time.Time, err error) {
	keys := []string{c.k.clients(list), c.k.readers(list), c.k.readerCounts(list)}
	r := script.ReadReply(c.runner.Call(ctx, scripts["clients"], keys, nil))
	at = redisTime(&r)
	for r.Err == nil && len(r.Values) > 0 {
		one := Client{Owner: Owner{}.String(), ID: r.Text(), At: redisTime(&r)}
		if i := strings.LastIndexByte(one.ID, ' '); i >= 0 {
			one.Owner, one.ID = one.ID[:i], one.ID[i+1:]
		}
		if text := r.Text(); r.Err == nil && json.Unmarshal([]byte(text), &one.ClientReport) == nil {
			live = append(live, one)
		}
	}
	if r.Err != nil {
		return nil, at, fault("clients of", list, r.Err)
	}
	slices.SortFunc(live, func(a, b Client) int {
		if c := strings.Compare(a.ID, b.ID); c != 0 {
			return c
		}
		return strings.Compare(a.Owner, b.Owner)
	})
	return live, at, nil
}

// Lacking counts the live clients of a list that lack a version.
type Lacking struct {
	// Direct are processes with Redis, Relayed are clients that report through replicas.
	Direct, Relayed int64
}

// Lacking counts the clients that a switch to h.Next may wait for: they report on this life of the
// list, hold the serving version whole, and do not have the next one. A client without the serving
// version asks Redis already, so the switch changes nothing for it.
func (c *Control) Lacking(ctx context.Context, h *Head) (n Lacking, err error) {
	serving := int64(0)
	if h.Serving != nil {
		serving = h.Serving.Number
	}
	keys := []string{c.k.clients(h.Name), c.k.readers(h.Name)}
	args := []string{h.Birth, number(serving), number(h.Op.Number)}
	r := script.ReadReply(c.runner.Read(ctx, scripts["lacking"], keys, args))
	n = Lacking{Direct: r.Number(), Relayed: r.Number()}
	if r.Err != nil {
		return Lacking{}, fault("count clients of", h.Name, r.Err)
	}
	return n, nil
}
