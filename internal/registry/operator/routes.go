package operator

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
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/registry"
)

// The paths of the design of the registry's second version, and the one for other languages.
const (
	adminPath    = "/admin/registry"
	servicesPath = adminPath + "/services"
	servicePath  = servicesPath + "/{serviceName}"
	listPath     = servicePath + "/instances"
	instancePath = listPath + "/{instanceId}"
	overridePath = instancePath + "/override"
	discoverPath = "/v1/discover/{serviceName}"
	replicasPath = "/v1/replicas"
)

const (
	// maxLooked is the most instances that statistics look at.
	maxLooked = 10_000
	// maxNote is the longest note or name of an author, in bytes.
	maxNote = 256
	// maxOverride is the longest time after which an override ends by itself.
	maxOverride = 10 * 365 * 24 * time.Hour
)

// store is what the routes need of *registry.Store.
type store interface {
	// List pages through the names in their order.
	List(ctx context.Context, after string, limit int) (names []string, err error)
	Summary(ctx context.Context, service string) (registry.Summary, error)
	Query(ctx context.Context, service string, filter *registry.Filter, cursor string) (page []registry.Detail, next string, now time.Time, err error)
	Instance(ctx context.Context, service, id string) (d registry.Detail, now time.Time, err error)
	SetOverride(ctx context.Context, service, id string, o *registry.Override, lasts time.Duration) (revision int64, err error)
	SetCleanup(ctx context.Context, service string, limit, every *time.Duration) error
	PutPersistent(ctx context.Context, r registry.Registration) (revision int64, err error)
	Remove(ctx context.Context, service, id string) (revision int64, err error)
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
		r.registerNodes()
		r.document(router.OpenAPI())
	}
}

type (
	// InService names a service. It is exported because huma reads no other parts of requests.
	InService struct {
		Service string `path:"serviceName" doc:"The name of the service."`
	}
	// OfInstance names an instance.
	OfInstance struct {
		InService
		ID string `path:"instanceId" doc:"The id of the instance, escaped as a part of a path."`
	}
	// Waiting is how long a request waits for a change.
	Waiting struct {
		Revision int64 `query:"revision" minimum:"0" doc:"With wait_ms: the revision that the caller knows. The answer comes once there is another one."`
		WaitMS   int64 `query:"wait_ms" minimum:"0" maximum:"60000" doc:"How long to wait for another revision than revision. Absent means not at all."`
	}
	pageInput struct {
		After string `query:"after" maxLength:"256" doc:"The last name of the page before."`
		Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	}
	listInput struct {
		InService
		Waiting
		Cursor string   `query:"cursor" maxLength:"64" doc:"The cursor of the page before."`
		Label  []string `query:"label,explode" maxItems:"32" doc:"Only instances with this label, key=value; may be repeated."`
		Metric []string `query:"metric,explode" maxItems:"32" doc:"Only instances for whose figures this holds, such as cpu.usage<0.8; may be repeated."`
	}
	discoverInput struct {
		InService
		Version string `query:"version" maxLength:"64" doc:"With wait_ms: the version that the caller has. The answer comes once there is another one."`
		WaitMS  int64  `query:"wait_ms" minimum:"0" maximum:"60000" doc:"How long to wait for another version. Absent means not at all."`
	}
	bodyInput struct {
		OfInstance
		RawBody []byte
	}
	serviceBodyInput struct {
		InService
		RawBody []byte
	}
	output[T any] struct{ Body T }
)

// ServicePage is one page of services.
type ServicePage struct {
	Services []RegistryService `json:"services"`
	// After is documented for its reader in the tag.
	After string `json:"after,omitempty" doc:"Continues the listing; absent at its end."`
}

// InstancePage is one page of the instances of a service.
type InstancePage struct {
	Service   string             `json:"service"`
	Revision  int64              `json:"revision"`
	Instances []RegistryInstance `json:"instances" doc:"About 200, in no order. While instances come and go one can be there twice."`
	// Cursor is documented for its reader in the tag.
	Cursor string `json:"cursor,omitempty" doc:"Continues the listing, also after an empty page; absent at its end."`
}

// ServiceDetail is a service with what its instances have in common.
type ServiceDetail struct {
	RegistryService
	Statistics Statistics `json:"statistics"`
}

// RegistryHealth is the health of all services.
type RegistryHealth struct {
	Services []ServiceHealth `json:"services" doc:"Services with silent instances, a guard, or none at all; at most 1000."`
	// Healthy is documented for its reader in the tag.
	Healthy int `json:"healthy" doc:"How many services have nothing of that."`
}

// ServiceHealth is the health of one service.
type ServiceHealth struct {
	Service RegistryService `json:"service"`
	// Statistics is left out where all services are shown.
	Statistics *Statistics `json:"statistics,omitempty"`
}

// OverrideRequest is the body of an override. What is absent is left to the provider.
type OverrideRequest struct {
	// Weight and the rest are documented for their readers in the tags.
	Weight   *float64 `json:"weight,omitempty" doc:"More than 0, up to 10000. For none, set enabled to false."`
	Enabled  *bool    `json:"enabled,omitempty"`
	Draining *bool    `json:"draining,omitempty"`
	Author   string   `json:"author,omitempty" doc:"Who; the tenant of the token is put before it."`
	Note     string   `json:"note,omitempty" doc:"Why; at most 256 bytes."`
	ForMS    int64    `json:"for_ms,omitempty" doc:"After so many milliseconds it ends by itself. Absent means never."`
}

// CleanupRequest is how a service is cleaned up.
type CleanupRequest struct {
	// LimitMS and EveryMS are documented for their readers in the tags.
	LimitMS *int64 `json:"limit_ms,omitempty" doc:"How long an instance may be silent before it is removed, 1000 to 86400000; at least three of the longest interval hold. 0 is the default, 2 minutes; absent leaves it as it is."`
	EveryMS *int64 `json:"every_ms,omitempty" doc:"The pause between cleanups; at most a quarter of the limit holds. 0 is the default, 30 s; absent leaves it as it is."`
}

// InstanceRequest is a persistent instance to register.
type InstanceRequest struct {
	// ID and the rest are documented for their readers in the tags.
	ID       string            `json:"id,omitempty" doc:"Absent means host:port."`
	Host     string            `json:"host"`
	Port     int               `json:"port"`
	Protocol string            `json:"protocol,omitempty" doc:"Absent means TCP."`
	Weight   float64           `json:"weight,omitempty" doc:"Absent means 1."`
	Metadata map[string]string `json:"metadata,omitempty"`
	Check    *registry.Check   `json:"check,omitempty" doc:"How replicas check it: a persistent instance sends no heartbeats."`
}

// Changed is the answer to a change.
type Changed struct {
	Revision int64 `json:"revision" doc:"The revision of the service that has the change."`
}

// Replica is a replica that advertises itself.
type Replica struct {
	ID  string `json:"id"`
	URL string `json:"url"`
}

// ReplicaList is the replicas that advertise themselves.
type ReplicaList struct {
	Replicas []Replica `json:"replicas" doc:"Those that live, in the order of their ids. One without the key advertise is not among them."`
}

func (r *routes) register() {
	tags := []string{"registry"}
	op := func(id, method, path, summary, text string) huma.Operation {
		return huma.Operation{OperationID: id, Method: method, Path: path, Tags: tags, Summary: summary, Description: text}
	}
	huma.Register(r, op("list-services", http.MethodGet, servicesPath, "List services", "In the order of their names. Operators only."), r.listServices)
	huma.Register(r, op("get-service", http.MethodGet, servicePath, "Show a service", "Also one that has no instance. Operators only."), r.getService)
	huma.Register(r, op("list-instances", http.MethodGet, listPath, "List the instances of a service", "All of them, healthy or not. Operators only."), r.listInstances)
	huma.Register(r, op("get-instance", http.MethodGet, instancePath, "Show an instance", "Operators only."), r.getInstance)
	huma.Register(r, op("get-instance-metrics", http.MethodGet, instancePath+"/metrics", "Show the figures of an instance", "Operators only."), r.getMetrics)
	huma.Register(r, op("get-registry-health", http.MethodGet, adminPath+"/health", "Show which services are not well", "Operators only."), r.health)
	huma.Register(r, op("get-service-health", http.MethodGet, servicePath+"/health", "Show which instances are not well, and why", "Operators only."), r.serviceHealth)
	huma.Register(r, op("override-instance", http.MethodPut, overridePath, "Set weight, enabled or draining of an instance",
		"It stays until it is taken back or ends, also while the instance restarts. A second one replaces the first. Operators only."), r.putOverride)
	huma.Register(r, op("reset-instance", http.MethodDelete, overridePath, "Take back an operator's word", "Operators only."), r.deleteOverride)
	huma.Register(r, op("set-cleanup", http.MethodPut, servicePath+"/cleanup", "Set when silent instances are removed", "Operators only."), r.putCleanup)
	huma.Register(r, op("register-persistent", http.MethodPost, listPath, "Register a persistent instance", "It sends no heartbeats and stays until it is deleted. Operators only."), r.postInstance)
	huma.Register(r, op("remove-instance", http.MethodDelete, instancePath, "Remove an instance", "An ephemeral one whose provider lives registers again. Operators only."), r.deleteInstance)
	huma.Register(r, op("list-replicas", http.MethodGet, replicasPath, "List the replicas", "For any valid token: where else the same can be had."), r.replicas)
	huma.Register(r, op("discover", http.MethodGet, discoverPath, "Find the healthy instances of a service", "For any valid token, and for programs that have no package of the registry."), r.discover)
}

// operators bounds the call of an operator, and refuses others.
func operators(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if err := api.OperatorsOnly(ctx, "see and change the registry"); err != nil {
		return ctx, func() {}, err
	}
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	return ctx, cancel, nil
}

// handle makes the handler of an operator's request.
func handle[In, Out any](ctx context.Context, r *routes, what string, in *In, do func(context.Context, *In) (Out, error)) (*output[Out], error) {
	ctx, cancel, err := operators(ctx)
	defer cancel()
	if err == nil {
		var out Out
		if out, err = do(ctx, in); err == nil {
			return &output[Out]{Body: out}, nil
		}
	}
	return nil, r.Refuse(what, err)
}

func (r *routes) listServices(ctx context.Context, in *pageInput) (*output[ServicePage], error) {
	return handle(ctx, r, "list services", in, func(ctx context.Context, in *pageInput) (page ServicePage, err error) {
		names, err := r.store.List(ctx, in.After, in.Limit)
		if err != nil {
			return page, err
		}
		page.Services = []RegistryService{}
		for _, name := range names {
			s, err := r.store.Summary(ctx, name)
			if err != nil {
				return page, err
			}
			page.Services = append(page.Services, shownService(&s))
		}
		if len(names) == in.Limit {
			page.After = names[len(names)-1]
		}
		return page, nil
	})
}

// looked are the instances of a service, at most maxLooked.
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
	return handle(ctx, r, "health of the service", in, func(ctx context.Context, in *InService) (out ServiceHealth, err error) {
		s, err := r.store.Summary(ctx, in.Service)
		if err != nil {
			return out, err
		}
		found, err := r.looked(ctx, in.Service)
		return ServiceHealth{Service: shownService(&s), Statistics: &found}, err
	})
}

func (r *routes) health(ctx context.Context, in *struct{}) (*output[RegistryHealth], error) {
	return handle(ctx, r, "health of the registry", in, func(ctx context.Context, _ *struct{}) (out RegistryHealth, err error) {
		out.Services = []ServiceHealth{}
		const page = 1000
		for after, more := "", true; more; {
			names, err := r.store.List(ctx, after, page)
			if err != nil {
				return out, err
			}
			for _, name := range names {
				after = name
				s, err := r.store.Summary(ctx, name)
				switch {
				case err != nil:
					return out, err
				case s.Late == 0 && s.Guard == "" && s.Instances > 0:
					out.Healthy++
				case len(out.Services) < page:
					out.Services = append(out.Services, ServiceHealth{Service: shownService(&s)})
				}
			}
			more = len(names) == page
		}
		return out, nil
	})
}

func (r *routes) listInstances(ctx context.Context, in *listInput) (*output[InstancePage], error) {
	if _, _, err := operators(ctx); err != nil {
		return nil, r.Refuse("list instances", err)
	}
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

// filterOf is the filter of a request; nil takes all.
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
	return handle(ctx, r, "figures of the instance", in, func(ctx context.Context, in *OfInstance) (json.RawMessage, error) {
		d, _, err := r.store.Instance(ctx, in.Service, in.ID)
		if len(d.Metrics) == 0 {
			return json.RawMessage("{}"), err
		}
		return d.Metrics, err
	})
}

func (r *routes) putOverride(ctx context.Context, in *bodyInput) (*output[Changed], error) {
	return handle(ctx, r, "override the instance", in, func(ctx context.Context, in *bodyInput) (out Changed, err error) {
		var request OverrideRequest
		if err := freeslot.DecodeStrict("override", in.RawBody, &request); err != nil {
			return out, err
		}
		o, err := request.override(api.Caller(ctx).Tenant)
		if err != nil {
			return out, err
		}
		out.Revision, err = r.store.SetOverride(ctx, in.Service, in.ID, o, time.Duration(request.ForMS)*time.Millisecond)
		return out, err
	})
}

// override is the request as it is kept.
func (q *OverrideRequest) override(tenant string) (*registry.Override, error) {
	var found freeslot.FieldErrors
	if q.Weight == nil && q.Enabled == nil && q.Draining == nil {
		found.Addf("override", "sets nothing, expected weight, enabled or draining")
	}
	if q.Weight != nil && !(*q.Weight > 0 && *q.Weight <= registry.MaxWeight) {
		found.Addf("weight", "is %v, expected more than 0 and at most %d; for none, set enabled to false", *q.Weight, registry.MaxWeight)
	}
	line := func(field, s string) {
		if len(s) > maxNote || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
			found.Addf(field, "is no line of at most %d bytes", maxNote)
		}
	}
	line("author", q.Author)
	line("note", q.Note)
	if q.ForMS < 0 || q.ForMS > maxOverride.Milliseconds() {
		found.Addf("for_ms", "is %d, expected 0 to %d", q.ForMS, maxOverride.Milliseconds())
	}
	author := tenant
	if q.Author != "" {
		author += "/" + q.Author
	}
	return &registry.Override{Weight: q.Weight, Enabled: q.Enabled, Draining: q.Draining, Author: author, Note: q.Note}, found.Err()
}

func (r *routes) deleteOverride(ctx context.Context, in *OfInstance) (*output[Changed], error) {
	return handle(ctx, r, "reset the instance", in, func(ctx context.Context, in *OfInstance) (out Changed, err error) {
		out.Revision, err = r.store.SetOverride(ctx, in.Service, in.ID, nil, 0)
		return out, err
	})
}

func (r *routes) putCleanup(ctx context.Context, in *serviceBodyInput) (*output[struct{}], error) {
	return handle(ctx, r, "set the cleanup", in, func(ctx context.Context, in *serviceBodyInput) (out struct{}, err error) {
		var q CleanupRequest
		if err := freeslot.DecodeStrict("cleanup", in.RawBody, &q); err != nil {
			return out, err
		}
		var found freeslot.FieldErrors
		bounded := func(field string, ms *int64, least int64) *time.Duration {
			if ms == nil {
				return nil
			}
			if *ms != 0 && (*ms < least || *ms > 86_400_000) {
				found.Addf(field, "is %d, expected 0, or %d to 86400000", *ms, least)
			}
			return new(time.Duration(*ms) * time.Millisecond)
		}
		limit, every := bounded("limit_ms", q.LimitMS, 1000), bounded("every_ms", q.EveryMS, 100)
		if limit == nil && every == nil {
			found.Addf("cleanup", "sets nothing, expected limit_ms or every_ms")
		}
		if err := found.Err(); err != nil {
			return out, err
		}
		return out, r.store.SetCleanup(ctx, in.Service, limit, every)
	})
}

func (r *routes) postInstance(ctx context.Context, in *serviceBodyInput) (*output[Changed], error) {
	return handle(ctx, r, "register the instance", in, func(ctx context.Context, in *serviceBodyInput) (out Changed, err error) {
		var q InstanceRequest
		if err := freeslot.DecodeStrict("instance", in.RawBody, &q); err != nil {
			return out, err
		}
		out.Revision, err = r.store.PutPersistent(ctx, registry.Registration{
			Service: in.Service, ID: q.ID, Host: q.Host, Port: q.Port, Protocol: q.Protocol, Weight: q.Weight,
			Persistent: true, Check: q.Check, Metadata: q.Metadata,
		})
		return out, err
	})
}

func (r *routes) deleteInstance(ctx context.Context, in *OfInstance) (*output[Changed], error) {
	return handle(ctx, r, "remove the instance", in, func(ctx context.Context, in *OfInstance) (out Changed, err error) {
		out.Revision, err = r.store.Remove(ctx, in.Service, in.ID)
		return out, err
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

// document completes the document where the Go types cannot say it.
func (r *routes) document(doc *huma.OpenAPI) {
	doc.Tags = append(doc.Tags, &huma.Tag{Name: "registry"})
	body := func(op *huma.Operation, t reflect.Type, name string) {
		schema := doc.Components.Schemas.Schema(t, true, name)
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
	}
	body(doc.Paths[overridePath].Put, reflect.TypeFor[OverrideRequest](), "OverrideRequest")
	body(doc.Paths[servicePath+"/cleanup"].Put, reflect.TypeFor[CleanupRequest](), "CleanupRequest")
	body(doc.Paths[listPath].Post, reflect.TypeFor[InstanceRequest](), "InstanceRequest")
}
