package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/registry"
)

// The paths come from the registry's second version, except the one for other languages.
const (
	adminPath    = api.RegistryPath
	servicesPath = adminPath + "/services"
	servicePath  = servicesPath + "/{serviceName}"
	listPath     = servicePath + "/instances"
	instancePath = listPath + "/{instanceId}"
	overridePath = instancePath + "/override"
	discoverPath = "/v1/discover/{serviceName}"
	replicasPath = "/v1/replicas"
)

const (
	// maxLooked is the largest number of instances that statistics look at.
	maxLooked = 10_000
	// maxNote is the length limit of a note or an author's name, in bytes.
	maxNote = 256
	// minLimit is the least limit of a cleanup. With a smaller limit, Redis could be away for
	// almost a limit without making cleanup wait for the instances to come back.
	minLimit = 10 * time.Second
	// maxOverride is the longest time after which an override ends by itself.
	maxOverride = 10 * 365 * 24 * time.Hour
)

// store lists the methods of *registry.Store that the routes call.
type store interface {
	documents
	// List returns a page of names, sorted.
	List(ctx context.Context, after string, limit int) (names []string, err error)
	Summary(ctx context.Context, service string) (registry.Summary, error)
	// Summaries returns what Summary does, for several services by one call.
	Summaries(ctx context.Context, services []string) ([]registry.Summary, error)
	Targets(ctx context.Context) ([]registry.Target, error)
	Query(
		ctx context.Context, service string, filter *registry.Filter, cursor string,
	) (page []registry.Detail, next string, now time.Time, err error)
	Instance(ctx context.Context, service, id string) (d registry.Detail, now time.Time, err error)
	SetOverride(
		ctx context.Context, service, id string, o *registry.Override, lasts time.Duration, seen *int64,
	) (revision int64, err error)
	SetCleanup(ctx context.Context, service string, limit, every *time.Duration) error
	PutPersistent(ctx context.Context, r registry.Registration) (revision int64, err error)
	Remove(ctx context.Context, service, id, epoch string) (revision int64, err error)
}

type routes struct {
	*api.Router
	store    store
	consumer consumer
	nodes    func() []cell.NodeState
	waiters  waiters
}

func routesOf(s store, c consumer, nodes func() []cell.NodeState) api.Routes {
	return func(router *api.Router) {
		r := &routes{router, s, c, nodes, waiters{counts: make(map[string]int)}}
		r.register()
		r.registerConfigs()
		r.registerNodes()
		r.document(router.OpenAPI())
	}
}

func (r *routes) register() {
	tags := []string{"registry"}
	op := func(id, method, path, summary, text string) huma.Operation {
		return huma.Operation{OperationID: id, Method: method, Path: path, Tags: tags, Summary: summary, Description: text}
	}
	huma.Register(r, op("list-services", http.MethodGet, servicesPath, "List services", "In the order of their names."), r.listServices)
	huma.Register(r, op("get-service", http.MethodGet, servicePath, "Show a service", "Also one that has no instance."), r.getService)
	huma.Register(r, op("list-instances", http.MethodGet, listPath, "List the instances of a service", "All of them, healthy or not."), r.listInstances)
	huma.Register(r, op("get-instance", http.MethodGet, instancePath, "Show an instance", ""), r.getInstance)
	huma.Register(r, op("get-instance-metrics", http.MethodGet, instancePath+"/metrics", "Show the figures of an instance", ""), r.getMetrics)
	huma.Register(r, op("get-registry-health", http.MethodGet, adminPath+"/health", "Show which services are not well", "Those with silent instances, failed checks, a guard, or no instance."), r.health)
	huma.Register(r, op("get-service-health", http.MethodGet, servicePath+"/health", "Show which instances are not well, and why", ""), r.serviceHealth)
	huma.Register(r, op("override-instance", http.MethodPut, overridePath, "Set weight, enabled or draining of an instance",
		"It stays until it is taken back or ends, also while the instance restarts. A second one replaces the first.",
	), r.putOverride)
	huma.Register(r, op("reset-instance", http.MethodDelete, overridePath, "Take back an operator's word", ""), r.deleteOverride)
	huma.Register(r, op("set-cleanup", http.MethodPut, servicePath+"/cleanup", "Set when silent instances are removed", ""), r.putCleanup)
	huma.Register(r, op("register-persistent", http.MethodPost, listPath, "Register a persistent instance", "It sends no heartbeats and stays until it is deleted."), r.postInstance)
	huma.Register(r, op("remove-instance", http.MethodDelete, instancePath, "Remove an instance", "An ephemeral one whose provider lives registers again."), r.deleteInstance)
	huma.Register(r, op("list-replicas", http.MethodGet, replicasPath, "List the replicas", "Where else the same can be had."), r.replicas)
	huma.Register(r, op("discover", http.MethodGet, discoverPath, "Find the healthy instances of a service", "For programs that have no package of the registry."), r.discover)
}

// handle handles a request, and bounds it.
func handle[In, Out any](
	ctx context.Context, r *routes, what string, in *In, do func(context.Context, *In) (Out, error),
) (*output[Out], error) {
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	out, err := do(ctx, in)
	if err != nil {
		return nil, r.Refuse(what, err)
	}
	return &output[Out]{Body: out}, nil
}

func (r *routes) listServices(ctx context.Context, in *pageInput) (*output[ServicePage], error) {
	return handle(ctx, r, "list services", in, func(ctx context.Context, in *pageInput) (page ServicePage, err error) {
		names, err := r.store.List(ctx, in.After, in.Limit)
		if err != nil {
			return page, err
		}
		found, err := r.store.Summaries(ctx, names)
		page.Services = []RegistryService{}
		for i := range found {
			page.Services = append(page.Services, shownService(&found[i]))
		}
		if len(names) == in.Limit {
			page.After = names[len(names)-1]
		}
		return page, err
	})
}

// looked returns statistics over the instances of a service, at most maxLooked.
func (r *routes) looked(ctx context.Context, service string) (s Statistics, err error) {
	var all []registry.Detail
	var now time.Time
	for cursor := "0"; ; {
		var page []registry.Detail
		if page, cursor, now, err = r.store.Query(ctx, service, nil, cursor); err != nil {
			return s, err
		}
		all = append(all, page...)
		if cursor == "0" || len(all) >= maxLooked {
			seen := make(map[string]bool, len(all))
			all = slices.DeleteFunc(all, func(d registry.Detail) bool {
				again := seen[d.ID]
				seen[d.ID] = true
				return again
			})
			s = statistics(all, now)
			s.Partial = cursor != "0"
			return s, nil
		}
	}
}

func (r *routes) getService(ctx context.Context, in *InService) (*output[ServiceDetail], error) {
	return handle(ctx, r, "service", in, func(ctx context.Context, in *InService) (out ServiceDetail, err error) {
		s, err := r.store.Summary(ctx, in.Service)
		if err != nil {
			return out, err
		}
		out.RegistryService = shownService(&s)
		out.Statistics, err = r.looked(ctx, in.Service)
		return out, err
	})
}

func (r *routes) serviceHealth(ctx context.Context, in *InService) (*output[ServiceHealth], error) {
	return handle(ctx, r, "health of the service", in,
		func(ctx context.Context, in *InService) (out ServiceHealth, err error) {
			s, err := r.store.Summary(ctx, in.Service)
			if err != nil {
				return out, err
			}
			found, err := r.looked(ctx, in.Service)
			return ServiceHealth{Service: shownService(&s), Statistics: &found}, err
		})
}

func (r *routes) health(ctx context.Context, in *struct{}) (*output[RegistryHealth], error) {
	return handle(ctx, r, "health of the registry", in,
		func(ctx context.Context, _ *struct{}) (out RegistryHealth, err error) {
			out.Services = []ServiceHealth{}
			targets, err := r.store.Targets(ctx)
			if err != nil {
				return out, err
			}
			failing := make(map[string]int)
			for i := range targets {
				if targets[i].Failing != "" {
					failing[targets[i].Service]++
				}
			}
			const page = 1000
			for after, more := "", true; more; {
				names, err := r.store.List(ctx, after, page)
				if err != nil {
					return out, err
				}
				found, err := r.store.Summaries(ctx, names)
				if err != nil {
					return out, err
				}
				for i, name := range names {
					after = name
					s := found[i]
					switch {
					case s.Late == 0 && failing[name] == 0 && s.Guard == "" && s.Instances > 0:
						out.Healthy++
					case len(out.Services) < page:
						out.Services = append(out.Services, ServiceHealth{Service: shownService(&s), Failing: failing[name]})
					}
				}
				more = len(names) == page
			}
			return out, nil
		})
}

func (r *routes) listInstances(ctx context.Context, in *listInput) (*output[InstancePage], error) {
	if in.WaitMS > 0 {
		waiting, cancel := context.WithTimeout(ctx, time.Duration(in.WaitMS)*time.Millisecond)
		err := r.await(waiting, in.Service, in.Revision)
		cancel()
		if err != nil {
			return nil, r.Refuse("list instances", err)
		}
	}
	return handle(ctx, r, "list instances", in, func(ctx context.Context, in *listInput) (page InstancePage, err error) {
		s, err := r.store.Summary(ctx, in.Service)
		if err != nil {
			return page, err
		}
		filter, err := filterOf(in.Label, in.Metric)
		if err != nil {
			return page, err
		}
		found, next, now, err := r.store.Query(ctx, in.Service, filter, cmp.Or(in.Cursor, "0"))
		if err != nil {
			return page, err
		}
		page = InstancePage{Service: in.Service, Revision: s.Revision, Instances: []RegistryInstance{}}
		if next != "0" {
			page.Cursor = next
		}
		for i := range found {
			page.Instances = append(page.Instances, shownInstance(&found[i], now))
		}
		return page, nil
	})
}

// filterOf returns the filter of a request; nil means all.
func filterOf(labels, metrics []string) (*registry.Filter, error) {
	if len(labels)+len(metrics) == 0 {
		return nil, nil
	}
	var rules []freeslot.LabelRule
	for i, l := range labels {
		key, value, ok := strings.Cut(l, "=")
		if !ok {
			return nil, freeslot.Invalid(fmt.Sprintf("label[%d]", i), "is %q, expected key=value", l)
		}
		rules = append(rules, freeslot.LabelRule{Label: key, Operator: freeslot.LabelIn, Values: []string{value}})
	}
	return registry.NewFilter(rules, metrics)
}

func (r *routes) getInstance(ctx context.Context, in *OfInstance) (*output[RegistryInstance], error) {
	return handle(ctx, r, "instance", in, func(ctx context.Context, in *OfInstance) (RegistryInstance, error) {
		d, now, err := r.store.Instance(ctx, in.Service, in.ID)
		return shownInstance(&d, now), err
	})
}

func (r *routes) getMetrics(ctx context.Context, in *OfInstance) (*output[json.RawMessage], error) {
	return handle(ctx, r, "figures of the instance", in,
		func(ctx context.Context, in *OfInstance) (json.RawMessage, error) {
			d, _, err := r.store.Instance(ctx, in.Service, in.ID)
			if len(d.Metrics) == 0 {
				return json.RawMessage("{}"), err
			}
			return d.Metrics, err
		})
}

func (r *routes) discover(ctx context.Context, in *discoverInput) (*output[Discovery], error) {
	known, wait := in.Version, time.Duration(in.WaitMS)*time.Millisecond
	if wait == 0 {
		known, wait = "", api.CallTimeout // any version will do
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	list, err := r.discovered(ctx, in.Service, known)
	if err != nil {
		return nil, r.Refuse("discover", err)
	}
	return &output[Discovery]{Body: discovery(list)}, nil
}

func (r *routes) replicas(ctx context.Context, _ *struct{}) (*output[ReplicaList], error) {
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	list, err := r.discovered(ctx, replicaService, "")
	if err != nil {
		return nil, r.Refuse("list replicas", err)
	}
	out := &output[ReplicaList]{Body: ReplicaList{Replicas: []Replica{}}}
	for _, i := range list.Instances {
		if u := i.Metadata[urlLabel]; u != "" {
			out.Body.Replicas = append(out.Body.Replicas, Replica{ID: i.ID, URL: u})
		}
	}
	return out, nil
}

// document adds to the OpenAPI document what the Go types cannot express.
func (r *routes) document(doc *huma.OpenAPI) {
	doc.Tags = append(doc.Tags, &huma.Tag{
		Name: "registry", Description: "Services, their instances, and shared documents.",
	})
	body := func(op *huma.Operation, t reflect.Type, name string) {
		schema := doc.Components.Schemas.Schema(t, true, name)
		op.RequestBody = &huma.RequestBody{
			Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}},
		}
	}
	body(doc.Paths[overridePath].Put, reflect.TypeFor[OverrideRequest](), "OverrideRequest")
	body(doc.Paths[servicePath+"/cleanup"].Put, reflect.TypeFor[CleanupRequest](), "CleanupRequest")
	body(doc.Paths[listPath].Post, reflect.TypeFor[InstanceRequest](), "InstanceRequest")
	describeConfigs(body, doc)
}
