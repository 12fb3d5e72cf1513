package server

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/namelist/version"
)

// Headers of an export. Count and sum are trailers: an answer without them is incomplete.
const (
	ExportVersion  = "X-Freeslot-List-Version"
	ExportRevision = "X-Freeslot-List-Revision"
	ExportAt       = "X-Freeslot-At-Ms"
	ExportCount    = "X-Freeslot-Count"
	ExportSHA256   = "X-Freeslot-Sha256"
)

const exportText = "What the list answers, in the order of a random hash. The headers X-Freeslot-List-Version, " +
	"X-Freeslot-List-Revision and " +
	"X-Freeslot-At-Ms (Redis' time) say of when it is; without edits the last two are 0. The trailers X-Freeslot-Count " +
	"and X-Freeslot-Sha256 are of all lines: " +
	"an answer without them was cut, and is not whole."

// documentExport adds the answer, which the handler writes itself.
func documentExport(op *huma.Operation) {
	text := &huma.Schema{Type: huma.TypeString}
	delete(op.Responses, "204") // the framework sees no body
	op.Responses["200"] = &huma.Response{
		Description: "OK", Content: map[string]*huma.MediaType{"text/csv": {Schema: text}, "text/plain": {Schema: text}},
	}
}

// exportPause is how long a client may take no data of its export.
const exportPause = 30 * time.Second

type (
	exportInput struct {
		OfList
		Version int64  `query:"version" minimum:"1" doc:"The number of the version. Absent means the one that serves."`
		Format  string `query:"format" enum:"csv,txt" default:"csv" doc:"csv has id,expiry a line, and an import reads it again; txt has an id a line, without expiries."`
		Edits   bool   `query:"edits" default:"true" doc:"Whether the list's edits above the version's base are applied, and what has expired is left out."`
	}
	diffInput struct {
		OfVersion
		With     int64 `query:"with" minimum:"1" doc:"The version to compare with. Absent means the one that serves."`
		Examples int   `query:"examples" minimum:"0" maximum:"10000" default:"100" doc:"How many of each kind are named."`
	}
	sampleInput struct {
		OfVersion
		Count int `query:"count" minimum:"1" maximum:"1000" default:"20"`
	}
)

type (
	// PageOfLines is a page of lines.
	PageOfLines struct {
		After int64 `query:"after" minimum:"0" doc:"The last line of the page before."`
		Limit int   `query:"limit" minimum:"1" maximum:"10000" default:"1000"`
	}
	uploadRejectsInput struct {
		OfUpload
		PageOfLines
	}
	versionRejectsInput struct {
		OfVersion
		PageOfLines
	}
)

// ListSample holds some entries of a version.
type ListSample struct {
	Entries []namelist.Entry `json:"entries" doc:"In random order."`
}

// long allows an answer to come later than the server's deadline for answers.
func long(limit time.Duration) huma.Middlewares {
	return huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		_, w := humago.Unwrap(ctx)
		// The writer of httptest has no deadlines, but the server's has.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit + api.CallTimeout))
		next(ctx)
	}}
}

func (r *routes) export(_ context.Context, in *exportInput) (*huma.StreamResponse, error) {
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		ctx, cancel := context.WithCancel(hctx.Context())
		var ended sync.WaitGroup
		defer ended.Wait()
		defer cancel()
		_, w := humago.Unwrap(hctx)
		x := &exportAnswer{hctx: hctx, ctx: ctx, in: in, control: http.NewResponseController(w)}
		ended.Go(func() {
			select {
			case <-r.Draining():
				cancel()
				_ = x.control.SetWriteDeadline(time.Now()) // otherwise a replica that stops would wait for a slow client
			case <-ctx.Done():
			}
		})
		got, err := r.manager.Export(
			ctx, in.List, manage.ExportRequest{Version: in.Version, Format: version.Format(in.Format), Bare: !in.Edits}, x.begin,
		)
		switch {
		case err == nil:
			hctx.SetHeader(ExportCount, strconv.FormatInt(got.Count, 10))
			hctx.SetHeader(ExportSHA256, hex.EncodeToString(got.SHA256))
		case x.begun:
			panic(http.ErrAbortHandler) // cuts the answer off, so that no client takes it for complete
		default:
			refuse(hctx, r.Refuse("export the list", answerOf(err)))
		}
	}}, nil
}

// refuse answers with an error if the framework expects a stream.
func refuse(hctx huma.Context, err error) {
	status := http.StatusInternalServerError
	var e huma.StatusError
	if errors.As(err, &e) {
		status = e.GetStatus()
	}
	hctx.SetHeader("Content-Type", "application/json")
	hctx.SetStatus(status)
	_ = json.NewEncoder(hctx.BodyWriter()).Encode(err) // the client may be gone
}

// exportAnswer is the answer to an export.
type exportAnswer struct {
	hctx    huma.Context
	ctx     context.Context // of the export that this is the state of
	in      *exportInput
	control *http.ResponseController
	begun   bool
}

func (x *exportAnswer) begin(of manage.Exported) io.Writer {
	x.begun = true
	kind := "text/csv"
	if x.in.Format == string(version.TXT) {
		kind = "text/plain"
	}
	for name, value := range map[string]string{
		"Content-Type": kind + "; charset=utf-8", "Trailer": ExportCount + ", " + ExportSHA256,
		"Content-Disposition": fmt.Sprintf(`attachment; filename="%s-%d.%s"`, x.in.List, of.Version, x.in.Format),
		ExportVersion:         strconv.FormatInt(of.Version, 10),
		ExportRevision:        strconv.FormatInt(of.Revision, 10),
		ExportAt:              strconv.FormatInt(of.AtMS, 10),
	} {
		x.hctx.SetHeader(name, value)
	}
	x.hctx.SetStatus(http.StatusOK)
	return x
}

func (x *exportAnswer) Write(p []byte) (int, error) {
	// The writer of httptest has no deadlines, but the server's has.
	_ = x.control.SetWriteDeadline(time.Now().Add(exportPause))
	if x.ctx.Err() != nil {
		return 0, x.ctx.Err()
	}
	return x.hctx.BodyWriter().Write(p)
}

func (r *routes) diff(ctx context.Context, in *diffInput) (*output[manage.ListDiff], error) {
	return handleFor(ctx, r, manage.VerifyTimeout, "compare versions", in,
		func(ctx context.Context, in *diffInput) (manage.ListDiff, error) {
			return r.manager.Diff(ctx, in.List, in.Version, in.With, in.Examples)
		})
}

func (r *routes) sample(ctx context.Context, in *sampleInput) (*output[ListSample], error) {
	return handle(ctx, r, "sample the version", in,
		func(ctx context.Context, in *sampleInput) (out ListSample, err error) {
			out.Entries, err = r.manager.Sample(ctx, in.List, in.Version, in.Count)
			return out, err
		})
}

func (r *routes) uploadRejects(ctx context.Context, in *uploadRejectsInput) (*output[manage.Rejects], error) {
	return handle(ctx, r, "show rejected lines", in,
		func(_ context.Context, in *uploadRejectsInput) (manage.Rejects, error) {
			return r.manager.Rejects(in.Upload, in.After, in.Limit)
		})
}

func (r *routes) versionRejects(ctx context.Context, in *versionRejectsInput) (*output[manage.Rejects], error) {
	return handle(ctx, r, "show rejected lines", in,
		func(ctx context.Context, in *versionRejectsInput) (manage.Rejects, error) {
			return r.manager.RejectsOf(ctx, in.List, in.Version, in.After, in.Limit)
		})
}

func (r *routes) uploads(ctx context.Context, in *OfList) (*output[ListUploads], error) {
	return handle(ctx, r, "list uploads", in, func(ctx context.Context, in *OfList) (out ListUploads, err error) {
		if _, err := r.control.Head(ctx, in.List); err != nil {
			return out, err
		}
		out.Uploads = []ListUpload{}
		for _, u := range r.manager.Uploads(in.List) {
			out.Uploads = append(out.Uploads, r.uploadOf(&u))
		}
		return out, nil
	})
}

// answerOf adds a code to the errors of a manager.
func answerOf(err error) error {
	if damage, ok := errors.AsType[*version.DamageError](err); ok {
		return &freeslot.Error{Code: freeslot.CodeConflict, Message: damage.Error()}
	}
	if elsewhere, ok := errors.AsType[*manage.ElsewhereError](err); ok {
		return &freeslot.Error{Code: freeslot.CodeNotFound, Field: "upload", Message: elsewhere.Error()}
	}
	return err
}
