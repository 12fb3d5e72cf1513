package server

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/registry"
)

const (
	configsPath = adminPath + "/config"
	configPath  = configsPath + "/{name}"
	// documentPath is not below /v1/config: a document may be named history, like a route there.
	documentPath = "/v1/documents/{name}"
	// maxConfigBody is the largest body of a change: JSON may need six bytes for one.
	maxConfigBody = 6 * registry.MaxDocument
)

// documents lists the methods of *registry.Store that the routes call.
type documents interface {
	// Documents returns a page of documents sorted by name, without contents.
	Documents(ctx context.Context, after string, limit int) ([]registry.Document, error)
	Document(ctx context.Context, name string, version int64) (registry.Document, error)
	DocumentHistory(ctx context.Context, name string) ([]registry.DocumentVersion, error)
	PutDocument(ctx context.Context, name string, seen int64, content, author, note string) (version int64, err error)
	RollbackDocument(ctx context.Context, name string, seen, restore int64, author, note string) (version int64, err error)
	DeleteDocument(ctx context.Context, name string, seen int64) error
}

type (
	// OfDocument names a document. It is exported because huma ignores unexported parts of
	// requests.
	OfDocument struct {
		Name string `path:"name" doc:"The name of the document."`
	}
	documentInput struct {
		OfDocument
		Version int64 `query:"version" minimum:"0" doc:"A version of the history. Absent means the newest."`
	}
	documentDiffInput struct {
		OfDocument
		From int64 `query:"from" minimum:"0" doc:"Absent means the version before to; where there is none, all is new."`
		To   int64 `query:"to" minimum:"0" doc:"Absent means the newest."`
	}
	documentBodyInput struct {
		OfDocument
		RawBody []byte
	}
	documentDeleteInput struct {
		OfDocument
		Version int64 `query:"version" required:"true" minimum:"1" doc:"The version that the caller saw. Another one is a conflict."`
	}
	documentWaitInput struct {
		OfDocument
		Version int64 `query:"version" minimum:"0" doc:"With wait_ms: the version that the caller has, 0 for none. The answer comes once there is another one."`
		WaitMS  int64 `query:"wait_ms" minimum:"0" maximum:"60000" doc:"How long to wait for another version. Absent means not at all."`
	}
)

// ConfigDocumentVersion describes a version of a document.
type ConfigDocumentVersion struct {
	// The tags document Version and the rest for readers of the API.
	Version  int64  `json:"version"`
	Author   string `json:"author,omitempty" doc:"Tenant of the token, and who the caller said to be."`
	Note     string `json:"note,omitempty"`
	AtMS     int64  `json:"at_ms" doc:"The store's clock when it was written, in milliseconds since 1970."`
	Restores int64  `json:"restores,omitempty" doc:"The version whose content this is, after a rollback."`
	Bytes    int    `json:"bytes" doc:"Length of the content."`
}

// ConfigDocument is a named document.
type ConfigDocument struct {
	Name string `json:"name"`
	ConfigDocumentVersion
	Content string `json:"content"`
}

// ConfigDocumentHead is a document in a list.
type ConfigDocumentHead struct {
	Name    string `json:"name"`
	Version int64  `json:"version"`
	AtMS    int64  `json:"at_ms"`
}

// ConfigDocumentPage is one page of documents.
type ConfigDocumentPage struct {
	Documents []ConfigDocumentHead `json:"documents"`
	// The tag documents After for readers of the API.
	After string `json:"after,omitempty" doc:"Continues the listing; absent at its end."`
}

// ConfigDocumentHistory holds the versions that are kept.
type ConfigDocumentHistory struct {
	Versions []ConfigDocumentVersion `json:"versions" doc:"The newest first; the last 100, and at most 10 MiB of them."`
}

// ConfigDocumentDiff is the difference of two versions.
type ConfigDocumentDiff struct {
	From int64 `json:"from" doc:"0: compared with nothing."`
	To   int64 `json:"to"`
	// The tag documents Diff for readers of the API.
	Diff string `json:"diff" doc:"The lines that differ as diff -u shows them, without names; empty where none does."`
}

// ConfigDocumentUpdate is the body of a change.
type ConfigDocumentUpdate struct {
	// The tags document Version and the rest for readers of the API.
	Version *int64  `json:"version" doc:"The version that the change was made from, 0 for a new document. Another one is a conflict."`
	Content *string `json:"content" doc:"Text of at most 1 MiB."`
	Author  string  `json:"author,omitempty" doc:"Who; the tenant of the token is put before it."`
	Note    string  `json:"note,omitempty" doc:"Why; at most 256 bytes."`
}

// ConfigDocumentRollback is the body of a rollback.
type ConfigDocumentRollback struct {
	// The tags document Version and the rest for readers of the API.
	Version *int64 `json:"version" doc:"The current version, as in a change."`
	Restore int64  `json:"restore" doc:"The version of the history whose content becomes the newest version."`
	Author  string `json:"author,omitempty" doc:"Who; the tenant of the token is put before it."`
	Note    string `json:"note,omitempty" doc:"Why; at most 256 bytes."`
}

// ConfigDocumentChanged is the answer to a change.
type ConfigDocumentChanged struct {
	Version int64 `json:"version" doc:"The newest version, which has the content."`
}

func (r *routes) registerConfigs() {
	r.LimitBody(configsPath+"/", "content", maxConfigBody)
	op := func(id, method, path, summary, text string) huma.Operation {
		return huma.Operation{
			OperationID: id, Method: method, Path: path, Tags: []string{"registry"}, Summary: summary, Description: text,
		}
	}
	huma.Register(r, op("list-config-documents", http.MethodGet, configsPath, "List configuration documents", "In the order of their names."), r.listDocuments)
	huma.Register(r, op("get-config-document", http.MethodGet, configPath, "Read a configuration document", ""), r.getDocument)
	huma.Register(r, op("list-config-document-versions", http.MethodGet, configPath+"/history", "List the versions of a configuration document", ""), r.documentHistory)
	huma.Register(r, op("diff-config-document", http.MethodGet, configPath+"/diff", "Compare two versions of a configuration document", ""), r.documentDiff)
	huma.Register(r, op("put-config-document", http.MethodPut, configPath, "Write a configuration document",
		"Content that is the newest already is no new version."), r.putDocument)
	huma.Register(r, op("rollback-config-document", http.MethodPost, configPath+"/rollback", "Write an old version of a configuration document as the newest", ""), r.rollbackDocument)
	huma.Register(r, op("delete-config-document", http.MethodDelete, configPath, "Delete a configuration document with its history", ""), r.deleteDocument)
	huma.Register(r, op("read-document", http.MethodGet, documentPath, "Read a configuration document, or wait for another version",
		"For programs that have no package of the registry."), r.readDocument)
}

func shownVersion(v *registry.DocumentVersion) ConfigDocumentVersion {
	return ConfigDocumentVersion{
		Version: v.Version, Author: v.Author, Note: v.Note, AtMS: v.At.UnixMilli(), Restores: v.Restores, Bytes: v.Bytes,
	}
}

func shownDocument(d *registry.Document) ConfigDocument {
	return ConfigDocument{Name: d.Name, ConfigDocumentVersion: shownVersion(&d.DocumentVersion), Content: d.Content}
}

func (r *routes) listDocuments(ctx context.Context, in *pageInput) (*output[ConfigDocumentPage], error) {
	return handle(ctx, r, "list documents", in,
		func(ctx context.Context, in *pageInput) (page ConfigDocumentPage, err error) {
			found, err := r.store.Documents(ctx, in.After, in.Limit)
			page.Documents = []ConfigDocumentHead{}
			for i := range found {
				if d := &found[i]; d.Version > 0 { // else it was removed meanwhile
					page.Documents = append(
						page.Documents, ConfigDocumentHead{Name: d.Name, Version: d.Version, AtMS: d.At.UnixMilli()},
					)
				}
			}
			if len(found) == in.Limit {
				page.After = found[in.Limit-1].Name
			}
			return page, err
		})
}

func (r *routes) getDocument(ctx context.Context, in *documentInput) (*output[ConfigDocument], error) {
	return handle(ctx, r, "document", in, func(ctx context.Context, in *documentInput) (out ConfigDocument, err error) {
		d, err := r.store.Document(ctx, in.Name, in.Version)
		return shownDocument(&d), err
	})
}

func (r *routes) documentHistory(ctx context.Context, in *OfDocument) (*output[ConfigDocumentHistory], error) {
	return handle(ctx, r, "history of the document", in,
		func(ctx context.Context, in *OfDocument) (out ConfigDocumentHistory, err error) {
			found, err := r.store.DocumentHistory(ctx, in.Name)
			for i := range found {
				out.Versions = append(out.Versions, shownVersion(&found[i]))
			}
			return out, err
		})
}

func (r *routes) documentDiff(ctx context.Context, in *documentDiffInput) (*output[ConfigDocumentDiff], error) {
	return handle(ctx, r, "difference of the document", in,
		func(ctx context.Context, in *documentDiffInput) (out ConfigDocumentDiff, err error) {
			to, err := r.store.Document(ctx, in.Name, in.To)
			if err != nil {
				return out, err
			}
			out.From, out.To = in.From, to.Version
			if in.From == 0 {
				out.From = to.Version - 1
			}
			var from registry.Document
			if out.From > 0 {
				from, err = r.store.Document(ctx, in.Name, out.From)
			}
			if in.From == 0 && freeslot.CodeOf(err) == freeslot.CodeNotFound {
				out.From, err = 0, nil // there was nothing before the first version
			}
			if err != nil {
				return out, err
			}
			out.Diff = diffText(from.Content, to.Content)
			return out, nil
		})
}

func (r *routes) putDocument(ctx context.Context, in *documentBodyInput) (*output[ConfigDocumentChanged], error) {
	return handle(ctx, r, "write the document", in,
		func(ctx context.Context, in *documentBodyInput) (out ConfigDocumentChanged, err error) {
			var q ConfigDocumentUpdate
			if err := freeslot.DecodeStrict("document", in.RawBody, &q); err != nil {
				return out, err
			}
			var found freeslot.FieldErrors
			if q.Version == nil {
				found.Addf("version", "is absent, expected the version that the change was made from, 0 for a new document")
			}
			if q.Content == nil {
				found.Addf("content", "is absent")
			}
			if err := found.Err(); err != nil {
				return out, err
			}
			out.Version, err = r.store.PutDocument(
				ctx, in.Name, *q.Version, *q.Content, api.Author(ctx, q.Author, q.Note), q.Note,
			)
			return out, err
		})
}

func (r *routes) rollbackDocument(ctx context.Context, in *documentBodyInput) (*output[ConfigDocumentChanged], error) {
	return handle(ctx, r, "roll the document back", in,
		func(ctx context.Context, in *documentBodyInput) (out ConfigDocumentChanged, err error) {
			var q ConfigDocumentRollback
			if err := freeslot.DecodeStrict("rollback", in.RawBody, &q); err != nil {
				return out, err
			}
			if q.Version == nil {
				return out, freeslot.Invalid("version", "is absent, expected the current version")
			}
			out.Version, err = r.store.RollbackDocument(
				ctx, in.Name, *q.Version, q.Restore, api.Author(ctx, q.Author, q.Note), q.Note,
			)
			return out, err
		})
}

func (r *routes) deleteDocument(ctx context.Context, in *documentDeleteInput) (*output[struct{}], error) {
	return handle(ctx, r, "delete the document", in,
		func(ctx context.Context, in *documentDeleteInput) (out struct{}, err error) {
			return out, r.store.DeleteDocument(ctx, in.Name, in.Version)
		})
}

func (r *routes) readDocument(ctx context.Context, in *documentWaitInput) (*output[ConfigDocument], error) {
	found, err := r.awaited(ctx, in)
	if err != nil {
		return nil, r.Refuse("read document", err)
	}
	return &output[ConfigDocument]{Body: shownDocument(&found)}, nil
}

// awaited returns a document once its version differs from the caller's, or when the time is up.
func (r *routes) awaited(ctx context.Context, in *documentWaitInput) (registry.Document, error) {
	if in.WaitMS > 0 {
		waiting, cancel := context.WithTimeout(ctx, time.Duration(in.WaitMS)*time.Millisecond)
		defer cancel()
		found, err := r.consumer.AwaitDocument(waiting, in.Name, in.Version)
		// If the wait is over before the first reading, the reading below gives the answer.
		if late := waiting.Err() != nil && ctx.Err() == nil; found.Version > 0 || err != nil && !late {
			return found, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	return r.store.Document(ctx, in.Name, 0)
}

// describeConfigs adds to the OpenAPI document what the Go types cannot express.
func describeConfigs(body func(op *huma.Operation, t reflect.Type, name string), doc *huma.OpenAPI) {
	body(doc.Paths[configPath].Put, reflect.TypeFor[ConfigDocumentUpdate](), "ConfigDocumentUpdate")
	body(doc.Paths[configPath+"/rollback"].Post, reflect.TypeFor[ConfigDocumentRollback](), "ConfigDocumentRollback")
}
