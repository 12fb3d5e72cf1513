package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/namelist/own"
	"github.com/freeslot/freeslot/internal/namelist/source"
	"github.com/freeslot/freeslot/internal/namelist/version"
)

const (
	listsPath   = "/v1/lists"
	listPath    = listsPath + "/{list}"
	sessionPath = listPath + "/sessions/{session}"
	versionPath = listPath + "/versions/{version}"
	// uploadsPath is not below a list: the limit on request bodies goes by a path without
	// variables.
	uploadsPath = "/v1/list-uploads/"
	uploadPath  = uploadsPath + "{upload}"
	collectPath = "/v1/list-gc"
	// collectTimeout is for a page from slow servers.
	collectTimeout = 30 * time.Second
)

type routes struct {
	*api.Router
	control *namelist.Control
	manager *manage.Manager
	own     *own.Lists
	url     string
	sources *source.Store
	// sourceNames are the sources of this replica, sorted.
	sourceNames []string
	// approvals decides which changes wait for approval.
	approvals *approvals
	// evaluations counts the requests that chains are evaluated for.
	evaluations evaluations
}

// operation returns a function that describes an operation with this tag and middleware.
func operation(
	tag string, middleware ...func(huma.Context, func(huma.Context)),
) func(id, method, path, summary, text string) huma.Operation {
	return func(id, method, path, summary, text string) huma.Operation {
		return huma.Operation{
			OperationID: id, Method: method, Path: path, Tags: []string{tag}, Summary: summary, Description: text,
			Middlewares: middleware,
		}
	}
}

// routesOf returns the routes; r lacks its router.
func routesOf(r *routes) api.Routes {
	return func(router *api.Router) {
		r.Router = router
		r.LimitBody(uploadsPath, "body", manage.MaxChunk)
		r.register()
	}
}

func (r *routes) register() {
	op := operation("lists", r.guard)
	slow := func(o huma.Operation) huma.Operation {
		o.Middlewares = append(o.Middlewares, long(manage.VerifyTimeout)...)
		return o
	}
	huma.Register(r, op("list-lists", http.MethodGet, listsPath, "List the lists", "In the order of their names."), r.lists)
	huma.Register(r, op("get-list", http.MethodGet, listPath, "Show a list", "Its state, and what runs."), r.list)
	huma.Register(r, op("apply-list", http.MethodPut, listPath, "Create a list, or change its settings", "What is fixed at creation must not differ."), r.apply)
	huma.Register(r, op("delete-list", http.MethodDelete, listPath, "Delete a list", "It answers unknown from then on."), r.delete)
	huma.Register(r, op("list-versions", http.MethodGet, listPath+"/versions", "List the versions of a list", "Those that are ready."), r.versions)
	huma.Register(r, op("accept-version", http.MethodPost, versionPath+"/accept", "Accept a version that is in doubt", "It can be switched to then."), r.accept)
	huma.Register(r, slow(op("verify-version", http.MethodPost, versionPath+"/verify", "Read a version back", "All seals, the digest and the filter. What is damaged is marked.")), r.verify)
	huma.Register(r, slow(op("diff-version", http.MethodGet, versionPath+"/diff", "Compare a version with another one", "What a switch from the other one adds, removes and changes, and which edits it takes back.")), r.diff)
	huma.Register(r, op("sample-version", http.MethodGet, versionPath+"/sample", "Show some entries of a version", "Of random segments."), r.sample)
	huma.Register(r, op("list-rejects", http.MethodGet, versionPath+"/rejects", "List the lines that an import refused", "The first 10000, for a day. The replica that had the upload answers; others name it."), r.versionRejects)
	huma.Register(r, op("export-list", http.MethodGet, listPath+"/export", "Export a version of a list", exportText), r.export)
	huma.Register(r, op("list-uploads", http.MethodGet, listPath+"/uploads", "List the uploads of a list", "Lists the uploads of the replica that answers."), r.uploads)
	huma.Register(r, op("list-upload-rejects", http.MethodGet, uploadPath+"/rejects", "List the lines that an import refused", "The first 10000, as long as the upload is there."), r.uploadRejects)
	huma.Register(r, op("open-upload", http.MethodPost, listPath+"/uploads", "Begin an upload", "Its parts go to the replica that answers."), r.openUpload)
	huma.Register(r, op("get-upload", http.MethodGet, uploadPath, "Show an upload", "How far it is, what was refused, and which version it became."), r.upload)
	huma.Register(r, op("put-chunk", http.MethodPut, uploadPath, "Send a part of an upload", "At most 8 MiB. It can be repeated."), r.chunk)
	huma.Register(r, op("commit-upload", http.MethodPost, uploadPath+"/commit", "End an upload, and build its version", "It can be repeated."), r.commitUpload)
	huma.Register(r, op("drop-upload", http.MethodDelete, uploadPath, "Forget an upload", "Its build is cancelled."), r.dropUpload)
	huma.Register(r, op("switch-list", http.MethodPost, listPath+"/switch", "Switch to a version, or roll back", "Clients load it first, for 30 s at most."), r.doSwitch)
	huma.Register(r, op("expand-list", http.MethodPost, listPath+"/expand", "Build a list anew with fitting segments", "And switch to that."), r.expand)
	huma.Register(r, op("move-list", http.MethodPost, listPath+"/move", "Move a list to another server", "And switch to that."), r.move)
	huma.Register(r, op("freeze-list", http.MethodPost, listPath+"/freeze", "Refuse all changes of a list", "It goes on to serve."), r.freeze)
	huma.Register(r, op("unfreeze-list", http.MethodPost, listPath+"/unfreeze", "Allow changes again", "Takes a freeze back."), r.unfreeze)
	huma.Register(r, op("cancel-operation", http.MethodPost, listPath+"/cancel", "End what runs on a list", "The list is as before."), r.cancel)
	huma.Register(r, op("edit-list", http.MethodPost, listPath+"/entries", "Add, change or remove entries", "Readers see all of it at one revision."), r.edit)
	huma.Register(r, op("open-session", http.MethodPost, listPath+"/sessions", "Begin an edit session", "It stages edits, and commits them in one revision."), r.openSession)
	huma.Register(r, op("stage-entries", http.MethodPost, sessionPath, "Stage entries", "Renews the session."), r.stage)
	huma.Register(r, op("commit-session", http.MethodPost, sessionPath+"/commit", "Commit an edit session", "In one revision. It can be repeated."), r.commitSession)
	huma.Register(r, op("cancel-session", http.MethodDelete, sessionPath, "Cancel an edit session", "What it staged is gone."), r.cancelSession)
	huma.Register(r, op("query-list", http.MethodPost, listPath+"/query", "Ask for ids", "All is read from Redis."), r.query)
	huma.Register(r, slow(op("count-list", http.MethodGet, listPath+"/count", "Count the entries of a list", "Of the version, and what edits change in it.")), r.count)
	huma.Register(r, op("list-clients", http.MethodGet, listPath+"/clients", "List the live clients of a list", "Those that have reported within 15 s."), r.clients)
	huma.Register(r, op("collect-lists", http.MethodPost, collectPath, "Remove keys that no list needs", "Looks through a part of the list servers, for about a second, for what builds have left that are neither a version nor running."), r.collect)
	r.registerSources()
	r.document(r.OpenAPI())
	r.registerChains()
	r.registerRequests()
}

// document adds the request bodies, which handlers read themselves.
func (r *routes) document(doc *huma.OpenAPI) {
	doc.Tags = append(doc.Tags, &huma.Tag{Name: "lists", Description: "Name lists, their versions, edits and imports."})
	body := r.body
	body(doc.Paths[listPath].Put, reflect.TypeFor[ListSpec]())
	for path, t := range map[string]reflect.Type{
		"/uploads": reflect.TypeFor[UploadRequest](), "/switch": reflect.TypeFor[ListSwitchRequest](),
		"/expand": reflect.TypeFor[WhyRequest](),
		"/move":   reflect.TypeFor[MoveRequest](), "/freeze": reflect.TypeFor[WhyRequest](),
		"/cancel":  reflect.TypeFor[CancelRequest](),
		"/entries": reflect.TypeFor[EntriesRequest](), "/sessions": reflect.TypeFor[WhyRequest](),
		"/query": reflect.TypeFor[QueryRequest](),
	} {
		body(doc.Paths[listPath+path].Post, t)
	}
	body(doc.Paths[collectPath].Post, reflect.TypeFor[CollectRequest]())
	documentExport(doc.Paths[listPath+"/export"].Get)
	body(doc.Paths[uploadPath+"/commit"].Post, reflect.TypeFor[CommitUploadRequest]())
	body(doc.Paths[sessionPath].Post, reflect.TypeFor[StageRequest]())
	body(doc.Paths[sessionPath+"/commit"].Post, reflect.TypeFor[WhyRequest]())
}

// body documents the body of a request.
func (r *routes) body(op *huma.Operation, t reflect.Type) {
	schema := r.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
	op.RequestBody = &huma.RequestBody{
		Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}},
	}
}

// handle handles an operator's request.
func handle[In, Out any](
	ctx context.Context, r *routes, what string, in *In, do func(context.Context, *In) (Out, error),
) (*output[Out], error) {
	return handleFor(ctx, r, api.CallTimeout, what, in, do)
}

func handleFor[In, Out any](
	ctx context.Context, r *routes, limit time.Duration, what string, in *In, do func(context.Context, *In) (Out, error),
) (*output[Out], error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := do(ctx, in)
	if pending, ok := errors.AsType[*Pending](err); ok {
		return nil, pending
	}
	if err != nil {
		return nil, r.Refuse(what, answerOf(err))
	}
	return &output[Out]{Body: out}, nil
}

// by returns who makes the request, and why.
func (w ByWhom) by(ctx context.Context) namelist.By {
	return namelist.By{Author: api.Author(ctx, w.Author, w.Note), Note: w.Note}
}

func (r *routes) lists(ctx context.Context, in *pageInput) (*output[NameListPage], error) {
	return handle(ctx, r, "list lists", in, func(ctx context.Context, in *pageInput) (page NameListPage, err error) {
		who := api.Caller(ctx)
		heads, err := r.control.Heads(ctx, in.After, in.Limit, func(h *namelist.Head) bool {
			return mayCall(&who.Principal, "get-list", h) == nil
		})
		page.Lists = make([]NameList, len(heads))
		for i := range heads {
			page.Lists[i] = listOf(&heads[i])
		}
		if len(heads) == in.Limit {
			page.After = heads[len(heads)-1].Name
		}
		return page, err
	})
}

func (r *routes) list(ctx context.Context, in *OfList) (*output[NameList], error) {
	return handle(ctx, r, "show the list", in, func(ctx context.Context, in *OfList) (NameList, error) {
		h, err := r.control.Head(ctx, in.List)
		return listOf(&h), err
	})
}

func (r *routes) apply(ctx context.Context, in *bodyInput) (*output[NameList], error) {
	return handle(ctx, r, "apply the list", in, func(ctx context.Context, in *bodyInput) (out NameList, err error) {
		var q ListSpec
		if err := freeslot.DecodeStrict("list", in.RawBody, &q); err != nil {
			return out, err
		}
		h, err := r.control.Head(ctx, in.List)
		switch {
		case freeslot.CodeOf(err) == freeslot.CodeNotFound:
			h, err = r.approvals.create(ctx, in.List, &q)
		case err == nil:
			if err := fixed(&h, &q); err != nil {
				return out, err
			}
			h, err = r.approvals.set(ctx, &h, &q)
		}
		if err != nil {
			return out, err
		}
		out = listOf(&h)
		if h.Expected > 0 {
			segments, bytes := version.Planned(h.Expected, version.PlannedID)
			out.Planned = &Planned{Segments: segments, Bytes: bytes}
		}
		return out, nil
	})
}

// spec returns what the body describes, without its owner.
func (q *ListSpec) spec() (s namelist.Spec, err error) {
	if q.OnExpired != "" && q.OnExpired != "unknown" && q.OnExpired != "no" {
		return s, freeslot.Invalid("on_expired", "is %q, expected unknown or no", q.OnExpired)
	}
	s = namelist.Spec{
		Form: form.Form(q.Form), Server: q.Server, Expected: q.ExpectedIDs,
		Settings: namelist.Settings{Filter: filter.Kind(q.Filter), ExpiredNo: q.OnExpired == "no", Whole: q.Whole},
	}
	if q.ExpiresMS != 0 {
		if err := isTime("expires_ms", q.ExpiresMS); err != nil {
			return s, err
		}
		s.Expires = time.UnixMilli(q.ExpiresMS)
	}
	return s, nil
}

// isTime refuses a number that cannot be a time in ms: seconds since 1970, and durations, are
// smaller.
func isTime(field string, ms int64) error {
	if ms < version.FirstMS {
		return freeslot.Invalid(
			field, "is %d, expected 0 for never, or a time in milliseconds since 1970, which has 12 digits or more", ms,
		)
	}
	return nil
}

func areTimes(entries []namelist.Change) error {
	for i, e := range entries {
		if e.ExpiresMS != 0 {
			if err := isTime(fmt.Sprintf("entries[%d].expires_ms", i), e.ExpiresMS); err != nil {
				return err
			}
		}
	}
	return nil
}

// fixed refuses changes to the settings that are fixed in an existing list.
func fixed(h *namelist.Head, q *ListSpec) error {
	var found freeslot.FieldErrors
	differ := func(field, is, asked string) {
		if asked != "" && asked != is {
			found.Addf(field, "is %q, but list %s was created with %q", asked, h.Name, is)
		}
	}
	differ("form", string(h.Form), q.Form)
	differ("server", h.Server, q.Server)
	differ("application", h.Owner.Application, q.Application)
	if q.ExpectedIDs != 0 && q.ExpectedIDs != h.Expected {
		found.Addf("expected_ids", "is %d, but list %s was created with %d", q.ExpectedIDs, h.Name, h.Expected)
	}
	return found.Err()
}

func (r *routes) delete(ctx context.Context, in *deleteInput) (*output[ListDeleted], error) {
	return handle(ctx, r, "delete the list", in, func(ctx context.Context, in *deleteInput) (ListDeleted, error) {
		return r.approvals.delete(ctx, in.List, deleting{in.Force}, ByWhom{Note: in.Note}.by(ctx))
	})
}

func (r *routes) versions(ctx context.Context, in *OfList) (*output[ListVersions], error) {
	return handle(ctx, r, "list versions", in, func(ctx context.Context, in *OfList) (out ListVersions, err error) {
		if _, err := r.control.Head(ctx, in.List); err != nil {
			return out, err
		}
		out.Versions, err = r.control.Versions(ctx, in.List)
		return out, err
	})
}

func (r *routes) accept(ctx context.Context, in *OfVersion) (*output[ListChanged], error) {
	return handle(ctx, r, "accept the version", in, func(ctx context.Context, in *OfVersion) (ListChanged, error) {
		audit.Of(ctx).Note("", fmt.Sprintf("version %d may serve", in.Version))
		h, err := r.control.Accept(ctx, in.List, in.Version)
		return ListChanged{h.Revision}, err
	})
}

func (r *routes) verify(ctx context.Context, in *OfVersion) (*output[namelist.Version], error) {
	return handleFor(ctx, r, manage.VerifyTimeout, "verify the version", in,
		func(ctx context.Context, in *OfVersion) (namelist.Version, error) {
			return r.manager.Verify(ctx, in.List, in.Version)
		})
}

func (r *routes) uploadOf(u *manage.Upload) ListUpload {
	out := ListUpload{Upload: *u, URL: r.url, MaxChunk: manage.MaxChunk}
	if u.Report != nil {
		report := *u.Report
		report.Rejects = report.Rejects[:min(len(report.Rejects), shownRejects)]
		out.Report = &report
	}
	if p := u.Progress(); u.State == manage.Building && p.Step != "" {
		out.Progress = &BuildProgress{p.Step, p.Done, p.Total}
	}
	return out
}

func (r *routes) openUpload(ctx context.Context, in *bodyInput) (*output[ListUpload], error) {
	return handle(ctx, r, "begin the upload", in, func(ctx context.Context, in *bodyInput) (out ListUpload, err error) {
		var q UploadRequest
		if err := freeslot.DecodeStrict("upload", in.RawBody, &q); err != nil {
			return out, err
		}
		who := api.Caller(ctx)
		if q.Switch {
			h, err := r.control.Head(ctx, in.List)
			if err == nil {
				err = mayCall(&who.Principal, "switch-list", &h)
			}
			if err != nil {
				return out, err
			}
		}
		u, err := r.manager.OpenUpload(
			ctx, manage.Upload{
				List: in.List, Format: q.Format, Mode: q.Mode, Header: q.Header, Switch: q.Switch, By: q.by(ctx),
				Tenant: who.Tenant, Shared: !who.AllTenants,
			},
		)
		return r.uploadOf(&u), err
	})
}

func (r *routes) upload(ctx context.Context, in *OfUpload) (*output[ListUpload], error) {
	return handle(ctx, r, "show the upload", in, func(_ context.Context, in *OfUpload) (ListUpload, error) {
		u, err := r.manager.Upload(in.Upload)
		return r.uploadOf(&u), err
	})
}

func (r *routes) chunk(ctx context.Context, in *chunkInput) (*output[ListUpload], error) {
	return handle(ctx, r, "receive the upload", in, func(_ context.Context, in *chunkInput) (out ListUpload, err error) {
		sum, err := strconv.ParseUint(in.CRC32C, 16, 32)
		if err != nil {
			return out, freeslot.Invalid("crc32c", "is %q, expected 8 hexadecimal digits", in.CRC32C)
		}
		u, err := r.manager.Chunk(in.Upload, in.Offset, in.RawBody, uint32(sum))
		return r.uploadOf(&u), err
	})
}

func (r *routes) commitUpload(ctx context.Context, in *uploadBodyInput) (*output[ListUpload], error) {
	return handle(ctx, r, "commit the upload", in,
		func(ctx context.Context, in *uploadBodyInput) (out ListUpload, err error) {
			var q CommitUploadRequest
			if err := freeslot.DecodeStrict("commit", in.RawBody, &q); err != nil {
				return out, err
			}
			u, err := r.manager.Commit(ctx, in.Upload, q.Bytes)
			return r.uploadOf(&u), err
		})
}

func (r *routes) dropUpload(ctx context.Context, in *OfUpload) (*output[struct{}], error) {
	return handle(ctx, r, "forget the upload", in, func(ctx context.Context, in *OfUpload) (struct{}, error) {
		return struct{}{}, r.manager.DropUpload(ctx, in.Upload)
	})
}

// started returns the answer to a request whose work continues.
func started(op namelist.Operation, err error) (ListStarted, error) {
	return ListStarted{operationOf(&op)}, err
}

func (r *routes) doSwitch(ctx context.Context, in *bodyInput) (*output[ListStarted], error) {
	return handle(ctx, r, "switch the list", in, func(ctx context.Context, in *bodyInput) (out ListStarted, err error) {
		var q ListSwitchRequest
		if err := freeslot.DecodeStrict("switch", in.RawBody, &q); err != nil {
			return out, err
		}
		if q.Version < 1 {
			return out, freeslot.Invalid("version", "is %d, expected the number of a version", q.Version)
		}
		saw := int64(namelist.AnyVersion)
		if q.Serving != nil {
			saw = *q.Serving
		}
		if h, err := r.control.Head(ctx, in.List); err == nil {
			serving, _ := servingOf(&h)
			audit.Of(ctx).Note(fmt.Sprintf("version %d", serving), fmt.Sprintf("version %d", q.Version))
		}
		return started(r.approvals.doSwitch(
			ctx, in.List, api.Caller(ctx).Tenant,
			manage.SwitchRequest{Number: q.Version, Serving: saw, Now: q.Now, By: q.by(ctx)},
		))
	})
}

func (r *routes) expand(ctx context.Context, in *bodyInput) (*output[ListStarted], error) {
	return handle(ctx, r, "expand the list", in, func(ctx context.Context, in *bodyInput) (out ListStarted, err error) {
		var q WhyRequest
		if err := freeslot.DecodeStrict("expand", in.RawBody, &q); err != nil {
			return out, err
		}
		return started(r.manager.Rebuild(ctx, in.List, namelist.OpExpand, "", q.by(ctx)))
	})
}

func (r *routes) move(ctx context.Context, in *bodyInput) (*output[ListStarted], error) {
	return handle(ctx, r, "move the list", in, func(ctx context.Context, in *bodyInput) (out ListStarted, err error) {
		var q MoveRequest
		if err := freeslot.DecodeStrict("move", in.RawBody, &q); err != nil {
			return out, err
		}
		return started(r.manager.Rebuild(ctx, in.List, namelist.OpMove, q.Server, q.by(ctx)))
	})
}

func (r *routes) freeze(ctx context.Context, in *bodyInput) (*output[ListChanged], error) {
	return handle(ctx, r, "freeze the list", in, func(ctx context.Context, in *bodyInput) (out ListChanged, err error) {
		var q WhyRequest
		if err := freeslot.DecodeStrict("freeze", in.RawBody, &q); err != nil {
			return out, err
		}
		h, err := r.control.Freeze(ctx, in.List, q.by(ctx))
		return ListChanged{h.Revision}, err
	})
}

func (r *routes) unfreeze(ctx context.Context, in *OfList) (*output[ListChanged], error) {
	return handle(ctx, r, "unfreeze the list", in, func(ctx context.Context, in *OfList) (ListChanged, error) {
		h, err := r.control.Unfreeze(ctx, in.List)
		return ListChanged{h.Revision}, err
	})
}

func (r *routes) cancel(ctx context.Context, in *bodyInput) (*output[ListChanged], error) {
	return handle(ctx, r, "cancel the operation", in,
		func(ctx context.Context, in *bodyInput) (out ListChanged, err error) {
			var q CancelRequest
			if err := freeslot.DecodeStrict("cancel", in.RawBody, &q); err != nil {
				return out, err
			}
			h, err := r.control.Cancel(ctx, in.List, q.Operation)
			return ListChanged{h.Revision}, err
		})
}

func (r *routes) edit(ctx context.Context, in *bodyInput) (*output[ListChanged], error) {
	return handle(ctx, r, "edit the list", in, func(ctx context.Context, in *bodyInput) (out ListChanged, err error) {
		var q EntriesRequest
		if err := freeslot.DecodeStrict("edit", in.RawBody, &q); err != nil {
			return out, err
		}
		if err := areTimes(q.Entries); err != nil {
			return out, err
		}
		audit.Of(ctx).Note("", edited(q.Entries))
		out.Revision, err = r.approvals.edit(ctx, in.List, &q)
		return out, err
	})
}

// edited says for the audit what an edit changes, without ids.
func edited(entries []namelist.Change) string {
	removed := 0
	for i := range entries {
		if entries[i].Remove {
			removed++
		}
	}
	return fmt.Sprintf("%d added, %d removed", len(entries)-removed, removed)
}

func (r *routes) openSession(ctx context.Context, in *bodyInput) (*output[EditSession], error) {
	return handle(ctx, r, "begin the edit session", in,
		func(ctx context.Context, in *bodyInput) (out EditSession, err error) {
			var q WhyRequest
			if err := freeslot.DecodeStrict("session", in.RawBody, &q); err != nil {
				return out, err
			}
			op, err := r.manager.OpenSession(ctx, in.List, q.by(ctx))
			return EditSession{ID: op.ID, UntilMS: ms(op.Lease)}, err
		})
}

func (r *routes) stage(ctx context.Context, in *sessionBodyInput) (*output[EditSession], error) {
	return handle(ctx, r, "stage entries", in,
		func(ctx context.Context, in *sessionBodyInput) (out EditSession, err error) {
			var q StageRequest
			if err := freeslot.DecodeStrict("stage", in.RawBody, &q); err != nil {
				return out, err
			}
			if err := areTimes(q.Entries); err != nil {
				return out, err
			}
			staged, until, err := r.control.Stage(ctx, in.List, in.Session, q.Entries)
			return EditSession{ID: in.Session, Staged: staged, UntilMS: ms(until)}, err
		})
}

func (r *routes) commitSession(ctx context.Context, in *sessionBodyInput) (*output[ListChanged], error) {
	return handle(ctx, r, "commit the edit session", in,
		func(ctx context.Context, in *sessionBodyInput) (out ListChanged, err error) {
			var q WhyRequest
			if err := freeslot.DecodeStrict("commit", in.RawBody, &q); err != nil {
				return out, err
			}
			out.Revision, err = r.approvals.commit(ctx, in.List, in.Session, q.by(ctx))
			return out, err
		})
}

func (r *routes) cancelSession(ctx context.Context, in *OfSession) (*output[ListChanged], error) {
	return handle(ctx, r, "cancel the edit session", in, func(ctx context.Context, in *OfSession) (ListChanged, error) {
		h, err := r.control.Cancel(ctx, in.List, in.Session)
		return ListChanged{h.Revision}, err
	})
}

func (r *routes) query(ctx context.Context, in *bodyInput) (*output[manage.Answers], error) {
	return handle(ctx, r, "query the list", in, func(ctx context.Context, in *bodyInput) (out manage.Answers, err error) {
		var q QueryRequest
		if err := freeslot.DecodeStrict("query", in.RawBody, &q); err != nil {
			return out, err
		}
		return r.manager.Query(ctx, in.List, q.IDs)
	})
}

func (r *routes) count(ctx context.Context, in *OfList) (*output[manage.Counted], error) {
	return handleFor(ctx, r, manage.VerifyTimeout, "count the list", in,
		func(ctx context.Context, in *OfList) (manage.Counted, error) {
			return r.manager.Count(ctx, in.List)
		})
}

func (r *routes) clients(ctx context.Context, in *OfList) (*output[ListClients], error) {
	return handle(ctx, r, "list clients", in, func(ctx context.Context, in *OfList) (out ListClients, err error) {
		live, _, err := r.control.Clients(ctx, in.List)
		return shownClients(live), err
	})
}

func shownClients(live []namelist.Client) ListClients {
	out := ListClients{Clients: make([]ListClient, len(live))}
	for i, c := range live {
		out.Clients[i] = ListClient{
			ID: c.ID, Owner: c.Owner, SDK: c.SDK, Serves: c.Serves, Loaded: c.Loaded, Revision: c.Revision, AtMS: ms(c.At),
		}
	}
	return out
}

func (r *routes) collect(ctx context.Context, in *struct{ RawBody []byte }) (*output[manage.Collected], error) {
	return handleFor(ctx, r, collectTimeout, "look for keys of lists", in,
		func(ctx context.Context, in *struct{ RawBody []byte }) (out manage.Collected, err error) {
			var q CollectRequest
			if err := freeslot.DecodeStrict("gc", in.RawBody, &q); err != nil {
				return out, err
			}
			if q.DryRun {
				audit.Of(ctx).DryRun()
			}
			return r.manager.Collect(ctx, manage.CollectRequest{Server: q.Server, DryRun: q.DryRun, After: q.After})
		})
}
