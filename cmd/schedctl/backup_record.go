package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/cmd/schedctl/archive"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/server"
	registry "github.com/freeslot/freeslot/internal/registry/server"
	"github.com/freeslot/freeslot/internal/schedule"
)

// The kinds of records, in the order in which a backup has them. docs/backup.md describes each.
const (
	kindToken       = "token"
	kindPools       = "pools"
	kindApplication = "application"
	// A list is followed by its versions, each with the records of its ids, and by its end.
	kindList        = "list"
	kindListVersion = "list_version"
	kindIDs         = "ids"
	kindListEnd     = "list_end"
	kindChain       = "chain"
	kindShadow      = "shadow"
	kindDocument    = "document"
	kindInstance    = "instance"
	kindOverride    = "override"
	kindCleanup     = "cleanup"
	kindJob         = "job"
	kindSchedule    = "schedule"
)

// tokenRecord names a token. A backup has no secret and no hash of one.
type tokenRecord struct {
	Source string   `json:"source"`
	Name   string   `json:"name"`
	Role   string   `json:"role,omitempty"`
	Tenant string   `json:"tenant,omitempty"`
	Nodes  []string `json:"nodes,omitempty"`
}

type poolsRecord struct {
	Version uint64          `json:"version"`
	Config  json.RawMessage `json:"config"`
	Author  string          `json:"author,omitempty"`
	Note    string          `json:"note,omitempty"`
}

// listRecord begins a list.
type listRecord struct {
	Name string          `json:"name"`
	Spec server.ListSpec `json:"spec"`
}

// listVersionRecord begins a version. The ids of the records behind it are what the list answers
// when this version serves.
type listVersionRecord struct {
	Number int64 `json:"number"`
	// Served is true for a version that serves, or has served.
	Served bool   `json:"served,omitempty"`
	Doubt  string `json:"doubt,omitempty"`
	Author string `json:"author,omitempty"`
	Note   string `json:"note,omitempty"`
}

// idsRecord holds some lines of a CSV without a header, each with an id and its expiry.
type idsRecord struct {
	CSV string `json:"csv"`
}

// listEndRecord ends a list.
type listEndRecord struct {
	// Serving is the number of the version that serves, 0 for none.
	Serving int64                     `json:"serving"`
	Frozen  bool                      `json:"frozen,omitempty"`
	Grants  map[string][]namelist.May `json:"grants,omitempty"`
	Source  *server.ListSourceSpec    `json:"source,omitempty"`
}

// documentRecord is a version of a document of the registry, or of a chain, the oldest first.
type documentRecord struct {
	Name    string `json:"name"`
	Version int64  `json:"version"`
	Content string `json:"content"`
	Author  string `json:"author,omitempty"`
	Note    string `json:"note,omitempty"`
}

type instanceRecord struct {
	Service  string                   `json:"service"`
	Instance registry.InstanceRequest `json:"instance"`
}

type overrideRecord struct {
	Service  string                   `json:"service"`
	ID       string                   `json:"id"`
	Override registry.OverrideRequest `json:"override"`
	// UntilMS is when it ends by itself, 0 for never.
	UntilMS int64 `json:"until_ms,omitempty"`
}

type cleanupRecord struct {
	Service string                  `json:"service"`
	Cleanup registry.CleanupRequest `json:"cleanup"`
}

// jobRecord is a job that had not ended.
type jobRecord struct {
	ID     string       `json:"id"`
	Tenant string       `json:"tenant"`
	Job    freeslot.Job `json:"job"`
}

type scheduleRecord struct {
	Name     string                   `json:"name"`
	Tenant   string                   `json:"tenant"`
	Schedule schedule.ScheduleRequest `json:"schedule"`
}

// content returns the decoded data of a record. A kind or a field that is not known is an error.
func content(record archive.Record) (data any, err error) {
	switch record.Kind {
	case kindToken:
		data = new(tokenRecord)
	case kindPools:
		data = new(poolsRecord)
	case kindApplication:
		data = new(namelist.Application)
	case kindList:
		data = new(listRecord)
	case kindListVersion:
		data = new(listVersionRecord)
	case kindIDs:
		data = new(idsRecord)
	case kindListEnd:
		data = new(listEndRecord)
	case kindChain, kindShadow, kindDocument:
		data = new(documentRecord)
	case kindInstance:
		data = new(instanceRecord)
	case kindOverride:
		data = new(overrideRecord)
	case kindCleanup:
		data = new(cleanupRecord)
	case kindJob:
		data = new(jobRecord)
	case kindSchedule:
		data = new(scheduleRecord)
	default:
		return nil, fmt.Errorf("%w: there is a record of kind %.64q, which is unknown", archive.ErrDamaged, record.Kind)
	}
	return data, decode(record, data)
}

// lines counts the lines of a text of whole lines.
func lines(csv string) int64 { return int64(strings.Count(csv, "\n")) }
