package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/poolconfig"
	"github.com/freeslot/freeslot/internal/selection"
)

// ConfigStore reads and changes the configuration of pools; *poolconfig.Store is it.
type ConfigStore interface {
	Read(ctx context.Context) (poolconfig.Document, error)
	Apply(ctx context.Context, c poolconfig.Change) (cell.ConfigOutcome, error)
	Versions(ctx context.Context) ([]cell.ConfigEntry, error)
	At(ctx context.Context, version uint64) (cell.ConfigEntry, *selection.Config, error)
}

// ConfigFollower knows what is in force at this replica; *poolconfig.Follower is it.
type ConfigFollower interface {
	Current() poolconfig.State
	// Sync takes over what is in the store now.
	Sync(ctx context.Context) error
}

// configPath is where the configuration is read and changed.
const configPath = "/v1/config"

// PoolConfig is the configuration of pools with what is known of it.
type PoolConfig struct {
	// Version and the rest are documented for their readers in the tags.
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

// InForce is what a replica goes by.
type InForce struct {
	Version uint64 `json:"version"`
	Source  string `json:"source" enum:"redis,file,history"`
}

// ConfigResult is what became of a change.
type ConfigResult struct {
	Version   uint64          `json:"version" doc:"The version that is in force; in a dry run, the one that was compared with."`
	Unchanged bool            `json:"unchanged" doc:"Whether the content was in force already."`
	Source    string          `json:"source" enum:"redis,file,history" doc:"Where that comes from which was compared with: the configuration in the store; where that is none, or broken, the one in force at this replica."`
	DryRun    bool            `json:"dry_run" doc:"Whether nothing was changed because that was asked for."`
	Diff      poolconfig.Diff `json:"diff" doc:"What the change means, by the nodes that this replica knows."`
	Inert     bool            `json:"inert,omitempty" doc:"Whether the configuration that is changed to has pools that have no members and restrict nothing, because enabled is false."`
	// Problems is documented for its reader in the tag.
	Problems []freeslot.FieldError `json:"problems,omitempty" doc:"What is wrong with the configuration in the store, which the change replaces, whether or not it says the same as what is in force."`
}

// ConfigVersions is the history.
type ConfigVersions struct {
	Versions []cell.ConfigEntry `json:"versions" doc:"The newest first; the last 100 are kept."`
}

// ConfigVersion is one version of the history.
type ConfigVersion struct {
	cell.ConfigEntry
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

func (s *Server) registerConfig(api huma.API) {
	if s.config == nil || s.pools == nil {
		return
	}
	(&Router{API: api, server: s}).LimitBody(configPath, "config", cell.MaxConfigBytes)
	huma.Register(api, huma.Operation{
		OperationID: "get-config", Method: http.MethodGet, Path: configPath, Tags: []string{"config"},
		Summary: "Read the configuration of pools", Description: "From the store, with its version and who made it. Operators only.",
	}, s.getConfig)
	huma.Register(api, huma.Operation{
		OperationID: "put-config", Method: http.MethodPut, Path: configPath, Tags: []string{"config"},
		Summary: "Change the configuration of pools",
		Description: "Replaces it as a whole, on every replica within milliseconds. A bad one is refused whole, with every bad field in errors. " +
			"What is in force already makes no new version. Operators only.",
	}, s.putConfig)
	huma.Register(api, huma.Operation{
		OperationID: "list-config-versions", Method: http.MethodGet, Path: configPath + "/history", Tags: []string{"config"},
		Summary: "List the versions of the configuration", Description: "Without their contents. Operators only.",
	}, s.listConfigVersions)
	huma.Register(api, huma.Operation{
		OperationID: "get-config-version", Method: http.MethodGet, Path: configPath + "/history/{version}", Tags: []string{"config"},
		Summary: "Read a version of the configuration", Description: "Operators only.",
	}, s.getConfigVersion)
	huma.Register(api, huma.Operation{
		OperationID: "rollback-config", Method: http.MethodPost, Path: configPath + "/rollback", Tags: []string{"config"},
		Summary: "Go back to a version of the configuration", Description: "Puts the content of an earlier version in force as a new one. Operators only.",
	}, s.rollbackConfig)
}

func configOperatorsOnly(ctx context.Context) error {
	return OperatorsOnly(ctx, "see and change the configuration of pools")
}

func (s *Server) getConfig(ctx context.Context, _ *configInput) (*configOutput, error) {
	if err := configOperatorsOnly(ctx); err != nil {
		return nil, s.refuse("config", err)
	}
	doc, err := s.readConfig(ctx)
	if err != nil {
		return nil, s.refuse("config", err)
	}
	if doc.Config == nil {
		// What is in force is shown instead, and should be what follows from this document.
		syncCtx, cancel := context.WithTimeout(ctx, CallTimeout)
		defer cancel()
		_ = s.pools.Sync(syncCtx) // its own state stands if not
	}
	now := s.pools.Current()
	out := PoolConfig{
		Version: doc.Version, Source: string(poolconfig.SourceRedis), Config: doc.Config, Edited: doc.Edited,
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

// problems are what is wrong with a broken document.
func problems(doc *poolconfig.Document) []freeslot.FieldError {
	var e *freeslot.Error
	if errors.As(doc.Problem, &e) {
		return e.Errors
	}
	return nil
}

func (s *Server) readConfig(ctx context.Context) (poolconfig.Document, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	return s.config.Read(ctx)
}

func (s *Server) putConfig(ctx context.Context, in *updateInput) (*resultOutput, error) {
	if err := configOperatorsOnly(ctx); err != nil {
		return nil, s.refuse("config", err)
	}
	var update ConfigUpdate
	if err := freeslot.DecodeStrict("update", in.RawBody, &update); err != nil {
		return nil, s.refuse("config", err)
	}
	cfg, err := poolconfig.Decode(update.Config)
	if err != nil {
		return nil, s.refuse("config", err)
	}
	change := poolconfig.Change{Config: cfg, Author: author(ctx, update.Author), Note: update.Note}
	return s.changeConfig(ctx, update.Version, in.DryRun, change)
}

func (s *Server) rollbackConfig(ctx context.Context, in *updateInput) (*resultOutput, error) {
	if err := configOperatorsOnly(ctx); err != nil {
		return nil, s.refuse("config", err)
	}
	var update ConfigRollback
	if err := freeslot.DecodeStrict("rollback", in.RawBody, &update); err != nil {
		return nil, s.refuse("config", err)
	}
	callCtx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	_, cfg, err := s.config.At(callCtx, update.Restore)
	if err != nil {
		return nil, s.refuse("config", err)
	}
	change := poolconfig.Change{Config: cfg, Author: author(ctx, update.Author), Note: update.Note, Restores: update.Restore}
	return s.changeConfig(ctx, update.Version, in.DryRun, change)
}

// author is whose token it is and who the caller says to be.
func author(ctx context.Context, name string) string {
	tenant := Caller(ctx).Tenant
	if name == "" {
		return tenant
	}
	return tenant + "/" + name
}

func (s *Server) changeConfig(ctx context.Context, seen *uint64, dryRun bool, change poolconfig.Change) (*resultOutput, error) {
	if seen == nil && !dryRun {
		return nil, s.refuse("config", freeslot.Invalid("version", "is missing, expected the one that the change was made from"))
	}
	doc, err := s.readConfig(ctx)
	if err != nil {
		return nil, s.refuse("config", err)
	}
	before, source := doc.Config, poolconfig.SourceRedis
	if before == nil {
		now := s.pools.Current()
		before, source = now.Config, now.Source
	}
	after := *change.Config
	if after.Paused == nil {
		after.Paused = before.Paused // it stays
	}
	out := ConfigResult{
		Version: doc.Version, Source: string(source), DryRun: dryRun, Problems: problems(&doc),
		Diff: poolconfig.Compare(before, &after, s.allNodes()), Inert: !after.Enabled && len(after.Pools) > 0,
	}
	out.Unchanged = doc.Config != nil && out.Diff.Empty()
	if dryRun {
		if seen != nil && *seen != doc.Version && !out.Unchanged {
			return nil, s.conflict(&cell.ConfigConflictError{Seen: *seen, Current: doc.Version}, &doc)
		}
		return &resultOutput{Body: out}, nil
	}
	change.Seen = *seen
	callCtx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	outcome, err := s.config.Apply(callCtx, change)
	var conflict *cell.ConfigConflictError
	switch {
	case errors.As(err, &conflict):
		return nil, s.conflict(conflict, &doc)
	case err != nil:
		return nil, s.refuse("config", err)
	}
	out.Version, out.Unchanged = outcome.Version, outcome.Unchanged
	// So that whoever asks this replica next is answered by the new one. If it cannot
	// be read now, the follower reads it later.
	_ = s.pools.Sync(callCtx)
	return &resultOutput{Body: out}, nil
}

// conflict tells the caller which version there is, and whose, if doc is that one.
func (s *Server) conflict(c *cell.ConfigConflictError, doc *poolconfig.Document) error {
	message := fmt.Sprintf("version is %d, but the configuration is at %d", c.Seen, c.Current)
	if doc.Entry != nil && doc.Entry.Version == c.Current {
		message += fmt.Sprintf(", by %s at %s", doc.Entry.Author, time.UnixMilli(doc.Entry.AtMS).UTC().Format(time.RFC3339))
	}
	return Conflict(message, c.Current)
}

func (s *Server) allNodes() []freeslot.Node {
	states := s.nodes.States()
	nodes := make([]freeslot.Node, len(states))
	for i := range states {
		nodes[i] = states[i].Node
	}
	return nodes
}

func (s *Server) listConfigVersions(ctx context.Context, _ *configInput) (*historyOutput, error) {
	if err := configOperatorsOnly(ctx); err != nil {
		return nil, s.refuse("config", err)
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	versions, err := s.config.Versions(ctx)
	if err != nil {
		return nil, s.refuse("config", err)
	}
	return &historyOutput{Body: ConfigVersions{Versions: append([]cell.ConfigEntry{}, versions...)}}, nil
}

func (s *Server) getConfigVersion(ctx context.Context, in *versionInput) (*versionOutput, error) {
	if err := configOperatorsOnly(ctx); err != nil {
		return nil, s.refuse("config", err)
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	entry, cfg, err := s.config.At(ctx, in.Version)
	if err != nil {
		return nil, s.refuse("config", err)
	}
	return &versionOutput{Body: ConfigVersion{ConfigEntry: entry, Config: cfg}}, nil
}
