package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/cmd/schedctl/archive"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/server"
	"github.com/freeslot/freeslot/internal/pool"
	registryserver "github.com/freeslot/freeslot/internal/registry/server"
	"github.com/freeslot/freeslot/internal/schedule"
)

// empty returns an error that names what the system has. Nodes and instances that register by
// themselves do not count.
func (r *restore) empty() error {
	var found []string
	has := func(what string, names ...string) {
		if len(names) > 5 {
			names = append(names[:5:5], "...")
		}
		if len(names) > 0 {
			found = append(found, what+" "+strings.Join(names, ", "))
		}
	}
	current, err := r.currentConfig()
	if err != nil {
		return err
	}
	if current.Source == "redis" || current.Version > 0 {
		has("pools", fmt.Sprintf("(version %d)", current.Version))
	}
	var applications server.ListApplications
	var lists server.NameListPage
	var chains server.ChainPage
	var documents registryserver.ConfigDocumentPage
	var schedules schedule.SchedulePage
	for path, out := range map[string]any{
		applicationsPath: &applications, listsPath: &lists, chainsPath: &chains, documentsPath: &documents,
		schedulesPath: &schedules,
	} {
		if err := r.call(http.MethodGet, path, nil, nil, out); err != nil {
			return err
		}
	}
	jobs, err := r.jobPage(nil)
	if err != nil {
		return err
	}
	has("applications", namesOf(applications.Applications, func(a namelist.Application) string { return a.Name })...)
	has("lists", namesOf(lists.Lists, func(l server.NameList) string { return l.Name })...)
	has("chains", namesOf(chains.Chains, func(c server.ChainHead) string { return c.Name })...)
	has("documents", namesOf(documents.Documents, func(d registryserver.ConfigDocumentHead) string { return d.Name })...)
	has("schedules", namesOf(schedules.Schedules, func(s schedule.Schedule) string { return s.Name })...)
	has("jobs", namesOf(jobs.Jobs, func(j freeslot.JobStatus) string { return j.ID })...)
	instances, err := r.setUp()
	if err != nil {
		return err
	}
	has("instances", instances...)
	if len(found) > 0 {
		return fmt.Errorf("the system is not empty, it has %s", strings.Join(found, "; "))
	}
	return nil
}

func namesOf[T any](all []T, name func(T) string) (out []string) {
	for _, one := range all {
		out = append(out, name(one))
	}
	return out
}

// setUp names instances of the registry that operators have registered or overridden.
func (r *restore) setUp() (found []string, err error) {
	err = r.eachService(func(s *registryserver.RegistryService) error {
		return r.eachInstance(s.Name, func(in *registryserver.RegistryInstance) error {
			if in.Persistent && in.Origin == "" || in.Override != nil {
				found = append(found, s.Name+"/"+in.ID)
			}
			return nil
		})
	})
	return found, err
}

// errDiffersHere is the problem of a thing that is there with another content.
var errDiffersHere = errors.New("it is here already, and differs; it was left as it is")

func (r *restore) pools(record archive.Record) error {
	var p poolsRecord
	if err := decode(record, &p); err != nil {
		return err
	}
	current, err := r.currentConfig()
	there := false
	switch {
	case err != nil:
	case current.Source == "redis":
		if there = same(current.Config, p.Config); !there {
			err = errDiffersHere
		}
	default:
		body := pool.ConfigUpdate{Version: &current.Version, Config: p.Config, Note: p.Note, Author: p.Author}
		err = r.put(http.MethodPut, configPath, body, nil)
	}
	return r.outcome(kindPools, fmt.Sprintf("version %d", p.Version), there, err)
}

// same reports whether two values have the same JSON.
func same(a, b any) bool {
	one, err := json.Marshal(a)
	other, failed := json.Marshal(b)
	return err == nil && failed == nil && bytes.Equal(one, other)
}

func (r *restore) application(record archive.Record) error {
	var a, here namelist.Application
	if err := decode(record, &a); err != nil {
		return err
	}
	path := applicationsPath + "/" + escaped(a.Name)
	err := r.call(http.MethodGet, path, nil, nil, &here)
	there := err == nil
	switch here.Revision = a.Revision; {
	case there && !same(a, here):
		err = errDiffersHere
	case freeslot.CodeOf(err) == freeslot.CodeNotFound:
		body := server.ApplicationUpdate{Tenant: a.Tenant, Contact: a.Contact, Tokens: a.Tokens, Revision: new(int64)}
		err = r.put(http.MethodPut, path, body, nil)
	}
	return r.outcome(kindApplication, a.Name, there, err)
}

// group returns the versions of one document or chain. first is the oldest.
func (r *restore) group(first archive.Record) (all []documentRecord, err error) {
	for record := first; ; {
		var d documentRecord
		if err := decode(record, &d); err != nil {
			return nil, err
		}
		if len(all) > 0 && d.Name != all[0].Name {
			r.back = &record
			return all, nil
		}
		all = append(all, d)
		next, ok, err := r.nextOf(first.Kind)
		if err != nil || !ok {
			return all, err
		}
		record = next
	}
}

// versioned is a document or a chain in the system.
type versioned struct {
	// version and content are of the newest version; version is 0 if there is none.
	version int64
	content string
	// put makes a version, and returns its number.
	put func(seen int64, d *documentRecord) (int64, error)
}

// versions makes the versions of a document or a chain that are not there yet.
func (r *restore) versions(kind string, all []documentRecord, v versioned, err error) error {
	name, from := all[0].Name, 0
	if err == nil && v.version > 0 {
		from = len(all)
		for from > 0 && all[from-1].Content != v.content {
			from--
		}
		if from == 0 {
			err = errDiffersHere
		}
	}
	if err != nil {
		return r.outcome(kind, name, false, err)
	}
	for i := range all {
		d := &all[i]
		if i < from {
			r.report.count(kind).There++
			continue
		}
		number, err := v.put(v.version, d)
		full := fmt.Sprintf("%s, version %d", name, d.Version)
		if err != nil && i < len(all)-1 && !r.ends(err) {
			r.report.LeftOut = append(r.report.LeftOut, restoreProblem{kind, full, err.Error()})
			continue
		}
		if err == nil {
			v.version = number
		}
		if err := r.outcome(kind, full, false, err); err != nil {
			return err
		}
	}
	return nil
}

func (r *restore) chain(record archive.Record) error {
	all, err := r.group(record)
	if err != nil {
		return err
	}
	c := &oneChain{all[0].Name}
	now, err := c.read(r.app)
	put := func(seen int64, d *documentRecord) (int64, error) {
		var out server.ChainChanged
		body := server.ChainUpdate{
			Version: &seen, Document: json.RawMessage(d.Content), ByWhom: server.ByWhom{Author: d.Author, Note: d.Note},
		}
		err := r.put(http.MethodPut, c.path(), body, &out)
		return out.Version, err
	}
	return r.versions(kindChain, all, versioned{now.Version, string(now.Document), put}, err)
}

func (r *restore) shadow(record archive.Record) error {
	var d documentRecord
	if err := decode(record, &d); err != nil {
		return err
	}
	c := &oneChain{d.Name}
	now, err := c.read(r.app)
	there := now.Shadow != nil && string(now.Shadow.Document) == d.Content
	if err == nil && !there {
		body := server.ChainUpdate{Version: &now.Version, Document: json.RawMessage(d.Content)}
		err = r.put(http.MethodPost, c.path()+"/shadow", body, nil)
	}
	return r.outcome(kindShadow, d.Name, there, err)
}

func (r *restore) document(record archive.Record) error {
	all, err := r.group(record)
	if err != nil {
		return err
	}
	path := documentsPath + "/" + escaped(all[0].Name)
	var now registryserver.ConfigDocument
	if err = r.call(http.MethodGet, path, nil, nil, &now); freeslot.CodeOf(err) == freeslot.CodeNotFound {
		err = nil
	}
	put := func(seen int64, d *documentRecord) (int64, error) {
		var out registryserver.ConfigDocumentChanged
		body := registryserver.ConfigDocumentUpdate{Version: &seen, Content: &d.Content, Author: d.Author, Note: d.Note}
		err := r.put(http.MethodPut, path, body, &out)
		return out.Version, err
	}
	return r.versions(kindDocument, all, versioned{now.Version, now.Content, put}, err)
}

func (r *restore) instance(record archive.Record) error {
	var in instanceRecord
	if err := decode(record, &in); err != nil {
		return err
	}
	err := r.put(http.MethodPost, (&oneService{in.Service}).path()+"/instances", in.Instance, nil)
	return r.outcome(kindInstance, in.Service+"/"+in.Instance.ID, false, err)
}

func (r *restore) override(record archive.Record) error {
	var o overrideRecord
	if err := decode(record, &o); err != nil {
		return err
	}
	if o.UntilMS > 0 {
		left := o.UntilMS - r.nowMS
		if left <= 0 {
			return nil // it has ended by itself
		}
		o.Override.ForMS = &left
	}
	path := (&oneInstance{oneService{o.Service}, o.ID}).path() + "/override"
	err := r.patiently(func() error {
		return r.call(http.MethodPut, path, url.Values{"seen": {"0"}}, o.Override, nil)
	})
	there := freeslot.CodeOf(err) == freeslot.CodeConflict // an override is newer than the system
	if there {
		err = nil
	}
	return r.outcome(kindOverride, o.Service+"/"+o.ID, there, err)
}

func (r *restore) cleanup(record archive.Record) error {
	var c cleanupRecord
	if err := decode(record, &c); err != nil {
		return err
	}
	err := r.put(http.MethodPut, (&oneService{c.Service}).path()+"/cleanup", c.Cleanup, nil)
	return r.outcome(kindCleanup, c.Service, false, err)
}

func (r *restore) schedule(record archive.Record) error {
	var s scheduleRecord
	if err := decode(record, &s); err != nil {
		return err
	}
	path, query := schedulesPath+"/"+escaped(s.Name), url.Values{"tenant": {s.Tenant}}
	s.Schedule.Version = new(uint64)
	err := r.patiently(func() error { return r.call(http.MethodPut, path, query, s.Schedule, nil) })
	there := freeslot.CodeOf(err) == freeslot.CodeConflict
	if there {
		var here schedule.Schedule
		if err = r.call(http.MethodGet, path, query, nil, &here); err == nil {
			s.Schedule.Version = nil
			if now := scheduleOf(&here); !same(now.Schedule, s.Schedule) {
				err = errDiffersHere
			}
		}
	}
	return r.outcome(kindSchedule, s.Tenant+"/"+s.Name, there, err)
}

// scheduleOf returns a schedule as its owner has set it up.
func scheduleOf(s *schedule.Schedule) scheduleRecord {
	return scheduleRecord{s.Name, s.Tenant, schedule.ScheduleRequest{
		Cron: s.Cron, TimeZone: s.TimeZone, Job: s.Job, OnMissed: s.OnMissed, GraceMS: s.GraceMS, Paused: &s.Paused,
	}}
}
