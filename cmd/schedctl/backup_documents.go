package main

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/server"
	"github.com/freeslot/freeslot/internal/registry"
	registryserver "github.com/freeslot/freeslot/internal/registry/server"
	"github.com/freeslot/freeslot/internal/schedule"
)

func (b *backup) chains() error {
	for query := (url.Values{"limit": {"1000"}}); ; {
		var page server.ChainPage
		if err := b.get(chainsPath, query, &page); err != nil {
			return err
		}
		for i := range page.Chains {
			if err := b.chain(page.Chains[i].Name); err != nil {
				return err
			}
		}
		if page.After == "" {
			return nil
		}
		query.Set("after", page.After)
	}
}

// chain writes the versions of a chain, the oldest first, and its shadow.
func (b *backup) chain(name string) error {
	path := (&oneChain{name}).path()
	var all server.ChainVersions
	if err := b.get(path+"/versions", nil, &all); err != nil {
		return err
	}
	for _, v := range slices.Backward(all.Versions) {
		var shown server.ChainVersionShown
		err := b.get(path+"/versions/"+strconv.FormatInt(v.Version, 10), nil, &shown)
		if freeslot.CodeOf(err) == freeslot.CodeNotFound { // a newer version has taken its place
			continue
		}
		if err != nil {
			return err
		}
		record := documentRecord{name, v.Version, string(shown.Document), v.Author, v.Note}
		if err := b.add(kindChain, record); err != nil {
			return err
		}
	}
	var now namelist.ChainDocument
	if err := b.get(path, nil, &now); err != nil || now.Shadow == nil {
		return err
	}
	return b.add(kindShadow, documentRecord{Name: name, Content: string(now.Shadow.Document)})
}

func (b *backup) documents() error {
	for query := (url.Values{"limit": {"1000"}}); ; {
		var page registryserver.ConfigDocumentPage
		if err := b.get(documentsPath, query, &page); err != nil {
			return err
		}
		for _, d := range page.Documents {
			if d.Name == restoreMark {
				b.lack("document %s: a restore has begun here, and is not at its end", d.Name)
				continue
			}
			if err := b.document(d.Name); err != nil {
				return err
			}
		}
		if page.After == "" {
			return nil
		}
		query.Set("after", page.After)
	}
}

// document writes the versions of a document, the oldest first.
func (b *backup) document(name string) error {
	path := documentsPath + "/" + escaped(name)
	var all registryserver.ConfigDocumentHistory
	if err := b.get(path+"/history", nil, &all); err != nil {
		return err
	}
	for _, v := range slices.Backward(all.Versions) {
		var shown registryserver.ConfigDocument
		err := b.get(path, url.Values{"version": {strconv.FormatInt(v.Version, 10)}}, &shown)
		if freeslot.CodeOf(err) == freeslot.CodeNotFound { // a newer version has taken its place
			continue
		}
		if err != nil {
			return err
		}
		if err := b.add(kindDocument, documentRecord{name, v.Version, shown.Content, v.Author, v.Note}); err != nil {
			return err
		}
	}
	return nil
}

func (b *backup) services() error {
	return b.eachService(func(s *registryserver.RegistryService) error {
		if err := b.service(s); err != nil {
			return err
		}
		set := registryserver.CleanupRequest{
			LimitMS: another(s.LimitMS, registry.DefaultLimit), EveryMS: another(s.EveryMS, registry.DefaultCleanupEvery),
		}
		if set.LimitMS == nil && set.EveryMS == nil {
			return nil
		}
		return b.add(kindCleanup, cleanupRecord{s.Name, set})
	})
}

// another returns a setting that is not the default, else nil.
func another(ms int64, usual time.Duration) *int64 {
	if ms == usual.Milliseconds() {
		return nil
	}
	return &ms
}

// eachService calls do for each service that has instances.
func (a *app) eachService(do func(*registryserver.RegistryService) error) error {
	for query := (url.Values{"limit": {"1000"}}); ; {
		var page registryserver.ServicePage
		err := a.patiently(func() error { return a.call(http.MethodGet, registryPath+"/services", query, nil, &page) })
		if err != nil {
			return err
		}
		for i := range page.Services {
			if err := do(&page.Services[i]); err != nil {
				return err
			}
		}
		if page.After == "" {
			return nil
		}
		query.Set("after", page.After)
	}
}

// eachInstance calls do once for each instance of a service.
func (a *app) eachInstance(service string, do func(*registryserver.RegistryInstance) error) error {
	seen := make(map[string]bool)
	for query := (url.Values{}); ; {
		var page registryserver.InstancePage
		path := (&oneService{service}).path() + "/instances"
		err := a.patiently(func() error { return a.call(http.MethodGet, path, query, nil, &page) })
		if err != nil {
			return err
		}
		for i := range page.Instances {
			in := &page.Instances[i]
			if seen[in.ID] {
				continue
			}
			seen[in.ID] = true
			if err := do(in); err != nil {
				return err
			}
		}
		if page.Cursor == "" {
			return nil
		}
		query.Set("cursor", page.Cursor)
	}
}

// service writes what operators have set up of a service. Other instances register by themselves.
func (b *backup) service(s *registryserver.RegistryService) error {
	return b.eachInstance(s.Name, func(in *registryserver.RegistryInstance) error {
		if in.Persistent && in.Origin == "" {
			err := b.add(kindInstance, instanceRecord{s.Name, registryserver.InstanceRequest{
				ID: in.ID, Host: in.Host, Port: in.Port, Protocol: in.Protocol, Weight: &in.Weight, Metadata: in.Metadata,
				Check: in.Check,
			}})
			if err != nil {
				return err
			}
		}
		o := in.Override
		if o == nil || o.UntilMS > 0 && o.UntilMS <= b.atMS {
			return nil
		}
		return b.add(kindOverride, overrideRecord{s.Name, in.ID, registryserver.OverrideRequest{
			Weight: o.Weight, Enabled: o.Enabled, Draining: o.Draining, Author: o.Author, Note: o.Note,
		}, o.UntilMS})
	})
}

func (b *backup) schedules() error {
	for query := (url.Values{"limit": {"100"}}); ; {
		var page schedule.SchedulePage
		if err := b.get(schedulesPath, query, &page); err != nil {
			return err
		}
		for i := range page.Schedules {
			if err := b.add(kindSchedule, scheduleOf(&page.Schedules[i])); err != nil {
				return err
			}
		}
		if page.Cursor == "" {
			return nil
		}
		query.Set("cursor", page.Cursor)
	}
}
