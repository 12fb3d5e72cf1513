package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/cmd/schedctl/archive"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/plural"
	registryserver "github.com/freeslot/freeslot/internal/registry/server"
)

type restoreCmd struct {
	In    string `arg:"" help:"A backup; - is standard input."`
	Check bool   `help:"Only read the backup to its end, without a scheduler, and print what is in it."`
}

// Help is shown below the flags.
func (restoreCmd) Help() string {
	return `Puts a backup into an empty system, and prints a report. It needs an admin's token, and changes nothing if
the backup is cut off or damaged, or if the system has something already. A restore that failed goes on if it is run
again with the same backup. docs/backup.md says what is not restored, and docs/disaster.md when to use what.
  schedctl restore /var/backups/freeslot.gz
  age -d -i KEY freeslot.age | schedctl restore -`
}

// Run checks the whole backup before it changes anything.
func (c *restoreCmd) Run(a *app) error {
	file, done, err := c.open(a)
	if err != nil {
		return err
	}
	defer done()
	head, counts, err := checked(file)
	if err != nil {
		return fmt.Errorf("%s: %w; nothing was changed", c.name(), err)
	}
	if c.Check {
		return c.printCheck(a, head, counts)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in, err := archive.NewReader(file)
	if err != nil {
		return err
	}
	r := &restore{app: a, in: in, report: restoreReport{Backup: head.ID, AtMS: head.AtMS}}
	if err := r.begin(); err != nil {
		return fmt.Errorf("%w; nothing was changed", err)
	}
	return r.finish(r.all())
}

func (c *restoreCmd) name() string {
	if c.In == "-" {
		return "standard input"
	}
	return c.In
}

// open opens the backup. Standard input and pipes go to a temporary file first, because a backup is
// read twice.
func (c *restoreCmd) open(a *app) (file *os.File, done func(), err error) {
	in := a.in
	if c.In != "-" {
		file, err := os.Open(c.In)
		if err != nil {
			return nil, nil, usage("%w", err)
		}
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			return file, func() { _ = file.Close() }, nil
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	if file, err = os.CreateTemp("", "freeslot-restore-*"); err != nil {
		return nil, nil, fmt.Errorf("keep the backup: %w", err)
	}
	done = func() { _, _ = file.Close(), os.Remove(file.Name()) }
	_, err = io.Copy(file, in)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		done()
		return nil, nil, fmt.Errorf("keep the backup: %w", err)
	}
	return file, done, nil
}

// checked reads a backup to its end, decodes each record, and counts the records as backup does.
func checked(in io.Reader) (archive.Header, map[string]int64, error) {
	counts := make(map[string]int64)
	r, err := archive.NewReader(in)
	if err != nil {
		return archive.Header{}, nil, err
	}
	for {
		record, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return r.Header, counts, nil
		case err != nil:
			return r.Header, nil, err
		}
		data, err := content(record)
		if err != nil {
			return r.Header, nil, err
		}
		if ids, ok := data.(*idsRecord); ok {
			counts[kindIDs] += lines(ids.CSV)
		} else {
			counts[record.Kind]++
		}
	}
}

func (c *restoreCmd) printCheck(a *app, head archive.Header, counts map[string]int64) error {
	if a.json {
		return a.printJSON(map[string]any{"id": head.ID, "at_ms": head.AtMS, "release": head.Release, "records": counts})
	}
	return a.println(
		"%s: a backup of %s, by release %s: %s", c.name(), clock(head.AtMS), head.Release,
		(&backup{counts: counts}).summary(),
	)
}

// restore is a restore under way.
type restore struct {
	*app

	in *archive.Reader
	// back is a record that was read too early, or nil.
	back   *archive.Record
	nowMS  int64 // Redis' time at the beginning
	mark   int64 // version of the document restoreMark
	report restoreReport
	tokens []tokenRecord
	// busy is true once a job was refused for the moment as often as patience allows. Then each job
	// is tried once.
	busy bool
}

// next returns the next record.
func (r *restore) next() (archive.Record, error) {
	if r.back != nil {
		record := *r.back
		r.back = nil
		return record, nil
	}
	return r.in.Next()
}

// nextOf returns the next record if it has this kind; it stays for the next call otherwise.
func (r *restore) nextOf(kind string) (record archive.Record, ok bool, err error) {
	record, err = r.next()
	switch {
	case errors.Is(err, io.EOF):
		return record, false, nil
	case err != nil:
		return record, false, err
	case record.Kind != kind:
		r.back = &record
		return record, false, nil
	}
	return record, true, nil
}

// restoreMark is the document that tells a restore which has begun from a system in use. It holds
// the id of the backup, and is gone once all is restored.
const restoreMark = "freeslot-restore"

// begin checks the caller, the clock, and that the system is empty or that this restore has begun
// there.
func (r *restore) begin() error {
	var who api.Whoami
	if err := r.call(http.MethodGet, "/v1/whoami", nil, nil, &who); err != nil {
		return err
	}
	if who.Role != identity.Admin {
		return fmt.Errorf("the token's role is %s, expected admin: a restore makes pools, owners and grants", who.Role)
	}
	var err error
	if r.nowMS, err = r.redisMS(); err != nil {
		return err
	}
	if behind := r.report.AtMS - r.nowMS; behind > 0 {
		return fmt.Errorf(
			"the clock of Redis is at %s, and the backup is of %s: set the clock right first, because fencing tokens of locks "+
				"are at least Redis' time, and must be above all earlier ones", clock(r.nowMS), clock(r.report.AtMS),
		)
	}
	var mark registryserver.ConfigDocument
	err = r.call(http.MethodGet, documentsPath+"/"+restoreMark, nil, nil, &mark)
	switch {
	case freeslot.CodeOf(err) == freeslot.CodeNotFound:
	case err != nil:
		return err
	case mark.Content != r.in.Header.ID:
		return fmt.Errorf(
			"a restore of another backup (%.64s) has begun here: run that to its end, or begin with an empty Redis",
			mark.Content,
		)
	default:
		r.mark, r.report.Again = mark.Version, true
		return nil
	}
	if err := r.empty(); err != nil {
		return err
	}
	zero, note := int64(0), "a restore is under way"
	var made registryserver.ConfigDocumentChanged
	body := registryserver.ConfigDocumentUpdate{Version: &zero, Content: &r.in.Header.ID, Note: note}
	err = r.call(http.MethodPut, documentsPath+"/"+restoreMark, nil, body, &made)
	r.mark = made.Version
	return err
}

// all restores record by record.
func (r *restore) all() error {
	handlers := map[string]func(archive.Record) error{
		kindToken: r.token, kindPools: r.pools, kindApplication: r.application, kindList: r.list,
		kindChain: r.chain, kindShadow: r.shadow, kindDocument: r.document, kindInstance: r.instance,
		kindOverride: r.override, kindCleanup: r.cleanup, kindJob: r.job, kindSchedule: r.schedule,
	}
	for {
		record, err := r.next()
		if errors.Is(err, io.EOF) {
			return r.missingTokens()
		}
		if err != nil {
			return err
		}
		do := handlers[record.Kind]
		if do == nil { // a record of a list outside a list
			return fmt.Errorf("%w: a record of kind %.64q is at a wrong place", archive.ErrDamaged, record.Kind)
		}
		if err := do(record); err != nil {
			return err
		}
	}
}

// decode reads the data of a record.
func decode(record archive.Record, v any) error {
	if err := freeslot.DecodeStrict(record.Kind, record.Data, v); err != nil {
		return fmt.Errorf("%w: %w", archive.ErrDamaged, err)
	}
	return nil
}

// outcome notes what came of one thing. An error that concerns only this thing goes to the report;
// any other error is returned, and ends the restore.
func (r *restore) outcome(kind, name string, there bool, err error) error {
	switch {
	case err == nil && there:
		r.report.count(kind).There++
	case err == nil:
		r.report.count(kind).Restored++
	case r.ends(err):
		return fmt.Errorf("%s %s: %w", kind, name, err)
	default:
		r.failed(kind, name, err)
	}
	return nil
}

// failed notes a thing that could not be restored.
func (r *restore) failed(kind, name string, err error) {
	r.report.count(kind).Failed++
	r.report.Problems = append(r.report.Problems, restoreProblem{kind, name, err.Error()})
}

// ends reports whether an error concerns everything that follows, too.
func (r *restore) ends(err error) bool {
	code := freeslot.CodeOf(err)
	return r.ctx.Err() != nil || code.Temporary() || errors.As(err, new(*unreachableError)) ||
		errors.Is(err, archive.ErrDamaged) || errors.Is(err, archive.ErrCut) ||
		code == freeslot.CodeUnauthenticated || code == freeslot.CodePermissionDenied
}

// put changes something, and repeats that if the replica is busy.
func (r *restore) put(method, path string, body, out any) error {
	return r.patiently(func() error { return r.call(method, path, nil, body, out) })
}

// restoreReport is what came of a restore.
type restoreReport struct {
	Backup string `json:"backup"`
	AtMS   int64  `json:"at_ms"`
	// Again is true if an earlier restore of this backup had begun.
	Again bool           `json:"again"`
	Kinds []restoreCount `json:"kinds"`
	// Versions tells the new numbers of versions of lists.
	Versions []restoredVersion `json:"versions"`
	Problems []restoreProblem  `json:"problems"`
	// LeftOut are old versions of chains and documents that this system refuses.
	LeftOut []restoreProblem `json:"left_out"`
	// Tokens are the ones that the backup names and this system does not have.
	Tokens []tokenRecord `json:"missing_tokens"`
}

type restoreCount struct {
	Kind     string `json:"kind"`
	Restored int    `json:"restored"`
	There    int    `json:"there"` // since an earlier run
	Failed   int    `json:"failed"`
}

type restoredVersion struct {
	List string `json:"list"`
	Was  int64  `json:"was"`
	Is   int64  `json:"is"`
}

type restoreProblem struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	Why  string `json:"why"`
}

func (p *restoreReport) count(kind string) *restoreCount {
	i := slices.IndexFunc(p.Kinds, func(c restoreCount) bool { return c.Kind == kind })
	if i < 0 {
		i = len(p.Kinds)
		p.Kinds = append(p.Kinds, restoreCount{Kind: kind})
	}
	return &p.Kinds[i]
}

// finish removes the mark if all went well, and prints the report.
func (r *restore) finish(err error) error {
	if err == nil && len(r.report.Problems) == 0 {
		err = r.unmark()
	}
	if printed := r.print(); err == nil {
		err = printed
	}
	switch again := "; run it again with the same backup: it goes on"; {
	case err != nil:
		return fmt.Errorf("the restore is not at its end: %w%s", err, again)
	case len(r.report.Problems) > 0:
		n := len(r.report.Problems)
		return fmt.Errorf("%s not restored%s", plural.Of(n, "thing was", "things were"), again)
	}
	return nil
}

func (r *restore) unmark() error {
	query := url.Values{"version": {strconv.FormatInt(r.mark, 10)}}
	return r.patiently(func() error {
		return r.call(http.MethodDelete, documentsPath+"/"+restoreMark, query, nil, nil)
	})
}

func (r *restore) print() error {
	if r.json {
		return r.printJSON(r.report)
	}
	rows := [][]string{{"KIND", "RESTORED", "THERE BEFORE", "FAILED"}}
	for _, k := range r.report.Kinds {
		rows = append(rows, []string{k.Kind, fmt.Sprint(k.Restored), fmt.Sprint(k.There), fmt.Sprint(k.Failed)})
	}
	if err := table(r.out, rows); err != nil {
		return err
	}
	for _, p := range r.report.Problems {
		r.warn("%s %s: %s", p.Kind, clean(p.Name), clean(p.Why))
	}
	for _, p := range r.report.LeftOut {
		r.warn("%s %s is left out: %s", p.Kind, clean(p.Name), clean(p.Why))
	}
	for _, t := range r.report.Tokens {
		r.warn("token %s of %s is missing here: make it anew", clean(t.Name), t.Source)
	}
	return nil
}

func (r *restore) token(record archive.Record) error {
	var t tokenRecord
	err := decode(record, &t)
	r.tokens = append(r.tokens, t)
	return err
}

// missingTokens notes the tokens that are not here by source, name and tenant.
func (r *restore) missingTokens() error {
	here, err := r.allTokens()
	if err != nil {
		return err
	}
	for _, t := range r.tokens {
		if !slices.ContainsFunc(here, func(h tokenRecord) bool {
			return h.Source == t.Source && h.Name == t.Name && h.Tenant == t.Tenant
		}) {
			r.report.Tokens = append(r.report.Tokens, t)
		}
	}
	return nil
}
