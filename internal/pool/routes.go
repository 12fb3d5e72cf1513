package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/selection"
)

// store lists what the routes call of *Store.
type store interface {
	Read(ctx context.Context) (Document, error)
	Apply(ctx context.Context, c Change) (Outcome, error)
	Versions(ctx context.Context) ([]ConfigEntry, error)
	At(ctx context.Context, version uint64) (ConfigEntry, *selection.Config, error)
	ChangePaused(
		ctx context.Context, edit func(*selection.Paused), action, author, note string,
	) (Outcome, *selection.Paused, error)
}

// follower lists what the routes call of *Follower.
type follower interface {
	Current() State
	Sync(ctx context.Context) error
}

// Fence tells which version each replica begins jobs by, and what it knows. *dispatch.Dispatcher
// implements it.
type Fence interface {
	// Confirm waits until all replicas use a version or ctx ends, and returns the replicas that do
	// not.
	Confirm(ctx context.Context, version uint64, generation string) (behind []string, err error)
	// UnawareOfExpects returns the running replicas that would refuse a configuration with
	// selection.Expects.
	UnawareOfExpects(ctx context.Context) ([]string, error)
}

// configPath is the path at which the configuration is read and changed.
const configPath = "/v1/config"

// PoolConfig is the answer to a read of the configuration.
type PoolConfig struct {
	// The tags document the fields.
	Version  uint64                `json:"version" doc:"What a change is to be based on. 0: there is none in the store, or an operator removed its counter."`
	Source   string                `json:"source" enum:"redis,file,history" doc:"redis: the store. file: the replica's own file, as the store has none. history: the store's is broken, and was when this replica started."`
	Config   *selection.Config     `json:"config" doc:"The configuration in the store; where that is none, or broken, the one in force at this replica."`
	Author   string                `json:"author,omitempty" doc:"Tenant of the token, and who the caller said to be."`
	Note     string                `json:"note,omitempty"`
	Restores uint64                `json:"restores,omitempty" doc:"The version whose content this is, after a rollback."`
	AtMS     int64                 `json:"at_ms,omitempty" doc:"The store's clock when it was put in force, in milliseconds since 1970."`
	Edited   bool                  `json:"edited,omitempty" doc:"Whether somebody wrote it past the API: it is not what the history has as this version."`
	Problems []freeslot.FieldError `json:"problems,omitempty" doc:"What is wrong with the configuration in the store, which is then not in force."`
	InForce  InForce               `json:"in_force" doc:"What this replica goes by."`
}

// InForce is the configuration that a replica uses.
type InForce struct {
	Version uint64 `json:"version"`
	Source  string `json:"source" enum:"redis,file,history"`
}

// ConfigResult is the answer to a change.
type ConfigResult struct {
	Version   uint64 `json:"version" doc:"The version that is in force; in a dry run, the one that was compared with."`
	Unchanged bool   `json:"unchanged" doc:"Whether the content was in force already."`
	Source    string `json:"source" enum:"redis,file,history" doc:"Where that comes from which was compared with: the configuration in the store; where that is none, or broken, the one in force at this replica."`
	DryRun    bool   `json:"dry_run" doc:"Whether nothing was changed because that was asked for."`
	Diff      Diff   `json:"diff" doc:"What the change means, by the nodes that this replica knows."`
	Inert     bool   `json:"inert,omitempty" doc:"Whether the configuration that is changed to has pools that have no members and restrict nothing, because enabled is false."`
	// The tag documents Problems.
	Problems []freeslot.FieldError `json:"problems,omitempty" doc:"What is wrong with the configuration in the store, which the change replaces, whether or not it says the same as what is in force."`
}

// ConfigVersions is the history.
type ConfigVersions struct {
	Versions []ConfigEntry `json:"versions" doc:"The newest first; the last 100 are kept."`
}

// ConfigVersion is one version of the history.
type ConfigVersion struct {
	ConfigEntry
	Config *selection.Config `json:"config"`
}

// ConfigUpdate is the body of a change.
type ConfigUpdate struct {
	Version *uint64         `json:"version" doc:"The version that the change was made from; the change is refused with conflict when it is not the current one. Without it only a dry run is possible."`
	Config  json.RawMessage `json:"config"`
	Note    string          `json:"note,omitempty" doc:"Why, for the history."`
	Author  string          `json:"author,omitempty" doc:"Who, for the history; the tenant of the token is put before it."`
}

// ConfigRollback is the body of a rollback.
type ConfigRollback struct {
	Version *uint64 `json:"version" doc:"The current version, as in an update."`
	Restore uint64  `json:"restore" doc:"The version of the history whose content is to be in force again, as a new version."`
	Note    string  `json:"note,omitempty" doc:"Why, for the history."`
	Author  string  `json:"author,omitempty" doc:"Who, for the history."`
}

type (
	configInput  struct{}
	configOutput struct{ Body PoolConfig }
	updateInput  struct {
		DryRun  bool `query:"dry_run" doc:"Change nothing, and say what would change."`
		RawBody []byte
	}
	resultOutput  struct{ Body ConfigResult }
	historyOutput struct{ Body ConfigVersions }
	versionInput  struct {
		Version uint64 `path:"version" minimum:"1" doc:"A version of the history."`
	}
	versionOutput struct{ Body ConfigVersion }
)

// routes serves the HTTP routes of the configuration, of pools and of pauses.
type routes struct {
	*api.Router
	store store
	pools follower
	nodes func() []freeslot.Node // returns all nodes that this replica knows, ordered by id
	fence Fence
}

func (r routes) register(router *api.Router) {
	r.Router = router
	r.registerConfig()
	r.registerPools()
	r.registerPauses()
	r.document(router.OpenAPI())
}

func (r *routes) registerConfig() {
	r.LimitBody(configPath, "config", maxBytes)
	huma.Register(r, huma.Operation{
		OperationID: "get-config", Method: http.MethodGet, Path: configPath, Tags: []string{"config"},
		Summary:     "Read the configuration of pools",
		Description: "From the store, with its version and who made it.",
	}, r.getConfig)
	huma.Register(r, huma.Operation{
		OperationID: "put-config", Method: http.MethodPut, Path: configPath, Tags: []string{"config"},
		Summary: "Change the configuration of pools",
		Description: "Replaces it as a whole, on every replica within milliseconds. A bad one is refused whole, with " +
			"every bad field in errors. " +
			"What is in force already makes no new version.",
	}, r.putConfig)
	huma.Register(r, huma.Operation{
		OperationID: "list-config-versions", Method: http.MethodGet, Path: configPath + "/history", Tags: []string{"config"},
		Summary: "List the versions of the configuration", Description: "Without their contents.",
	}, r.listConfigVersions)
	huma.Register(r, huma.Operation{
		OperationID: "get-config-version", Method: http.MethodGet, Path: configPath + "/history/{version}",
		Tags:    []string{"config"},
		Summary: "Read a version of the configuration",
	}, r.getConfigVersion)
	huma.Register(r, huma.Operation{
		OperationID: "rollback-config", Method: http.MethodPost, Path: configPath + "/rollback", Tags: []string{"config"},
		Summary:     "Go back to a version of the configuration",
		Description: "Puts the content of an earlier version in force as a new one.",
	}, r.rollbackConfig)
}

func (r *routes) getConfig(ctx context.Context, _ *configInput) (*configOutput, error) {
	doc, err := r.readConfig(ctx)
	if err != nil {
		return nil, r.Refuse("config", err)
	}
	if doc.Config == nil {
		// Without a valid document the answer shows what is in force, so bring that up to date
		// first.
		syncCtx, cancel := context.WithTimeout(ctx, api.CallTimeout)
		defer cancel()
		_ = r.pools.Sync(syncCtx) // if it fails, the present state is shown
	}
	now := r.pools.Current()
	out := PoolConfig{
		Version: doc.Version, Source: string(SourceRedis), Config: doc.Config, Edited: doc.Edited,
		InForce: InForce{Version: now.Version, Source: string(now.Source)},
	}
	if doc.Config == nil {
		out.Config, out.Source = now.Config, string(now.Source)
	}
	out.Problems = problems(&doc)
	if doc.Entry != nil {
		out.Author, out.Note, out.Restores, out.AtMS = doc.Entry.Author, doc.Entry.Note, doc.Entry.Restores, doc.Entry.AtMS
	}
	return &configOutput{Body: out}, nil
}

// problems lists what is wrong with a broken document.
func problems(doc *Document) []freeslot.FieldError {
	var e *freeslot.Error
	if errors.As(doc.Problem, &e) {
		return e.Errors
	}
	return nil
}

func (r *routes) readConfig(ctx context.Context) (Document, error) {
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	return r.store.Read(ctx)
}

func (r *routes) putConfig(ctx context.Context, in *updateInput) (*resultOutput, error) {
	var update ConfigUpdate
	if err := freeslot.DecodeStrict("update", in.RawBody, &update); err != nil {
		return nil, r.Refuse("config", err)
	}
	cfg, err := Decode(update.Config)
	if err != nil {
		return nil, r.Refuse("config", err)
	}
	change := Change{Config: cfg, Author: api.Author(ctx, update.Author, update.Note), Note: update.Note}
	return r.changeConfig(ctx, update.Version, in.DryRun, change)
}

func (r *routes) rollbackConfig(ctx context.Context, in *updateInput) (*resultOutput, error) {
	var update ConfigRollback
	if err := freeslot.DecodeStrict("rollback", in.RawBody, &update); err != nil {
		return nil, r.Refuse("config", err)
	}
	callCtx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	_, cfg, err := r.store.At(callCtx, update.Restore)
	if err != nil {
		return nil, r.Refuse("config", err)
	}
	change := Change{
		Config: cfg, Author: api.Author(ctx, update.Author, update.Note), Note: update.Note, Restores: update.Restore,
	}
	return r.changeConfig(ctx, update.Version, in.DryRun, change)
}

func (r *routes) changeConfig(ctx context.Context, seen *uint64, dryRun bool, change Change) (*resultOutput, error) {
	if seen == nil && !dryRun {
		return nil, r.Refuse(
			"config", freeslot.Invalid("version", "is missing, expected the one that the change was made from"),
		)
	}
	doc, err := r.readConfig(ctx)
	if err != nil {
		return nil, r.Refuse("config", err)
	}
	before, source := doc.Config, SourceRedis
	if before == nil {
		now := r.pools.Current()
		before, source = now.Config, now.Source
	}
	after := *change.Config
	if after.Paused == nil {
		after.Paused = before.Paused // pauses stay as they are
	}
	out := ConfigResult{
		Version: doc.Version, Source: string(source), DryRun: dryRun, Problems: problems(&doc),
		Diff: Compare(before, &after, r.nodes()), Inert: !after.Enabled && len(after.Pools) > 0,
	}
	out.Unchanged = doc.Config != nil && out.Diff.Empty()
	if !out.Unchanged {
		if err := r.checkExpects(ctx, doc.Config, &after); err != nil {
			return nil, r.Refuse("config", err)
		}
	}
	if dryRun {
		audit.Of(ctx).DryRun()
		if seen != nil && *seen != doc.Version && !out.Unchanged {
			return nil, r.conflict(&ConflictError{Seen: *seen, Current: doc.Version}, &doc)
		}
		return &resultOutput{Body: out}, nil
	}
	change.Seen = *seen
	callCtx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	outcome, err := r.store.Apply(callCtx, change)
	var conflict *ConflictError
	switch {
	case errors.As(err, &conflict):
		return nil, r.conflict(conflict, &doc)
	case err != nil:
		return nil, r.Refuse("config", err)
	}
	out.Version, out.Unchanged = outcome.Version, outcome.Unchanged
	audit.Of(ctx).Note(fmt.Sprint("version ", doc.Version), fmt.Sprint("version ", out.Version))
	// The next caller of this replica then gets the new configuration. If it cannot be read now,
	// the follower reads it later.
	_ = r.pools.Sync(callCtx)
	return &resultOutput{Body: out}, nil
}

// checkExpects refuses expects and target_wait while a replica runs that does not know them: it
// would keep another configuration in force than the others, and refuse the jobs that they accept.
// Pools that have them in the store already may keep them: that replica has refused the store's
// configuration before. One release brought both. before is nil if the store has no valid one.
func (r *routes) checkExpects(ctx context.Context, before, after *selection.Config) error {
	fields := addedExpects(before, after)
	if len(fields) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	unaware, err := r.fence.UnawareOfExpects(ctx)
	if err != nil || len(unaware) == 0 {
		return err
	}
	var bad freeslot.FieldErrors
	for _, field := range fields {
		bad.Addf(field,
			"is not known to the release of replica %s, expected after the upgrade of every replica",
			strings.Join(unaware, ", "))
	}
	return bad.Err()
}

// addedExpects returns the fields expects and target_wait of pools that have not had them before.
func addedExpects(before, after *selection.Config) (fields []string) {
	had := make(map[string]selection.Pool)
	if before != nil {
		for i := range before.Pools {
			had[before.Pools[i].ID] = before.Pools[i]
		}
	}
	for i := range after.Pools {
		old, now := had[after.Pools[i].ID], &after.Pools[i]
		if now.Expects != nil && old.Expects == nil {
			fields = append(fields, fmt.Sprintf("%s.pools[%d].expects", root, i))
		}
		if now.TargetWait != "" && old.TargetWait == "" {
			fields = append(fields, fmt.Sprintf("%s.pools[%d].target_wait", root, i))
		}
	}
	return fields
}

// conflict returns an error that names the current version, and its author if doc has that version.
func (r *routes) conflict(c *ConflictError, doc *Document) error {
	message := fmt.Sprintf("version is %d, but the configuration is at %d", c.Seen, c.Current)
	if doc.Entry != nil && doc.Entry.Version == c.Current {
		message += fmt.Sprintf(", by %s at %s", doc.Entry.Author, time.UnixMilli(doc.Entry.AtMS).UTC().Format(time.RFC3339))
	}
	return api.Conflict(message, c.Current)
}

func (r *routes) listConfigVersions(ctx context.Context, _ *configInput) (*historyOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	versions, err := r.store.Versions(ctx)
	if err != nil {
		return nil, r.Refuse("config", err)
	}
	return &historyOutput{Body: ConfigVersions{Versions: append([]ConfigEntry{}, versions...)}}, nil
}

func (r *routes) getConfigVersion(ctx context.Context, in *versionInput) (*versionOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	entry, cfg, err := r.store.At(ctx, in.Version)
	if err != nil {
		return nil, r.Refuse("config", err)
	}
	return &versionOutput{Body: ConfigVersion{ConfigEntry: entry, Config: cfg}}, nil
}
