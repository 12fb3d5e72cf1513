package reader

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/count"
	"github.com/freeslot/freeslot/internal/namelist/version"
)

const (
	marksPath   = "/v1/list-marks"
	reportsPath = "/v1/list-reports"
	chainPath   = "/v1/chains/{chain}"
	listPath    = "/v1/lists/{list}"
	checkPath   = listPath + "/check"
	versionPath = listPath + "/versions/{version}"
	// maxMarks and maxReports bound bodies: names and marks of 1,000 lists, reports of 100 lists.
	maxMarks   = 512 << 10
	maxReports = 256 << 10
	// maxLoaded is the largest number of versions in a report, maxText the length limit of its
	// texts.
	maxLoaded = 16
	maxText   = 64
)

type (
	// OfList names a list. It is exported because huma ignores unexported parts of requests.
	OfList struct {
		List string `path:"list" doc:"The name of the list."`
	}
	// OfBuild names a build of a list.
	OfBuild struct {
		OfList
		Version int64  `path:"version" minimum:"1" doc:"The number of the version."`
		Build   string `query:"build" required:"true" minLength:"32" maxLength:"32" doc:"Its build id. With another one, or when the version is gone, the answer is conflict for the field build: read the head again."`
	}
	changesInput struct {
		OfList
		After  int64 `query:"after" minimum:"0" doc:"The revision that the caller knows."`
		WaitMS int64 `query:"wait_ms" minimum:"0" maximum:"30000" doc:"How long to wait for another revision than after. Absent means not at all."`
	}
	blockInput struct {
		OfBuild
		Index uint32 `path:"index" doc:"The index of the block."`
		Known string `header:"If-None-Match" doc:"The ETag that the caller has."`
	}
	blockOutput struct {
		Status      int
		ETag        string `header:"ETag"`
		ContentType string `header:"Content-Type"`
		Body        []byte
	}
	// OfChain names a chain.
	OfChain struct {
		Chain string `path:"chain" doc:"The name of the chain."`
	}
	bodyInput  struct{ RawBody []byte }
	checkInput struct {
		OfList
		RawBody []byte
	}
	output[T any] struct{ Body T }
)

// routes answers the requests of one server.
type routes struct {
	*api.Router
	*Reader
}

// Routes registers the routes of readers. Any valid token may use them.
func (r *Reader) Routes(router *api.Router) {
	to := &routes{router, r}
	router.LimitBody(marksPath, "lists", maxMarks)
	router.LimitBody(reportsPath, "lists", maxReports)
	op := func(id, method, path, summary, text string) huma.Operation {
		return huma.Operation{
			OperationID: id, Method: method, Path: path, Tags: []string{"lists"}, Summary: summary,
			Description: text + "",
		}
	}
	huma.Register(to, op("list-marks", http.MethodPost, marksPath, "Compare many lists", "What they are at; with wait_ms, once one differs from what the caller knows."), to.marks)
	huma.Register(to, op("list-changes", http.MethodGet, listPath+"/changes", "Read the head of a list and its edits", "Those after a revision, a page at a time."), to.changes)
	large := func(op huma.Operation) huma.Operation {
		op.Middlewares = huma.Middlewares{to.hold}
		return op
	}
	huma.Register(to, large(op("get-block", http.MethodGet, versionPath+"/blocks/{index}", "Load a block of a version's filter", "In its wire form.")), to.block)
	huma.Register(to, large(op("list-ids", http.MethodGet, versionPath+"/ids", "Load all ids of a version", "Of one with up to 100000.")), to.ids)
	huma.Register(to, op("check-list", http.MethodPost, checkPath, "Ask the segments of a version for ids", "Edits are the caller's to ask first."), to.ask)
	huma.Register(to, op("report-lists", http.MethodPost, reportsPath, "Report what a client has loaded and serves", "Each 5 s, and after each change: switches wait for live clients."), to.report)
	huma.Register(to, op("get-chain", http.MethodGet, chainPath, "Read a chain", "The version that serves, and its shadow. Its mark in list-marks changes with it."), to.chain)
	doc := router.OpenAPI()
	for path, t := range map[string]reflect.Type{
		marksPath: reflect.TypeFor[namelist.ListMarksRequest](), checkPath: reflect.TypeFor[namelist.ListCheck](),
		reportsPath: reflect.TypeFor[namelist.ListReports](),
	} {
		schema := doc.Components.Schemas.Schema(t, true, t.Name())
		doc.Paths[path].Post.RequestBody = &huma.RequestBody{
			Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}},
		}
	}
	block := doc.Paths[versionPath+"/blocks/{index}"].Get
	block.Responses["200"].Content = map[string]*huma.MediaType{
		"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
	}
	block.Responses["304"] = &huma.Response{Description: "The caller has it."}
}

// answer returns the answer of a handler.
func answer[T any](r *routes, what string, out T, err error) (*output[T], error) {
	if err != nil {
		return nil, r.Refuse(what, err)
	}
	return &output[T]{Body: out}, nil
}

// named checks names of lists, and marks of chains, which are the keys of the field lists of a
// body. The caller's scope must have them.
func named[T any](ctx context.Context, lists map[string]T, most int) error {
	if len(lists) == 0 || len(lists) > most {
		return freeslot.Invalid("lists", "are %d, expected 1 to %d", len(lists), most)
	}
	for name := range lists {
		if err := namelist.ValidateMark(fmt.Sprintf("lists[%.80q]", name), name); err != nil {
			return err
		}
		chain, _ := namelist.ChainOf(name)
		if err := api.Caller(ctx).Reaches(identity.Lists, chain); err != nil {
			return err
		}
	}
	return nil
}

func (r *routes) marks(ctx context.Context, in *bodyInput) (*output[namelist.ListMarks], error) {
	var q namelist.ListMarksRequest
	var out namelist.ListMarks
	err := freeslot.DecodeStrict("marks", in.RawBody, &q)
	wait := time.Duration(q.WaitMS) * time.Millisecond
	if err == nil {
		err = named(ctx, q.Lists, namelist.LookLists)
	}
	if err == nil && (wait < 0 || wait > namelist.MaxWait) {
		err = freeslot.Invalid("wait_ms", "is %d, expected 0 to %d", q.WaitMS, namelist.MaxWait.Milliseconds())
	}
	if err == nil {
		out, err = r.hub.await(ctx, q.Lists, q.History, wait, r.Draining())
	}
	return answer(r, "marks of lists", out, err)
}

func (r *routes) changes(ctx context.Context, in *changesInput) (*output[namelist.ListDelta], error) {
	d, err := r.delta(ctx, in)
	if err == nil && in.WaitMS > 0 && d.Head.Revision == in.After {
		known := namelist.Mark{Revision: in.After}
		if d.Head.State == namelist.Deleted { // it has no mark
			known = namelist.Mark{}
		}
		wait := time.Duration(in.WaitMS) * time.Millisecond
		if _, err = r.hub.await(ctx, map[string]namelist.Mark{in.List: known}, false, wait, r.Draining()); err == nil {
			d, err = r.delta(ctx, in)
		}
	}
	return answer(r, "changes of the list", d.Wire(), err)
}

func (r *routes) delta(ctx context.Context, in *changesInput) (namelist.Delta, error) {
	if err := namelist.ValidateName("list", in.List); err != nil {
		return namelist.Delta{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	return r.control.Delta(ctx, in.List, in.After, true)
}

func (r *routes) chain(ctx context.Context, in *OfChain) (*output[namelist.ChainDocument], error) {
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	found, err := r.control.Chain(ctx, in.Chain)
	return answer(r, "read the chain", found.Wire(), err)
}

func (r *routes) block(ctx context.Context, in *blockInput) (*blockOutput, error) {
	out := &blockOutput{
		Status: http.StatusOK, ETag: fmt.Sprintf(`"%s-%d"`, in.Build, in.Index), ContentType: "application/octet-stream",
	}
	if in.Known == out.ETag { // a build never changes
		out.Status = http.StatusNotModified
		return out, nil
	}
	id := buildID{list: in.List, number: in.Version, build: in.Build}
	wire, err := load(ctx, r.Reader, id, func(ctx context.Context, k *known, server *version.Segments) ([]byte, error) {
		return server.Block(ctx, in.List, &k.version, in.Index)
	})
	if err == nil && wire == nil {
		err = &freeslot.Error{
			Code:    freeslot.CodeNotFound,
			Message: fmt.Sprintf("version %d of list %s has no block %d", in.Version, in.List, in.Index),
		}
	}
	if err != nil {
		return nil, r.Refuse("block of the list", err)
	}
	out.Body = wire
	return out, nil
}

func (r *routes) ids(ctx context.Context, in *OfBuild) (*output[namelist.ListIDs], error) {
	id := buildID{list: in.List, number: in.Version, build: in.Build}
	ids, err := load(ctx, r.Reader, id,
		func(ctx context.Context, k *known, server *version.Segments) (map[string]int64, error) {
			if k.version.Count > namelist.MaxWhole {
				return nil, freeslot.Invalid("version", "has %d ids, expected at most %d", k.version.Count, namelist.MaxWhole)
			}
			return server.Whole(ctx, in.List, &k.version)
		})
	return answer(r, "ids of the list", namelist.ListIDs{IDs: ids}, err)
}

func (r *routes) ask(ctx context.Context, in *checkInput) (*output[namelist.ListChecked], error) {
	var q namelist.ListCheck
	var out namelist.ListChecked
	err := freeslot.DecodeStrict("check", in.RawBody, &q)
	switch {
	case err != nil:
	case len(q.IDs) == 0 || len(q.IDs) > namelist.MaxCheck:
		err = freeslot.Invalid("ids", "are %d, expected 1 to %d", len(q.IDs), namelist.MaxCheck)
	default:
		ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
		defer cancel()
		out.Found, err = r.check(ctx, buildID{list: in.List, number: q.Version, build: q.Build}, q.IDs)
	}
	return answer(r, "check ids of the list", out, err)
}

func (r *routes) report(ctx context.Context, in *bodyInput) (*output[namelist.ListReported], error) {
	var q namelist.ListReports
	var out namelist.ListReported
	err := freeslot.DecodeStrict("report", in.RawBody, &q)
	if err == nil {
		err = named(ctx, q.Lists, namelist.ReportLists)
	}
	for name, report := range q.Lists {
		if err == nil && report.Counts != "" {
			if bad := counts(name, report.Counts); bad != nil {
				err = freeslot.Invalid("lists."+name+".counts", "%v", bad)
			}
		}
		if err == nil && (len(report.Loaded) > maxLoaded || len(report.SDK) > maxText || len(report.Birth) > maxText) {
			err = freeslot.Invalid("lists."+name,
				"has %d loaded versions, and sdk or birth of %d or %d bytes, expected at most %d, %d and %d",
				len(report.Loaded), len(report.SDK), len(report.Birth), maxLoaded, maxText, maxText)
		}
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
		defer cancel()
		caller := api.Caller(ctx)
		owner := namelist.Owner{Tenant: caller.Tenant, Name: caller.Name}
		out.Refused, err = r.control.Relay(ctx, owner, q.Client, q.Lists)
	}
	return answer(r, "report of a client", out, err)
}

// counts checks what a client has counted of a list, or of a chain by its mark.
func counts(mark, text string) (err error) {
	if _, isChain := namelist.ChainOf(mark); isChain {
		_, err = count.ParseRuleReport(text)
	} else {
		_, err = count.ParseReport(text)
	}
	return err
}
