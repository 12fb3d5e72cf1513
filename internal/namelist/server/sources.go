package server

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/source"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/replica/config"
)

const (
	sourcesPath = "/v1/list-sources"
	sourcePath  = listPath + "/source"
)

// ListSourceSpec says where a list's ids come from.
type ListSourceSpec struct {
	// The tags document Source and the rest for readers of the API.
	Source   string `json:"source" doc:"A name below lists.sources of the replicas' configuration. A change of lists makes no replica talk to another address."`
	Cron     string `json:"cron,omitempty" doc:"When it runs, as in schedules, such as @hourly. Absent: only when asked."`
	TimeZone string `json:"time_zone,omitempty" doc:"Of cron, such as Europe/Berlin. Absent means UTC."`
	ByWhom
}

// ListSource is the source of a list.
type ListSource struct {
	List string `json:"list"`
	source.Assignment
	// The tag documents Here for readers of the API.
	Here bool `json:"here" doc:"Whether the replica that answers has the source in its configuration. Others may."`
}

// ListSources holds the sources that there are.
type ListSources struct {
	// The tags document Sources and Lists for readers of the API.
	Sources []string     `json:"sources" doc:"The sources in the configuration of the replica that answers."`
	Lists   []ListSource `json:"lists" doc:"The lists that have a source; those first whose run is due first."`
}

func (r *routes) registerSources() {
	op := operation("lists", r.guard)
	huma.Register(r, op("list-list-sources", http.MethodGet, sourcesPath, "List the sources of lists", "Those in the configuration, and the lists that have one."), r.listSources)
	huma.Register(r, op("get-list-source", http.MethodGet, sourcePath, "Show a list's source", "With its last 20 runs."), r.source)
	huma.Register(r, op("set-list-source", http.MethodPut, sourcePath, "Give a list a source", "It replaces the list's ids in each run, by the rules of an import."), r.setSource)
	huma.Register(r, op("unset-list-source", http.MethodDelete, sourcePath, "Take a list's source away", "Its ids stay."), r.unsetSource)
	huma.Register(r, op("run-list-source", http.MethodPost, sourcePath+"/run", "Run a list's source now", "A replica that has it begins within two seconds. A run that goes on is a conflict."), r.runSource)
	doc := r.OpenAPI()
	schema := doc.Components.Schemas.Schema(reflect.TypeFor[ListSourceSpec](), true, "ListSourceSpec")
	doc.Paths[sourcePath].Put.RequestBody = &huma.RequestBody{
		Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}},
	}
}

func (r *routes) sourceOf(list string, a *source.Assignment) ListSource {
	return ListSource{List: list, Assignment: *a, Here: slices.Contains(r.sourceNames, a.Source)}
}

func (r *routes) listSources(ctx context.Context, in *struct{}) (*output[ListSources], error) {
	return handle(ctx, r, "list sources", in, func(ctx context.Context, _ *struct{}) (out ListSources, err error) {
		lists, all, err := r.sources.All(ctx)
		out.Sources, out.Lists = r.sourceNames, make([]ListSource, len(lists))
		for i := range lists {
			out.Lists[i] = r.sourceOf(lists[i], &all[i])
		}
		return out, err
	})
}

func (r *routes) source(ctx context.Context, in *OfList) (*output[ListSource], error) {
	return handle(ctx, r, "show the source", in, func(ctx context.Context, in *OfList) (ListSource, error) {
		a, err := r.sources.Get(ctx, in.List)
		return r.sourceOf(in.List, &a), err
	})
}

func (r *routes) setSource(ctx context.Context, in *bodyInput) (*output[ListSource], error) {
	return handle(ctx, r, "set the source", in, func(ctx context.Context, in *bodyInput) (out ListSource, err error) {
		var q ListSourceSpec
		if err := freeslot.DecodeStrict("source", in.RawBody, &q); err != nil {
			return out, err
		}
		if !slices.Contains(r.sourceNames, q.Source) {
			return out, freeslot.Invalid(
				"source", "is %.64q, expected a name below lists.sources of the replica that answers: %q", q.Source, r.sourceNames,
			)
		}
		by := q.by(ctx)
		audit.Of(ctx).Note("", q.Source+" "+q.Cron)
		a, err := r.sources.Set(ctx, in.List, source.Assignment{
			Source: q.Source, Cron: q.Cron, TimeZone: q.TimeZone, Author: by.Author, Note: by.Note,
		})
		return r.sourceOf(in.List, &a), err
	})
}

func (r *routes) unsetSource(ctx context.Context, in *OfList) (*output[struct{}], error) {
	return handle(ctx, r, "unset the source", in, func(ctx context.Context, in *OfList) (struct{}, error) {
		return struct{}{}, r.sources.Unset(ctx, in.List)
	})
}

func (r *routes) runSource(ctx context.Context, in *OfList) (*output[ListSource], error) {
	return handle(ctx, r, "run the source", in, func(ctx context.Context, in *OfList) (ListSource, error) {
		a, err := r.sources.Ask(ctx, in.List, ByWhom{}.by(ctx).Author)
		return r.sourceOf(in.List, &a), err
	})
}

// sourceConfigs returns the configured sources in the form of package source.
func sourceConfigs(all map[string]config.ListSource) map[string]source.Config {
	out := make(map[string]source.Config, len(all))
	for name, s := range all {
		s = s.WithDefaults()
		out[name] = source.Config{
			Kind: s.Kind, URL: s.URL, PasswordFile: s.PasswordFile, CAFile: s.CAFile, Query: s.Query, Key: s.Key,
			Expiry: s.Expiry, Path: s.Path, Format: version.Format(s.Format), Timeout: s.Timeout, MaxRows: s.MaxRows,
			MaxBytes: s.MaxBytes,
		}
	}
	return out
}

// roleSource is the role of a source that changes a list.
const roleSource identity.Role = "source"

func newSources(env *feature.Env, control *namelist.Control, imports source.Imports) (*source.Store, *source.Runner) {
	log := env.Log.Named("lists")
	store := source.NewStore(control, env.Commands(0), log)
	cfg := source.RunnerConfig{
		Replica: env.Config.ReplicaID, Sources: sourceConfigs(env.Config.Lists.Sources), Control: control, Store: store,
		Imports: imports, Metrics: env.Metrics, Log: log,
	}
	if env.Audit != nil {
		cfg.Audit = func(ctx context.Context, name, list string, run *source.Run) {
			who := &identity.Principal{Name: "source/" + name, Role: roleSource}
			change, err := env.Audit.Begin(ctx, who, "run-list-source", "/v1/lists/"+list+"/source/run", "", "")
			if err != nil {
				return // the log has it
			}
			change.Note("", fmt.Sprintf("version %d, %d lines; %s", run.Version, run.Rows, run.Why))
			outcome := audit.OutcomeDone
			if run.Result != source.Served {
				outcome = string(run.Result)
			}
			change.End(ctx, outcome)
		}
	}
	return store, source.NewRunner(cfg)
}
