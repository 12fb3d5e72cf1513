package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/script"
)

// Config configures a log. The zero value of each field means its default.
type Config struct {
	// Replica names this process in entries.
	Replica string
	// Required refuses a change whose begin cannot be recorded.
	Required bool
	// Entries is about how many ended changes are kept, and as many of tenants; 0 means
	// DefaultEntries.
	Entries int
}

// RoleRedis is the role of who made a change in Redis itself, by schedctl. Name is then a user of
// Redis. Where Redis' password is all that proves who calls, the address is what the caller says.
const RoleRedis identity.Role = "redis"

// DefaultEntries is the default of Config.Entries. They take about 8 MB, and tenants' as much.
const DefaultEntries = 20_000

// Log records changes. It is safe for concurrent use.
type Log struct {
	cfg     Config
	store   *store
	log     *zap.Logger
	entries *prometheus.CounterVec
}

// New makes a log on the first cell of a system. It does no I/O. reg may be nil.
func New(cfg Config, first *script.Runner, log *zap.Logger, reg prometheus.Registerer) *Log {
	if cfg.Entries == 0 {
		cfg.Entries = DefaultEntries
	}
	return &Log{
		cfg: cfg, store: newStore(first, cfg.Entries), log: log,
		entries: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "freeslot_audit_entries_total",
			Help: "Changes by operators, by whether the audit has them: recorded, or lost because Redis could not be asked. " +
				"The log has both.",
		}, []string{"outcome"}),
	}
}

// Change is a change under way. Its methods do nothing on nil, which stands for a change that is
// not audited. It is for one goroutine.
type Change struct {
	log   *Log
	entry Entry
	begun time.Time
	dry   bool
	// Lost is nil if Redis has the begin, otherwise why not.
	Lost error
}

// Begin records a change before it is made. call, target and reason are as in Entry; address is
// where the request came from. The caller calls End in any case. The error is an *freeslot.Error,
// and only set if the audit is required.
func (l *Log) Begin(
	ctx context.Context, who *identity.Principal, call, target, address, reason string,
) (*Change, error) {
	c := &Change{log: l, begun: time.Now(), entry: Entry{
		ID: ulid.Make().String(), Call: call, Target: clip(target), Address: address, Replica: l.cfg.Replica,
		Name: who.Name, Role: string(who.Role), Tenant: who.Tenant, Reason: reason,
	}}
	c.entry.AtMS = c.begun.UnixMilli()
	if c.Lost = l.store.begin(ctx, &c.entry); c.Lost == nil {
		return c, nil
	}
	l.log.Warn("audit.not_recorded", zap.String("change", c.entry.ID), zap.Error(c.Lost))
	if !l.cfg.Required {
		return c, nil
	}
	refused := &freeslot.Error{
		Code: freeslot.CodeUnavailable, RetryAfter: time.Second,
		Message: "nothing was changed: audit.required is set, and Redis could not record the change",
	}
	c.End(ctx, string(refused.Code))
	return nil, refused
}

// ID names the change; "" for nil.
func (c *Change) ID() string {
	if c == nil {
		return ""
	}
	return c.entry.ID
}

// Note describes the state before and after the change, in short. An empty text leaves an earlier
// one as it is.
func (c *Change) Note(before, after string) {
	if c == nil {
		return
	}
	if before != "" {
		c.entry.Before = clip(before)
	}
	if after != "" {
		c.entry.After = clip(after)
	}
}

// DryRun notes that the caller asked for a dry run. If it ends as done, its outcome is
// OutcomeDryRun.
func (c *Change) DryRun() {
	if c != nil {
		c.dry = true
		c.Note("", "nothing changed")
	}
}

// Because adds a reason, unless the caller gave one with the request.
func (c *Change) Because(reason string) {
	if c != nil && c.entry.Reason == "" {
		c.entry.Reason = clip(reason)
	}
}

// End records the outcome, OutcomeDone or the code of an error, and logs the change. It does not
// end with ctx: the change was made, whether or not its caller still waits.
func (c *Change) End(ctx context.Context, outcome string) {
	if c == nil {
		return
	}
	if c.dry && outcome == OutcomeDone {
		outcome = OutcomeDryRun
	}
	c.entry.Outcome, c.entry.TookMS = outcome, time.Since(c.begun).Milliseconds()
	label := "recorded"
	if err := c.log.store.end(context.WithoutCancel(ctx), &c.entry); err != nil {
		label = "lost"
		c.log.log.Warn("audit.not_recorded", zap.String("change", c.entry.ID), zap.Error(err))
	}
	c.log.entries.WithLabelValues(label).Inc()
	e := &c.entry
	c.log.log.Info("audit.change",
		zap.String("change", e.ID), zap.String("call", e.Call), zap.String("target", e.Target),
		zap.String("name", e.Name), zap.String("role", e.Role), zap.String("tenant", e.Tenant),
		zap.String("address", e.Address), zap.String("reason", e.Reason),
		zap.String("before", e.Before), zap.String("after", e.After),
		zap.String("outcome", e.Outcome), zap.Int64("took_ms", e.TookMS), zap.String("audit", label),
	)
}

// Read returns up to limit entries that match, the newest first, and the cursor of the next page,
// "" at the end. The first page begins with the changes that have no outcome yet. A page can be
// empty before the end. An error is an *freeslot.Error for a bad cursor, or Redis'.
func (l *Log) Read(ctx context.Context, f Filter, cursor string, limit int) (page []Entry, next string, err error) {
	page, next, err = l.store.read(ctx, f, cursor, limit)
	if err != nil {
		return nil, "", fmt.Errorf("read the audit: %w", err)
	}
	return page, next, nil
}

type changeKey struct{}

// With returns a context that carries the change to its handler.
func With(ctx context.Context, c *Change) context.Context {
	return context.WithValue(ctx, changeKey{}, c)
}

// Of returns the change that ctx carries, or nil.
func Of(ctx context.Context) *Change {
	c, _ := ctx.Value(changeKey{}).(*Change)
	return c
}
