package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/chain"
)

const (
	chainsPath = "/v1/chains"
	chainPath  = chainsPath + "/{chain}"
	// maxChainBody is the largest body of a change: JSON may need six bytes for one of the document.
	maxChainBody = 6 * namelist.MaxChain
)

type (
	// OfChain names a chain. It is exported because huma ignores unexported parts of requests.
	OfChain struct {
		Chain string `path:"chain" doc:"The name of the chain."`
	}
	chainVersionInput struct {
		OfChain
		Version int64 `path:"version" minimum:"1" doc:"The number of the version."`
	}
	chainDiffInput struct {
		OfChain
		From int64 `query:"from" minimum:"0" doc:"Absent means the version before to; where there is none, all is new."`
		To   int64 `query:"to" minimum:"0" doc:"Absent means the version that serves."`
	}
	chainBodyInput struct {
		OfChain
		RawBody []byte
	}
	chainDeleteInput struct {
		OfChain
		Version int64  `query:"version" required:"true" minimum:"1" doc:"The version that the caller saw. Another one is a conflict."`
		Note    string `query:"note" maxLength:"256" doc:"Why."`
	}
)

// ChainHead is a chain in a list.
type ChainHead struct {
	Name string `json:"name"`
	namelist.ChainVersion
	// The tag documents Shadowed for readers of the API.
	Shadowed bool `json:"shadowed,omitempty" doc:"Whether another document is evaluated beside it."`
}

// ChainPage is one page of chains.
type ChainPage struct {
	Chains []ChainHead `json:"chains"`
	// The tag documents After for readers of the API.
	After string `json:"after,omitempty" doc:"Continues the listing; absent at its end."`
}

// ChainVersions holds the versions of a chain that are kept.
type ChainVersions struct {
	Versions []namelist.ChainVersion `json:"versions" doc:"The newest first; the last 100, and at most 10 MiB of them."`
}

// ChainVersionShown is one version of a chain with its document.
type ChainVersionShown struct {
	namelist.ChainVersion
	Document json.RawMessage `json:"document"`
}

// ChainDiff holds what differs between two versions.
type ChainDiff struct {
	// The tags document From and the rest for readers of the API.
	From    int64              `json:"from" doc:"0: compared with nothing."`
	To      int64              `json:"to"`
	Changes []ChainFieldChange `json:"changes" doc:"By field; rules are compared by name."`
}

// ChainFieldChange is one difference, under a name of its own in the OpenAPI document.
type ChainFieldChange chain.Change

// String returns the difference in a line.
func (c ChainFieldChange) String() string { return chain.Change(c).String() }

// ChainUpdate is the body of a new version, and of a shadow.
type ChainUpdate struct {
	// The tags document Version and the rest for readers of the API.
	Version  *int64          `json:"version" doc:"The version that the change was made from, 0 for a new chain. Another one is a conflict."`
	Document json.RawMessage `json:"document,omitempty" doc:"The document; its rules are in docs/namelist.md. Of a shadow, absent ends it."`
	ByWhom
}

// ChainRollback is the body of a rollback.
type ChainRollback struct {
	// The tags document Version and the rest for readers of the API.
	Version *int64 `json:"version" doc:"The version that serves. Another one is a conflict."`
	Restore int64  `json:"restore" doc:"The version whose document becomes the newest version."`
	ByWhom
}

// ChainChanged is the answer to a change.
type ChainChanged struct {
	Version int64 `json:"version" doc:"The version that serves."`
}

func (r *routes) registerChains() {
	r.LimitBody(chainsPath+"/", "document", maxChainBody)
	op := operation("chains")
	huma.Register(r, op("list-chains", http.MethodGet, chainsPath, "List the chains", "In the order of their names."), r.chains)
	huma.Register(r, op("put-chain", http.MethodPut, chainPath, "Write a version of a chain", "It serves at once, and ends a shadow. A document that serves already is no new version."), r.putChain)
	huma.Register(r, op("delete-chain", http.MethodDelete, chainPath, "Delete a chain with its history", "It decides unknown from then on."), r.deleteChain)
	huma.Register(r, op("list-chain-versions", http.MethodGet, chainPath+"/versions", "List the versions of a chain", "Those that are kept."), r.chainVersions)
	huma.Register(r, op("get-chain-version", http.MethodGet, chainPath+"/versions/{version}", "Read a version of a chain", "With its document."), r.chainVersion)
	huma.Register(r, op("list-chain-clients", http.MethodGet, chainPath+"/clients", "List the live clients of a chain", "Programs and replicas that evaluate it, if they have reported within 15 s."), r.chainClients)
	huma.Register(r, op("diff-chain", http.MethodGet, chainPath+"/diff", "Compare two versions of a chain", "Field by field."), r.diffChain)
	huma.Register(r, op("rollback-chain", http.MethodPost, chainPath+"/rollback", "Write an old version of a chain as the newest", "If the lists that it asks still exist."), r.rollbackChain)
	huma.Register(r, op("shadow-chain", http.MethodPost, chainPath+"/shadow", "Evaluate a document beside the version that serves", "Differences are counted, and decide nothing."), r.shadowChain)
	huma.Register(r, op("compare-chain", http.MethodPost, chainPath+"/compare", "Say how decisions change with another document", "Of a sample of subjects. Nothing changes."), r.compareChain)
	evaluate := op(
		"evaluate-chain", http.MethodPost, chainPath+"/evaluate", "Ask what a chain decides", "For up to 1000 subjects.",
	)
	evaluate.Description = "For up to 1000 subjects, by this replica's copies of the lists. For any valid token."
	huma.Register(r, evaluate, r.evaluateChain)
	doc := r.OpenAPI()
	doc.Tags = append(doc.Tags, &huma.Tag{
		Name: "chains", Description: "Decisions from several name lists, one after the other.",
	})
	r.body(doc.Paths[chainPath].Put, reflect.TypeFor[ChainUpdate]())
	r.body(doc.Paths[chainPath+"/rollback"].Post, reflect.TypeFor[ChainRollback]())
	r.body(doc.Paths[chainPath+"/shadow"].Post, reflect.TypeFor[ChainUpdate]())
	r.body(doc.Paths[chainPath+"/evaluate"].Post, reflect.TypeFor[EvaluateRequest]())
	r.body(doc.Paths[chainPath+"/compare"].Post, reflect.TypeFor[CompareRequest]())
}

func (r *routes) chains(ctx context.Context, in *pageInput) (*output[ChainPage], error) {
	return handle(ctx, r, "list chains", in, func(ctx context.Context, in *pageInput) (page ChainPage, err error) {
		found, err := r.control.Chains(ctx, in.After, in.Limit)
		page.Chains = make([]ChainHead, len(found))
		for i := range found {
			c := &found[i]
			page.Chains[i] = ChainHead{Name: c.Name, ChainVersion: c.ChainVersion, Shadowed: c.Shadow != ""}
		}
		if len(found) == in.Limit {
			page.After = found[in.Limit-1].Name
		}
		return page, err
	})
}

func (r *routes) chainVersions(ctx context.Context, in *OfChain) (*output[ChainVersions], error) {
	return handle(ctx, r, "list versions of the chain", in,
		func(ctx context.Context, in *OfChain) (out ChainVersions, err error) {
			out.Versions, err = r.control.ChainVersions(ctx, in.Chain)
			return out, err
		})
}

func (r *routes) chainClients(ctx context.Context, in *OfChain) (*output[ListClients], error) {
	return handle(ctx, r, "list clients of the chain", in,
		func(ctx context.Context, in *OfChain) (out ListClients, err error) {
			if _, err := r.control.Chain(ctx, in.Chain); err != nil {
				return out, err
			}
			live, _, err := r.control.Clients(ctx, namelist.ChainMark(in.Chain))
			return shownClients(live), err
		})
}

func (r *routes) chainVersion(ctx context.Context, in *chainVersionInput) (*output[ChainVersionShown], error) {
	return handle(ctx, r, "read the version of the chain", in,
		func(ctx context.Context, in *chainVersionInput) (out ChainVersionShown, err error) {
			v, document, err := r.control.ChainAt(ctx, in.Chain, in.Version)
			return ChainVersionShown{v, json.RawMessage(document)}, err
		})
}

func (r *routes) diffChain(ctx context.Context, in *chainDiffInput) (*output[ChainDiff], error) {
	return handle(ctx, r, "compare versions of the chain", in,
		func(ctx context.Context, in *chainDiffInput) (out ChainDiff, err error) {
			if out.To = in.To; in.To == 0 {
				now, err := r.control.Chain(ctx, in.Chain)
				if err != nil {
					return out, err
				}
				out.To = now.Version
			}
			to, err := r.documentAt(ctx, in.Chain, out.To)
			if err != nil {
				return out, err
			}
			from := &chain.Document{}
			if out.From = in.From; in.From == 0 {
				out.From = out.To - 1
			}
			if out.From > 0 {
				from, err = r.documentAt(ctx, in.Chain, out.From)
			}
			if in.From == 0 && freeslot.CodeOf(err) == freeslot.CodeNotFound {
				from, out.From, err = &chain.Document{}, 0, nil // there was nothing before the first version
			}
			if err != nil {
				return out, err
			}
			out.Changes = []ChainFieldChange{}
			for _, c := range chain.Diff(from, to) {
				out.Changes = append(out.Changes, ChainFieldChange(c))
			}
			return out, nil
		})
}

// documentAt reads the document of a version.
func (r *routes) documentAt(ctx context.Context, name string, version int64) (*chain.Document, error) {
	_, text, err := r.control.ChainAt(ctx, name, version)
	if err != nil {
		return nil, err
	}
	d, _, err := chain.Parse([]byte(text), nil)
	if err != nil {
		return nil, fmt.Errorf("version %d of chain %s: %w", version, name, err)
	}
	return d, nil
}

// chainChange is a change of a chain that was validated.
type chainChange struct {
	What string // put, rollback, shadow or delete
	Put  namelist.ChainPut
	// before is the chain as it is; without a mark there is none.
	before namelist.ChainRecord
}

// changeChain carries out a change of a chain that was validated, or asks for it. Every change of a
// chain comes here.
func (r *routes) changeChain(ctx context.Context, c chainChange) (out ChainChanged, err error) {
	if r.approvals.policy.Chains && c.What != "shadow" { // a shadow decides nothing
		if c.Put.Seen != c.before.Version {
			return out, &freeslot.Error{Code: freeslot.CodeConflict, Field: "version", Message: fmt.Sprintf(
				"chain %s is at version %d, and the change was made from version %d", c.Put.Chain, c.before.Version, c.Put.Seen)}
		}
		by := c.Put.By
		c.Put.By = namelist.By{}
		summary := fmt.Sprintf("%s chain %s, which is at version %d", c.What, c.Put.Chain, c.before.Version)
		return out, r.approvals.propose(
			ctx, asked(ctx, namelist.ChangeChain, c.Put.Chain, c.before.Mark, by, summary), c)
	}
	if out.Version, err = r.approvals.changeChain(ctx, &c); err == nil {
		audit.Of(ctx).Note(fmt.Sprint("version ", c.before.Version), fmt.Sprintf("%s, version %d", c.What, out.Version))
	}
	return out, err
}

func (a *approvals) changeChain(ctx context.Context, c *chainChange) (version int64, err error) {
	switch c.What {
	case "shadow":
		return a.control.ShadowChain(ctx, c.Put)
	case "delete":
		return c.Put.Seen, a.control.DeleteChain(ctx, c.Put.Chain, c.Put.Seen)
	default:
		return a.control.PutChain(ctx, c.Put)
	}
}

// validChain checks a document for a chain: its own fields, and the lists that it asks. The error
// names every bad field.
func (r *routes) validChain(ctx context.Context, name string, document []byte) (*chain.Document, *chain.Chain, error) {
	var failed error
	d, c, err := chain.Parse(document, func(list string) bool {
		marks, _, _, err := r.control.Look(ctx, []string{list}, false)
		if err != nil {
			failed = err
		}
		return err != nil || marks[0].Birth != ""
	})
	switch {
	case failed != nil:
		return nil, nil, failed
	case err != nil:
		return nil, nil, err
	case d.Name != name:
		return nil, nil, freeslot.Invalid("name", "is %.64q, expected %s, the name of the chain in the path", d.Name, name)
	}
	d.Version = 0 // the store gives versions
	return d, c, nil
}

// update decodes the body of a new version or a shadow, and validates its document.
func (r *routes) update(ctx context.Context, in *chainBodyInput, what string) (c chainChange, err error) {
	var q ChainUpdate
	if err := freeslot.DecodeStrict("change", in.RawBody, &q); err != nil {
		return c, err
	}
	ends := what == "shadow" && len(q.Document) == 0
	var found freeslot.FieldErrors
	if q.Version == nil {
		found.Addf("version", "is absent, expected the version that the change was made from, 0 for a new chain")
	}
	if len(q.Document) == 0 && !ends {
		found.Addf("document", "is absent")
	}
	found.Add(namelist.ValidateName("chain", in.Chain))
	if err := found.Err(); err != nil {
		return c, err
	}
	c = chainChange{What: what, Put: namelist.ChainPut{Chain: in.Chain, Seen: *q.Version, By: q.by(ctx)}}
	if !ends {
		d, _, err := r.validChain(ctx, in.Chain, q.Document)
		if err != nil {
			return c, err
		}
		c.Put.Document, c.Put.Lists = string(chain.Encode(d)), d.Lists()
	}
	c.before, err = r.before(ctx, in.Chain)
	return c, err
}

// before reads a chain that need not exist.
func (r *routes) before(ctx context.Context, name string) (namelist.ChainRecord, error) {
	before, err := r.control.Chain(ctx, name)
	if freeslot.CodeOf(err) == freeslot.CodeNotFound {
		err = nil
	}
	return before, err
}

func (r *routes) putChain(ctx context.Context, in *chainBodyInput) (*output[ChainChanged], error) {
	return handle(ctx, r, "write the chain", in,
		func(ctx context.Context, in *chainBodyInput) (out ChainChanged, err error) {
			c, err := r.update(ctx, in, "put")
			if err != nil {
				return out, err
			}
			return r.changeChain(ctx, c)
		})
}

func (r *routes) shadowChain(ctx context.Context, in *chainBodyInput) (*output[ChainChanged], error) {
	return handle(ctx, r, "shadow the chain", in,
		func(ctx context.Context, in *chainBodyInput) (out ChainChanged, err error) {
			c, err := r.update(ctx, in, "shadow")
			if err != nil {
				return out, err
			}
			return r.changeChain(ctx, c)
		})
}

func (r *routes) rollbackChain(ctx context.Context, in *chainBodyInput) (*output[ChainChanged], error) {
	return handle(ctx, r, "roll the chain back", in,
		func(ctx context.Context, in *chainBodyInput) (out ChainChanged, err error) {
			var q ChainRollback
			if err := freeslot.DecodeStrict("rollback", in.RawBody, &q); err != nil {
				return out, err
			}
			if q.Version == nil {
				return out, freeslot.Invalid("version", "is absent, expected the version that serves")
			}
			_, old, err := r.control.ChainAt(ctx, in.Chain, q.Restore)
			if err != nil {
				return out, err
			}
			d, _, err := r.validChain(ctx, in.Chain, []byte(old))
			if err != nil {
				return out, fmt.Errorf("version %d of chain %s cannot serve again: %w", q.Restore, in.Chain, err)
			}
			before, err := r.before(ctx, in.Chain)
			if err != nil {
				return out, err
			}
			return r.changeChain(ctx, chainChange{What: "rollback", before: before, Put: namelist.ChainPut{
				Chain: in.Chain, Seen: *q.Version, Document: string(chain.Encode(d)), Lists: d.Lists(), By: q.by(ctx),
				Restores: q.Restore,
			}})
		})
}

func (r *routes) deleteChain(ctx context.Context, in *chainDeleteInput) (*output[ChainChanged], error) {
	return handle(ctx, r, "delete the chain", in,
		func(ctx context.Context, in *chainDeleteInput) (out ChainChanged, err error) {
			put := namelist.ChainPut{Chain: in.Chain, Seen: in.Version, By: ByWhom{Note: in.Note}.by(ctx)}
			before, err := r.control.Chain(ctx, in.Chain)
			if err != nil {
				return out, err
			}
			return r.changeChain(ctx, chainChange{What: "delete", before: before, Put: put})
		})
}
