package namelist

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// Bounds of a chain.
const (
	// MaxChain is the largest document, in bytes.
	MaxChain = 64 << 10
	// ChainVersionsKept and chainBytes bound the history of a chain.
	ChainVersionsKept = 100
	chainBytes        = 10 << 20
	// chainPrefix begins the name under which the index of lists has a chain.
	chainPrefix = "chain_"
	metaSuffix  = ":meta"
)

// ChainMark returns the name under which [Control.Look], [Control.Follow] and marks by HTTP know a
// chain. No list has such a name. A chain's event has neither Head nor Changes: ask for the chain.
func ChainMark(chain string) string { return chainPrefix + chain }

// ChainOf returns the chain that a mark is for.
func ChainOf(mark string) (chain string, ok bool) { return strings.CutPrefix(mark, chainPrefix) }

// ValidateMark checks the name of a list, or a name that ChainMark has made. The error names field.
func ValidateMark(field, name string) error {
	chain, _ := ChainOf(name)
	return ValidateName(field, chain)
}

// ChainVersion describes a version of a chain.
type ChainVersion struct {
	// The tags document Version and the rest for readers of the API.
	Version  int64  `json:"version" doc:"1 for the first version ever. A number is not used twice."`
	Author   string `json:"author,omitempty" doc:"Tenant of the token, and who the caller said to be."`
	Note     string `json:"note,omitempty"`
	AtMS     int64  `json:"at_ms" doc:"Redis' time when it was written, in milliseconds since 1970."`
	Restores int64  `json:"restores,omitempty" doc:"The version whose document this is, after a rollback."`
	Bytes    int    `json:"bytes" doc:"Length of the document."`
}

// ChainRecord is a chain as the control server has it.
type ChainRecord struct {
	Name string
	// Mark changes with every change of the chain. Its zero value means that there is no chain.
	Mark Mark
	ChainVersion
	// Document is the serving version, as it was put. Shadow is the document to evaluate beside it,
	// empty without one; it was set at ShadowAtMS by ShadowBy.
	Document, Shadow string
	ShadowAtMS       int64
	ShadowBy         string
}

// ChainPut is a version to write.
type ChainPut struct {
	Chain string
	// Seen is the version that the change was made from; 0 for a new chain.
	Seen     int64
	Document string
	// Lists are the lists that the document asks.
	Lists []string
	By    By
	// Restores is the version that the document was copied from; 0 if it was not copied.
	Restores int64
}

func (p *ChainPut) validate() error {
	var found freeslot.FieldErrors
	found.Add(ValidateName("chain", p.Chain))
	if p.Seen < 0 {
		found.Addf("version", "is %d, expected the version that the change was made from, 0 for a new chain", p.Seen)
	}
	if len(p.Document) > MaxChain || !utf8.ValidString(p.Document) {
		found.Addf("document", "has %d bytes, expected UTF-8 of at most %d", len(p.Document), MaxChain)
	}
	p.By.validate(&found)
	return found.Err()
}

// chainFields lists the fields of a chain's record, as Chain reads them.
var chainFields = []string{
	"version", "at", "author", "note", "restores", "content", "revision", "birth", "shadow", "shadow_at", "shadow_by",
}

// Chain reads a chain. Errors: not_found.
func (c *Control) Chain(ctx context.Context, chain string) (ChainRecord, error) {
	out, err := c.chainRecord(ctx, chain)
	if err == nil && out.Mark.Birth == "" {
		err = noChain(chain)
	}
	return out, err
}

// chainRecord works like Chain, but returns a record without a mark for a chain that is not there.
func (c *Control) chainRecord(ctx context.Context, chain string) (out ChainRecord, err error) {
	out.Name = chain
	if err := ValidateName("chain", chain); err != nil {
		return out, err
	}
	read := c.runner.B().Hmget().Key(c.k.chain(chain)).Field(chainFields...).Build()
	values, err := c.runner.Do(ctx, "chain", read).ToArray()
	if err != nil {
		return out, chainFault("read", chain, err)
	}
	text := make([]string, len(values))
	for i := range values {
		text[i], _ = values[i].ToString() // nil: the record has no such field
	}
	if values[5].IsNil() { // a deleted chain keeps its version
		return out, nil
	}
	out.Version, out.AtMS, out.Author, out.Note, out.Restores = whole(
		text[0],
	), whole(text[1]), text[2], text[3], whole(text[4])
	out.Document, out.Bytes = text[5], len(text[5])
	out.Mark = Mark{Revision: whole(text[6]), Birth: text[7]}
	out.Shadow, out.ShadowAtMS, out.ShadowBy = text[8], whole(text[9]), text[10]
	return out, nil
}

// whole returns a number of a record; 0 for what an operator broke.
func whole(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// Chains returns a page of chains in the order of their names: up to limit, from the first name
// behind after.
func (c *Control) Chains(ctx context.Context, after string, limit int) (out []ChainRecord, err error) {
	names, err := c.chainNames(ctx)
	if err != nil {
		return nil, err
	}
	from, found := slices.BinarySearch(names, after)
	if found {
		from++
	}
	for _, name := range names[from:min(from+limit, len(names))] {
		one, err := c.chainRecord(ctx, name)
		if err != nil {
			return nil, err
		}
		if one.Mark.Birth != "" { // else it was deleted meanwhile
			out = append(out, one)
		}
	}
	return out, nil
}

func (c *Control) chainNames(ctx context.Context) (names []string, err error) {
	marks, err := c.marked(ctx)
	for _, mark := range marks {
		if chain, ok := ChainOf(mark); ok {
			names = append(names, chain)
		}
	}
	slices.Sort(names)
	return names, err
}

// ChainVersions returns the versions that are kept, the newest first.
func (c *Control) ChainVersions(ctx context.Context, chain string) (out []ChainVersion, err error) {
	if err := ValidateName("chain", chain); err != nil {
		return nil, err
	}
	all, err := c.runner.Do(
		ctx, "chain_history", c.runner.B().Hkeys().Key(c.k.chainHistory(chain)).Build(),
	).AsStrSlice()
	if err != nil {
		return nil, chainFault("versions of", chain, err)
	}
	fields := slices.DeleteFunc(all, func(f string) bool { return !strings.HasSuffix(f, metaSuffix) })
	if len(fields) == 0 {
		return nil, noChain(chain)
	}
	read := c.runner.B().Hmget().Key(c.k.chainHistory(chain)).Field(fields...).Build()
	metas, err := c.runner.Do(ctx, "chain_history", read).ToArray()
	if err != nil {
		return nil, chainFault("versions of", chain, err)
	}
	for i := range metas {
		if meta, err := metas[i].ToString(); err == nil { // nil: it was removed meanwhile
			out = append(out, chainVersion(whole(strings.TrimSuffix(fields[i], metaSuffix)), meta))
		}
	}
	slices.SortFunc(out, func(a, b ChainVersion) int { return int(b.Version - a.Version) })
	return out, nil
}

// ChainAt reads one version that is kept. Errors: not_found.
func (c *Control) ChainAt(
	ctx context.Context, chain string, version int64,
) (v ChainVersion, document string, err error) {
	if err := ValidateName("chain", chain); err != nil {
		return v, "", err
	}
	field := number(version)
	read := c.runner.B().Hmget().Key(c.k.chainHistory(chain)).Field(field, field+metaSuffix).Build()
	values, err := c.runner.Do(ctx, "chain_history", read).ToArray()
	if err != nil {
		return v, "", chainFault("read a version of", chain, err)
	}
	if document, err = values[0].ToString(); err != nil {
		return v, "", &freeslot.Error{
			Code: freeslot.CodeNotFound, Field: "version", Message: fmt.Sprintf(
				"chain %s has no version %d, or none any more: the last %d are kept", chain, version, ChainVersionsKept),
		}
	}
	meta, _ := values[1].ToString()
	return chainVersion(version, meta), document, nil
}

func chainVersion(version int64, meta string) (v ChainVersion) {
	_ = json.Unmarshal([]byte(meta), &v) // fields that an operator broke stay empty
	v.Version = version
	return v
}

// PutChain makes a document the serving version of a chain. If the document serves already, no new
// version is made. Callers have validated the document. Errors: invalid_argument, also for lists
// that do not exist; conflict; overloaded.
func (c *Control) PutChain(ctx context.Context, p ChainPut) (version int64, err error) {
	if err := p.validate(); err != nil {
		return 0, err
	}
	_, decision, _ := c.decision(ctx)
	args := append([]string{
		p.Chain, c.k.change(ChainMark(p.Chain)), number(p.Seen), p.Document, p.By.Author, p.By.Note, number(p.Restores),
		number(ChainVersionsKept), number(chainBytes), random128(), decision,
	}, p.Lists...)
	return c.changeChain(ctx, "chain_put", p.Chain, p.Seen, args)
}

// ShadowChain sets the document that readers evaluate beside version seen of a chain, which serves;
// an empty document ends that. It fails as PutChain does, and with not_found.
func (c *Control) ShadowChain(ctx context.Context, p ChainPut) (version int64, err error) {
	if err := p.validate(); err != nil {
		return 0, err
	}
	_, decision, _ := c.decision(ctx)
	args := append([]string{
		p.Chain, c.k.change(ChainMark(p.Chain)), number(p.Seen), p.Document, p.By.why(), random128(), decision,
	}, p.Lists...)
	return c.changeChain(ctx, "chain_shadow", p.Chain, p.Seen, args)
}

// DeleteChain removes a chain with its history and statistics. seen is the version that the caller
// saw. Errors: invalid_argument, not_found, conflict.
func (c *Control) DeleteChain(ctx context.Context, chain string, seen int64) error {
	if err := ValidateName("chain", chain); err != nil {
		return err
	}
	_, decision, _ := c.decision(ctx)
	args := []string{chain, c.k.change(ChainMark(chain)), number(seen), random128(), decision}
	_, err := c.changeChain(ctx, "chain_delete", chain, seen, args)
	return err
}

// changeChain runs a script, and decodes what it returns.
func (c *Control) changeChain(
	ctx context.Context, what, chain string, seen int64, args []string,
) (version int64, err error) {
	d, _, more := c.decision(ctx)
	keys := []string{c.k.chain(chain), c.k.chainHistory(chain), c.k.index()}
	if what == "chain_delete" {
		keys = append(keys, c.k.counts(ChainMark(chain))...)
	}
	keys = append(keys, more...)
	r := script.ReadReply(c.runner.Call(ctx, scripts[what], keys, args))
	code := r.Number()
	switch {
	case r.Err != nil:
		return 0, chainFault("change", chain, noMemory(r.Err))
	case code == codeGone:
		return 0, noChain(chain)
	case code == codeUndecided:
		return 0, undecided(d.ID, r.Text())
	case code == codeFull:
		return 0, freeslot.Invalid("lists", "are asked and do not exist: %s", strings.Join(r.Texts(), ", "))
	}
	version = r.Number()
	switch {
	case r.Err != nil:
		return 0, chainFault("change", chain, r.Err)
	case code == codeDone || code == codeRepeat:
		d.carriedOut()
		return version, nil
	case code == codeDiffer:
		is := "does not exist"
		if version > 0 {
			is = fmt.Sprintf("is at version %d", version)
		}
		return 0, &freeslot.Error{
			Code: freeslot.CodeConflict, Field: "version",
			Message: fmt.Sprintf("chain %s %s, and the change was made from version %d", chain, is, seen),
		}
	default:
		return 0, chainFault("change", chain, fmt.Errorf("code %d of redis is unknown", code))
	}
}

// askedBy returns the chains whose serving document or shadow asks a list.
func (c *Control) askedBy(ctx context.Context, list string) (chains []string, err error) {
	names, err := c.chainNames(ctx)
	for _, chain := range names {
		read := c.runner.B().Hmget().Key(c.k.chain(chain)).Field("lists", "shadow_lists").Build()
		values, err := c.runner.Do(ctx, "chain", read).ToArray()
		if err != nil {
			return nil, chainFault("read", chain, err)
		}
		for i := range values {
			if asked, _ := values[i].ToString(); slices.Contains(strings.Fields(asked), list) {
				chains = append(chains, chain)
				break
			}
		}
	}
	return chains, err
}

func noChain(chain string) error {
	return &freeslot.Error{Code: freeslot.CodeNotFound, Message: "there is no chain " + chain}
}

func chainFault(what, chain string, err error) error {
	return fmt.Errorf("%s chain %s: %w", what, chain, err)
}

// ChainDocument is a chain in HTTP, as its readers get it.
type ChainDocument struct {
	Name string `json:"name"`
	ChainVersion
	Revision int64           `json:"revision" doc:"Changes with every change of the chain, also of its shadow."`
	Birth    string          `json:"birth" doc:"Identifies one life of the chain. With revision it is the mark of the chain in list-marks, under the name chain_<chain>."`
	Document json.RawMessage `json:"document" doc:"The version that serves."`
	Shadow   *ChainShadow    `json:"shadow,omitempty"`
}

// ChainShadow is a document that readers evaluate beside the serving version.
type ChainShadow struct {
	Document json.RawMessage `json:"document"`
	AtMS     int64           `json:"at_ms" doc:"Redis' time when it was set, in milliseconds since 1970."`
	By       string          `json:"by,omitempty" doc:"Who set it, and why."`
}

// Wire returns the chain as HTTP readers get it.
func (r *ChainRecord) Wire() ChainDocument {
	out := ChainDocument{
		Name: r.Name, ChainVersion: r.ChainVersion, Revision: r.Mark.Revision, Birth: r.Mark.Birth,
		Document: json.RawMessage(r.Document),
	}
	if r.Shadow != "" {
		out.Shadow = &ChainShadow{Document: json.RawMessage(r.Shadow), AtMS: r.ShadowAtMS, By: r.ShadowBy}
	}
	return out
}

// DecodeChain decodes the JSON of a [ChainDocument].
func DecodeChain(chain string, text []byte) (ChainRecord, error) {
	var w ChainDocument
	if err := json.Unmarshal(text, &w); err != nil {
		return ChainRecord{}, chainFault("decode", chain, err)
	}
	if w.Name != chain || w.Version < 1 || w.Revision < 1 || w.Birth == "" || len(w.Document) == 0 ||
		len(w.Document) > MaxChain {
		return ChainRecord{}, chainFault("decode", chain, fmt.Errorf(
			"name %.80q, version %d, revision %d, birth %.80q, document of %d bytes", w.Name, w.Version, w.Revision, w.Birth,
			len(w.Document)))
	}
	out := ChainRecord{
		Name: chain, ChainVersion: w.ChainVersion, Mark: Mark{Revision: w.Revision, Birth: w.Birth},
		Document: string(w.Document),
	}
	if w.Shadow != nil {
		out.Shadow, out.ShadowAtMS, out.ShadowBy = string(w.Shadow.Document), w.Shadow.AtMS, w.Shadow.By
	}
	return out, nil
}

// At returns the time of the version, by Redis' clock.
func (v *ChainVersion) At() time.Time { return time.UnixMilli(v.AtMS) }
