package server

import (
	"time"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/namelist/version"
)

type (
	// OfList names a list. It is exported because huma ignores unexported parts of requests.
	OfList struct {
		List string `path:"list" doc:"The name of the list."`
	}
	// OfUpload names an upload.
	OfUpload struct {
		Upload string `path:"upload" doc:"The id of the upload."`
	}
	pageInput struct {
		After string `query:"after" maxLength:"256" doc:"The last name of the page before."`
		Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	}
	bodyInput struct {
		OfList
		RawBody []byte
	}
	// OfVersion names a version.
	OfVersion struct {
		OfList
		Version int64 `path:"version" minimum:"1" doc:"The number of the version."`
	}
	deleteInput struct {
		OfList
		Force bool   `query:"force" doc:"Also while live clients use the list. Of a list that is being deleted: forget its keys whose list server is not there."`
		Note  string `query:"note" maxLength:"256" doc:"Why."`
	}
	chunkInput struct {
		OfUpload
		Offset  int64  `query:"offset" minimum:"0" required:"true" doc:"Where the part begins: where the one before it ended, or before."`
		CRC32C  string `query:"crc32c" required:"true" maxLength:"8" doc:"CRC-32C of the body, hexadecimal."`
		RawBody []byte `contentType:"application/octet-stream"`
	}
	uploadBodyInput struct {
		OfUpload
		RawBody []byte
	}
	sessionBodyInput struct {
		OfSession
		RawBody []byte
	}
	output[T any] struct{ Body T }
)

// OfSession names an edit session.
type OfSession struct {
	OfList
	Session string `path:"session" doc:"The id of the edit session."`
}

// ListSpec describes a list to create, or its settings.
type ListSpec struct {
	// The tags document Form and the rest for readers of the API.
	Form        string `json:"form,omitempty" doc:"exact, lower or integer; fixed. Absent means exact."`
	Server      string `json:"server,omitempty" doc:"The list server, which only a move changes. Absent means the control server."`
	ExpectedIDs int64  `json:"expected_ids,omitempty" doc:"How many ids the list is expected to have; fixed."`
	Filter      string `json:"filter,omitempty" doc:"fuse, bloom or none, for the next versions. Absent means fuse."`
	ExpiresMS   int64  `json:"expires_ms,omitempty" doc:"When the whole list ends, by Redis' clock, in milliseconds since 1970. Absent means never."`
	OnExpired   string `json:"on_expired,omitempty" doc:"What an expired list answers: unknown or no. Absent means unknown."`
	Whole       bool   `json:"whole,omitempty" doc:"Whether clients hold all ids; for lists of up to 100000."`
	// The tag documents Application for readers of the API.
	Application string `json:"application,omitempty" doc:"The registered application that owns the list; only own-list changes it. A tenant-operator must name one of its tenant."`
}

// NameList describes a list.
type NameList struct {
	Name string `json:"name"`
	ListSpec
	State    namelist.State    `json:"state"`
	Revision int64             `json:"revision"`
	Serving  *namelist.Version `json:"serving,omitempty"`
	Next     *namelist.Version `json:"next,omitempty" doc:"The version that clients load before a switch."`
	Edits    int64             `json:"edits" doc:"Entries of edits since the serving version; compaction begins at 25000, ordinary edits end at 50000."`
	// The tag documents Grants for readers of the API.
	Grants map[string][]namelist.May `json:"grants,omitempty" doc:"What tokens were granted with the list, by their names, before which tenant-operators have their tenants."`
	// The tag documents Operation for readers of the API.
	Operation *ListOperation `json:"operation,omitempty" doc:"What runs."`
	// Planned is set only in the answer to an apply.
	Planned *Planned `json:"planned,omitempty" doc:"What a version of expected_ids needs."`
}

// Planned says what a version needs.
type Planned struct {
	Segments uint32 `json:"segments"`
	Bytes    int64  `json:"bytes" doc:"For ids of 16 bytes."`
}

// ListOperation describes the operation that runs on a list.
type ListOperation struct {
	ID      string          `json:"id"`
	Kind    namelist.OpKind `json:"kind"`
	Version int64           `json:"version,omitempty" doc:"That it builds or switches to."`
	Replica string          `json:"replica"`
	Why     string          `json:"why,omitempty"`
	SinceMS int64           `json:"since_ms"`
}

// NameListPage is one page of lists.
type NameListPage struct {
	Lists []NameList `json:"lists"`
	// The tag documents After for readers of the API.
	After string `json:"after,omitempty" doc:"Continues the listing; absent at its end."`
}

// ListVersions holds the versions of a list.
type ListVersions struct {
	Versions []namelist.Version `json:"versions" doc:"The newest first."`
}

// ListClients holds the live clients of a list.
type ListClients struct {
	Clients []ListClient `json:"clients"`
}

// ListClient is a live client of a list or a chain.
type ListClient struct {
	ID       string  `json:"id"`
	Owner    string  `json:"owner" doc:"The tenant and the name of the token by which it reports, with / between; (redis) for a process that reports to Redis."`
	SDK      string  `json:"sdk,omitempty"`
	Serves   int64   `json:"serves" doc:"The version that it answers from; 0 is none."`
	Loaded   []int64 `json:"loaded,omitempty"`
	Revision int64   `json:"revision"`
	AtMS     int64   `json:"at_ms" doc:"When it reported."`
}

// ByWhom says who makes a request, and why.
type ByWhom struct {
	Author string `json:"author,omitempty" doc:"Who; the tenant of the token is put before it."`
	Note   string `json:"note,omitempty" doc:"Why; at most 256 bytes."`
}

// UploadRequest opens an upload.
type UploadRequest struct {
	// The tags document Format and the rest for readers of the API.
	Format version.Format `json:"format,omitempty" doc:"csv or txt, also compressed by gzip. Absent means csv."`
	Mode   manage.Mode    `json:"mode,omitempty" doc:"replace, add or remove. Absent means replace."`
	// The tag documents Header for readers of the API.
	Header version.HeaderChoice `json:"header,omitempty" doc:"Whether the first line is a header, which is left out: yes, no or auto. Absent means auto, which knows id and id,expiry in a CSV."`
	Switch bool                 `json:"switch,omitempty" doc:"Whether to switch to the version when nothing speaks against it."`
	ByWhom
}

// ListUpload is an upload.
type ListUpload struct {
	manage.Upload
	URL      string         `json:"url,omitempty" doc:"The replica that has the upload: all calls of it go there."`
	MaxChunk int            `json:"max_chunk"`
	Progress *BuildProgress `json:"progress,omitempty"`
}

// shownRejects is the number of rejected lines that an upload shows; another route shows all.
const shownRejects = 100

// ListUploads holds the uploads of a list on one replica.
type ListUploads struct {
	Uploads []ListUpload `json:"uploads" doc:"The oldest first."`
}

// BuildProgress says how far a build is.
type BuildProgress struct {
	Step  version.Step `json:"step"`
	Done  int64        `json:"done"`
	Total int64        `json:"total"`
}

// CommitUploadRequest ends the reception of an upload.
type CommitUploadRequest struct {
	Bytes int64 `json:"bytes" doc:"Length of the whole file."`
}

// ListSwitchRequest switches to a version; to an older version, that is a rollback.
type ListSwitchRequest struct {
	// The tags document Version and the rest for readers of the API.
	Version int64  `json:"version"`
	Serving *int64 `json:"serving,omitempty" doc:"The version that the caller saw serving, 0 for none: another one is a conflict. Absent means any."`
	Now     bool   `json:"now,omitempty" doc:"Wait for no client."`
	ByWhom
}

// MoveRequest moves a list to another server.
type MoveRequest struct {
	Server string `json:"server" doc:"Empty is the control server."`
	ByWhom
}

// WhyRequest is the body of a request that needs nothing else.
type WhyRequest struct{ ByWhom }

// CancelRequest ends an operation.
type CancelRequest struct {
	Operation string `json:"operation" doc:"Its id."`
	ByWhom
}

// EntriesRequest changes entries.
type EntriesRequest struct {
	// The tags document ID and the rest for readers of the API.
	ID      string            `json:"id,omitempty" doc:"Of the request: repeated with it, it is done once."`
	Entries []namelist.Change `json:"entries" doc:"At most 1000, each id once."`
	Urgent  bool              `json:"urgent,omitempty" doc:"Also while an operation runs. It needs author and note."`
	ByWhom
}

// CollectRequest looks for keys that no list needs any longer.
type CollectRequest struct {
	// The tags document Server and the rest for readers of the API.
	Server string `json:"server,omitempty" doc:"The list server to look through. Absent means all, the control server among them."`
	DryRun bool   `json:"dry_run,omitempty" doc:"Remove nothing."`
	After  string `json:"after,omitempty" doc:"The next of the answer before. Absent begins."`
}

// ListChanged is the answer to a change.
type ListChanged struct {
	Revision int64 `json:"revision" doc:"The revision of the list that has the change."`
}

// ListDeleted is the answer to a deletion.
type ListDeleted struct {
	ListChanged
	Left []string `json:"left,omitempty" doc:"Versions whose keys stay, and why."`
}

// ListStarted is the answer to a request whose work continues.
type ListStarted struct {
	Operation ListOperation `json:"operation" doc:"It is over when the list shows no operation."`
}

// EditSession is an edit session.
type EditSession struct {
	ID      string `json:"id"`
	Staged  int64  `json:"staged" doc:"How many entries are staged."`
	UntilMS int64  `json:"until_ms" doc:"Each call renews the session; when this is over it is cancelled."`
}

// StageRequest stages entries.
type StageRequest struct {
	Entries []namelist.Change `json:"entries" doc:"At most 1000, each id once. A later entry of an id replaces the one before."`
}

// QueryRequest asks about ids.
type QueryRequest struct {
	IDs []string `json:"ids" doc:"At most 1000."`
}

func operationOf(op *namelist.Operation) ListOperation {
	return ListOperation{
		ID: op.ID, Kind: op.Kind, Version: op.Number, Replica: op.Holder, Why: op.Why, SinceMS: ms(op.Since),
	}
}

func listOf(h *namelist.Head) NameList {
	onExpired := "unknown"
	if h.ExpiredNo {
		onExpired = "no"
	}
	l := NameList{
		Name: h.Name, State: h.State, Revision: h.Revision, Serving: h.Serving, Next: h.Next, Edits: h.Edited,
		ListSpec: ListSpec{
			Form: string(h.Form), Server: h.Server, ExpectedIDs: h.Expected, Filter: string(h.Filter), ExpiresMS: ms(h.Expires),
			OnExpired: onExpired, Whole: h.Whole, Application: h.Owner.Application,
		},
		Grants: h.Grants,
	}
	if h.Serving != nil {
		l.Edits -= h.Serving.Edited
	}
	if h.Op.ID != "" {
		l.Operation = new(operationOf(&h.Op))
	}
	return l
}

func ms(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
