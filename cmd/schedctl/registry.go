package main

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/registry/server"
)

const registryPath = "/admin/registry"

type registryCmd struct {
	Services  registryServicesCmd  `cmd:"" help:"List services."`
	Instances registryInstancesCmd `cmd:"" help:"List the instances of a service, healthy or not."`
	Show      registryShowCmd      `cmd:"" help:"Show a service, or one of its instances."`
	Health    registryHealthCmd    `cmd:"" help:"Show services with silent instances, failed checks, a guard, or none at all; of one service, each instance that is not well, and why."`
	Metrics   registryMetricsCmd   `cmd:"" help:"Show the figures of an instance as JSON."`
	Watch     registryWatchCmd     `cmd:"" help:"Show the healthy instances of a service, and each change."`
	Set       registrySetCmd       `cmd:"" help:"Set weight, enabled and draining of an instance, over its provider and over what was set before; or when silent instances of a service are removed."`
	Reset     registryResetCmd     `cmd:"" help:"Take back what set has set for an instance."`
	Put       registryPutCmd       `cmd:"" help:"Register a persistent instance, which sends no heartbeats."`
	Rm        registryRmCmd        `cmd:"" help:"Remove an instance. One whose provider lives registers again: to keep traffic away use set."`
	Config    registryConfigCmd    `cmd:"" help:"Read and write configuration documents."`
	Migrate   registryMigrateCmd   `cmd:"" help:"Show how far the migration from version 1 of the registry is, or finish it."`
	Run       registryRunCmd       `cmd:"" help:"Run a command that is an instance of a service while it runs. It needs no scheduler."`
}

// oneService names a service.
type oneService struct {
	Service string `arg:"" help:"Name of the service."`
}

func (c *oneService) path() string { return registryPath + "/services/" + escaped(c.Service) }

// escaped returns one part of a path. It escapes dots, too: a server would take "." and ".." for
// folders.
func escaped(part string) string {
	return strings.ReplaceAll(url.PathEscape(part), ".", "%2E")
}

// oneInstance names an instance.
type oneInstance struct {
	oneService
	ID string `arg:"" name:"id" help:"Id of the instance, by default its host:port."`
}

func (c *oneInstance) path() string { return c.oneService.path() + "/instances/" + escaped(c.ID) }

type registryServicesCmd struct {
	Nodes bool `help:"List the services that nodes offer to jobs, which are not in the registry."`
}

// Run lists services by their names.
func (c *registryServicesCmd) Run(a *app) error {
	if c.Nodes {
		return c.ofNodes(a)
	}
	all := []server.RegistryService{}
	for query := (url.Values{"limit": {"1000"}}); ; {
		var page server.ServicePage
		if err := a.call(http.MethodGet, registryPath+"/services", query, nil, &page); err != nil {
			return err
		}
		all = append(all, page.Services...)
		if page.After == "" {
			break
		}
		query.Set("after", page.After)
	}
	if a.json {
		return a.printJSON(all)
	}
	rows := [][]string{{"SERVICE", "INSTANCES", "SILENT", "REVISION", "LIMIT", "EVERY", "NOTE"}}
	for i := range all {
		s := &all[i]
		rows = append(
			rows,
			[]string{
				s.Name, fmt.Sprint(s.Instances), fmt.Sprint(s.Late), fmt.Sprint(s.Revision), msText(s.LimitMS), msText(s.EveryMS),
				dash(s.Guard),
			},
		)
	}
	return table(a.out, rows)
}

func msText(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

func (c *registryServicesCmd) ofNodes(a *app) error {
	var list server.NodeServiceList
	if err := a.call(http.MethodGet, registryPath+"/node-services", nil, nil, &list); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(list.Services)
	}
	rows := [][]string{{"SERVICE", "NODE", "STATUS", "VERSION", "ENDPOINT", "SLOTS"}}
	for _, s := range list.Services {
		for _, n := range s.Nodes {
			rows = append(
				rows,
				[]string{s.Name, n.Node, n.Status, dash(n.Version), dash(n.Endpoint), fmt.Sprintf("%d of %d", n.Used, n.Slots)},
			)
		}
	}
	return table(a.out, rows)
}

type registryInstancesCmd struct {
	oneService
	Label  []string `placeholder:"KEY=VALUE" sep:"none" help:"Only instances with this label; may be repeated."`
	Metric []string `placeholder:"TERM" sep:"none" help:"Only instances for whose figures this holds, such as 'cpu.usage < 0.8'; may be repeated."`
}

// Run lists instances by their ids.
func (c *registryInstancesCmd) Run(a *app) error {
	all, seen := []server.RegistryInstance{}, make(map[string]bool)
	for query := (url.Values{"label": c.Label, "metric": c.Metric}); ; {
		var page server.InstancePage
		if err := a.call(http.MethodGet, c.path()+"/instances", query, nil, &page); err != nil {
			return err
		}
		for i := range page.Instances {
			if !seen[page.Instances[i].ID] { // an instance that is changed meanwhile can be listed twice
				seen[page.Instances[i].ID] = true
				all = append(all, page.Instances[i])
			}
		}
		if page.Cursor == "" {
			break
		}
		query.Set("cursor", page.Cursor)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].ID < all[j].ID })
	if a.json {
		return a.printJSON(all)
	}
	rows := [][]string{{"ID", "ADDRESS", "PROTOCOL", "STATE", "WEIGHT", "SILENT", "SINCE"}}
	for i := range all {
		in := &all[i]
		silent := "persistent"
		if !in.Persistent {
			silent = msText(in.DelayMS)
		}
		rows = append(rows, []string{
			in.ID, address(in), in.Protocol, instanceState(in), strconv.FormatFloat(in.Weight, 'g', -1, 64), silent,
			clock(in.RegisteredMS),
		})
	}
	return table(a.out, rows)
}

func address(in *server.RegistryInstance) string {
	return net.JoinHostPort(in.Host, strconv.Itoa(in.Port))
}

func instanceState(in *server.RegistryInstance) string {
	state := "well"
	switch {
	case !in.Enabled:
		state = "disabled"
	case in.Draining:
		state = "draining"
	case in.Failing != "":
		state = "check fails: " + in.Failing
	case in.Unhealthy:
		state = "not well by its own word"
	}
	if in.Override != nil {
		state += " (set by " + in.Override.Author + ")"
	}
	return state
}

type registryShowCmd struct {
	oneService
	ID string `arg:"" optional:"" name:"id" help:"Id of the instance."`
}

// Run shows a service or an instance.
func (c *registryShowCmd) Run(a *app) error {
	if c.ID != "" {
		return c.instance(a)
	}
	var s server.ServiceDetail
	if err := a.call(http.MethodGet, c.path(), nil, nil, &s); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(s)
	}
	st := &s.Statistics
	rows := [][]string{
		{"service", s.Name},
		{"revision", fmt.Sprint(s.Revision)},
		{
			"instances",
			fmt.Sprintf(
				"%d: %d healthy, %d late, %d failing, %d draining, %d disabled", st.Instances, st.Healthy, st.Late, st.Failing,
				st.Draining, st.Disabled,
			),
		},
		{"empty", dash(s.Why)},
		{"guard", dash(s.Guard)},
		{"removed after", msText(s.LimitMS)},
		{"heartbeat delay", spread(st.HeartbeatDelayMS, " ms")},
		{"uptime", spread(st.UptimeMS, " ms")},
	}
	names := make([]string, 0, len(st.Metrics))
	for name := range st.Metrics {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		rows = append(rows, []string{name, spread(st.Metrics[name], "")})
	}
	return table(a.out, rows)
}

func spread(d server.Distribution, unit string) string {
	if d.Count == 0 {
		return "-"
	}
	return fmt.Sprintf("mean %.4g%s, p95 %.4g, %.4g to %.4g", d.Mean, unit, d.P95, d.Min, d.Max)
}

func (c *registryShowCmd) instance(a *app) error {
	one := oneInstance{c.oneService, c.ID}
	var in server.RegistryInstance
	if err := a.call(http.MethodGet, one.path(), nil, nil, &in); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(in)
	}
	rows := [][]string{
		{"instance", in.ID + " of " + in.Service},
		{"address", address(&in)},
		{"protocol", in.Protocol},
		{"state", instanceState(&in)},
		{"weight", strconv.FormatFloat(in.Weight, 'g', -1, 64)},
		{"registered", clock(in.RegisteredMS)},
		{"epoch", dash(in.Epoch)},
	}
	if !in.Persistent {
		rows = append(rows, []string{"silent for", msText(in.DelayMS) + ", beats each " + msText(in.IntervalMS)})
	}
	if o := in.Override; o != nil {
		rows = append(rows, []string{"set by", o.Author + ": " + dash(o.Note) + ", until " + clock(o.UntilMS)})
	}
	names := make([]string, 0, len(in.Metadata))
	for name := range in.Metadata {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		rows = append(rows, []string{"label " + name, in.Metadata[name]})
	}
	return table(a.out, rows)
}

type registryHealthCmd struct {
	Service string `arg:"" optional:"" help:"Name of one service."`
}

// Run shows what is not well.
func (c *registryHealthCmd) Run(a *app) error {
	if c.Service != "" {
		return c.one(a)
	}
	var h server.RegistryHealth
	if err := a.call(http.MethodGet, registryPath+"/health", nil, nil, &h); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(h)
	}
	rows := [][]string{{"SERVICE", "INSTANCES", "SILENT", "FAILING", "NOTE"}}
	for i := range h.Services {
		s := &h.Services[i].Service
		rows = append(
			rows,
			[]string{s.Name, fmt.Sprint(s.Instances), fmt.Sprint(s.Late), fmt.Sprint(h.Services[i].Failing), dash(s.Guard)},
		)
	}
	rows = append(rows, []string{wellText(h.Healthy), "", "", "", ""})
	return table(a.out, rows)
}

func wellText(n int) string {
	if n == 1 {
		return "and 1 is well"
	}
	return fmt.Sprintf("and %d are well", n)
}

func (c *registryHealthCmd) one(a *app) error {
	var h server.ServiceHealth
	if err := a.call(http.MethodGet, (&oneService{c.Service}).path()+"/health", nil, nil, &h); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(h)
	}
	rows := [][]string{{"INSTANCE", "REASON"}}
	for _, bad := range h.Statistics.Abnormal {
		rows = append(rows, []string{bad.ID, bad.Reason})
	}
	rows = append(rows, []string{wellText(h.Statistics.Healthy), dash(h.Service.Guard)})
	return table(a.out, rows)
}

type registryMetricsCmd struct{ oneInstance }

// Run prints figures as JSON.
func (c *registryMetricsCmd) Run(a *app) error {
	var figures map[string]any
	if err := a.call(http.MethodGet, c.path()+"/metrics", nil, nil, &figures); err != nil {
		return err
	}
	return a.printJSON(figures)
}

type registryWatchCmd struct{ oneService }

// watchWait is how long a request waits for the next change.
const watchWait = 30 * time.Second

// Run prints the list, and again whenever it has changed, until it is interrupted.
func (c *registryWatchCmd) Run(a *app) error {
	query, last := url.Values{}, ""
	for a.ctx.Err() == nil {
		var d server.Discovery
		err := a.api.call(a.ctx, http.MethodGet, "/v1/discover/"+escaped(c.Service), query, nil, watchWait, &d)
		switch {
		case a.ctx.Err() != nil:
			return nil // Ctrl-C is the usual end
		case err != nil:
			return explain(err)
		}
		query = url.Values{"version": {d.Version}, "wait_ms": {strconv.FormatInt(watchWait.Milliseconds(), 10)}}
		addresses := make([]string, len(d.Instances))
		for i, in := range d.Instances {
			addresses[i] = net.JoinHostPort(in.Host, strconv.Itoa(in.Port))
		}
		line := d.State
		if d.Why != "" {
			line += " (" + d.Why + ")"
		}
		line += ": " + strings.Join(addresses, " ")
		if line == last {
			continue
		}
		last = line
		if a.json {
			if err := a.printJSON(d); err != nil {
				return err
			}
		} else if err := a.println("%s", line); err != nil {
			return err
		}
	}
	return nil
}

type registrySetCmd struct {
	oneService
	ID       string         `arg:"" optional:"" name:"id" help:"Id of the instance."`
	Weight   *float64       `placeholder:"N" help:"How much of the traffic it gets beside others, up to 10000; for none, --no-enabled."`
	Enabled  *bool          `negatable:"" help:"Whether it gets traffic at all."`
	Draining *bool          `negatable:"" help:"Whether it ends: no new traffic."`
	For      *time.Duration `placeholder:"TIME" help:"After so long it ends by itself (default: never)."`
	Note     string         `placeholder:"TEXT" help:"Why, for those who see it."`
	Author   string         `env:"USER" placeholder:"NAME" help:"Who (default: the user of this shell)."`
	Seen     *int64         `placeholder:"TIME" help:"Only if the override still has this at_ms, as show -o json has it; 0: there was none."`
	Limit    *time.Duration `least:"0s" placeholder:"TIME" help:"Of a service: remove instances that are silent for so long, 10s or more; 0s is the default, 2m."`
	Every    *time.Duration `least:"0s" placeholder:"TIME" help:"Of a service: the pause between cleanups; at most a quarter of the limit holds; 0s is the default, 30s."`
}

// Run sets an override, or the cleanup of a service.
func (c *registrySetCmd) Run(a *app) error {
	if c.ID == "" {
		if c.Limit == nil && c.Every == nil {
			return usage("--limit or --every is missing, expected one of them for a service")
		}
		request := server.CleanupRequest{LimitMS: wholeMS(c.Limit), EveryMS: wholeMS(c.Every)}
		if err := a.call(http.MethodPut, c.path()+"/cleanup", nil, request, new(struct{})); err != nil {
			return err
		}
		return a.println("cleanup of %s is set", c.Service)
	}
	if c.Limit != nil || c.Every != nil {
		return usage("--limit and --every are for a service, expected no instance beside them")
	}
	if err := checkWeight(c.Weight, "--no-enabled"); err != nil {
		return err
	}
	one := oneInstance{c.oneService, c.ID}
	request := server.OverrideRequest{
		Weight: c.Weight, Enabled: c.Enabled, Draining: c.Draining, Author: c.Author, Note: c.Note, ForMS: wholeMS(c.For),
	}
	return one.change(a, http.MethodPut, "/override", seenOverride(c.Seen), request, "is set")
}

// setEnabled is the command that takes an instance out of the traffic.
const setEnabled = "schedctl registry set SERVICE ID --no-enabled"

// checkWeight refuses a weight, and names the command or flag for no traffic at all.
func checkWeight(weight *float64, forNone string) error {
	why := registry.CheckWeight(weight)
	if why == "" {
		return nil
	}
	return usage("--weight %s", strings.Replace(why, "set enabled to false", "use "+forNone, 1))
}

// wholeMS rounds away from 0, so that a time below 1 ms does not become 0, which has another
// meaning.
func wholeMS(d *time.Duration) *int64 {
	if d == nil {
		return nil
	}
	ms := d.Milliseconds()
	switch rest := *d - time.Duration(ms)*time.Millisecond; {
	case rest > 0:
		ms++
	case rest < 0:
		ms--
	}
	return &ms
}

// change changes an instance, and prints the outcome.
func (c *oneInstance) change(a *app, method, below string, query url.Values, request any, done string) error {
	var changed server.Changed
	if err := a.call(method, c.path()+below, query, request, &changed); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(changed)
	}
	return a.println("%s of %s %s with revision %d", c.ID, c.Service, done, changed.Revision)
}

// seenOverride returns the query that names the override that was seen.
func seenOverride(at *int64) url.Values {
	if at == nil {
		return nil
	}
	return url.Values{"seen": {strconv.FormatInt(*at, 10)}}
}

type registryResetCmd struct {
	oneInstance
	Seen *int64 `placeholder:"TIME" help:"Only if the override still has this at_ms, as show -o json has it."`
}

// Run takes back an override.
func (c *registryResetCmd) Run(a *app) error {
	return c.change(a, http.MethodDelete, "/override", seenOverride(c.Seen), nil, "is reset")
}

type registryRmCmd struct {
	oneInstance
	Epoch string `name:"if-epoch" placeholder:"EPOCH" help:"Only if the instance has this epoch, as show has it: a restarted one has another."`
}

// Run removes an instance.
func (c *registryRmCmd) Run(a *app) error {
	query := url.Values{}
	if c.Epoch != "" {
		query.Set("epoch", c.Epoch)
	}
	return c.change(a, http.MethodDelete, "", query, nil, "is removed")
}

type registryPutCmd struct {
	oneService
	Host     string            `required:"" help:"Where clients reach it."`
	Port     int               `required:"" help:"Its port."`
	ID       string            `placeholder:"ID" help:"Its id (default: host:port)."`
	Protocol string            `default:"TCP" help:"What it speaks (default ${default})."`
	Weight   float64           `default:"1" help:"How much of the traffic it gets beside others (default ${default})."`
	Label    map[string]string `placeholder:"KEY=VALUE" help:"A label; may be repeated."`
}

// Run registers a persistent instance.
func (c *registryPutCmd) Run(a *app) error {
	if err := checkWeight(&c.Weight, setEnabled); err != nil {
		return err
	}
	request := server.InstanceRequest{
		ID: c.ID, Host: c.Host, Port: c.Port, Protocol: c.Protocol, Weight: &c.Weight, Metadata: c.Label,
	}
	var changed server.Changed
	if err := a.call(http.MethodPost, c.path()+"/instances", nil, request, &changed); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(changed)
	}
	return a.println("registered with revision %d", changed.Revision)
}
