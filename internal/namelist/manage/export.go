package manage

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
)

const (
	// maxReads is how many exports and diffs a replica makes at the same time.
	maxReads = 4
	// exportBuffer is the size of one write of an export.
	exportBuffer = 64 << 10
)

// ExportRequest says what to export.
type ExportRequest struct {
	// Version is a number; 0 means the serving version.
	Version int64
	Format  version.Format // empty means CSV
	// Bare leaves out the list's edits: the export has what was built, even what has expired since.
	Bare bool
}

// Exported says what an export contains.
type Exported struct {
	Version int64
	// Revision is the revision of the newest edit in it. AtMS is Redis' time: the export has
	// nothing that had expired then. A bare export has neither.
	Revision, AtMS int64
	// Count is the number of entries written, SHA256 the digest of all bytes; both are set at the
	// end.
	Count  int64
	SHA256 []byte
}

// Export writes the ids of a version, with the list's edits above its base, to the writer that
// begin returns. It calls begin when the first bytes are there: an error before that is a plain
// refusal, an error after it cuts the export off. Errors: not_found; conflict; overloaded;
// *build.DamageError; an error of Redis or of the writer.
func (m *Manager) Export(
	ctx context.Context, list string, q ExportRequest, begin func(Exported) io.Writer,
) (Exported, error) {
	ctx, release, err := m.reading(ctx)
	if err != nil {
		return Exported{}, err
	}
	defer release()
	x := &export{begin: begin, format: q.Format, sum: sha256.New()}
	err = m.export(ctx, list, q, x)
	x.SHA256 = x.sum.Sum(nil)
	if err != nil && x.out != nil {
		m.log.Warn("lists.export_cut", zap.String("list", list), zap.Int64("version", x.Version), zap.Error(err))
	}
	return x.Exported, err
}

// reading takes one of the slots for reads of whole versions. The context also ends with Stop.
func (m *Manager) reading(ctx context.Context) (context.Context, func(), error) {
	select {
	case m.reads <- struct{}{}:
	default:
		return nil, nil, overloaded(
			"this replica reads %d versions of lists already; try again, or another replica", maxReads,
		)
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(m.ctx, cancel)
	return ctx, func() { stop(); cancel(); <-m.reads }, nil
}

func (m *Manager) export(ctx context.Context, list string, q ExportRequest, x *export) error {
	switch q.Format {
	case "":
		x.format = version.CSV
	case version.CSV, version.TXT:
	default:
		return freeslot.Invalid("format", "is %q, expected csv or txt", q.Format)
	}
	h, err := m.readable(ctx, list)
	if err != nil {
		return err
	}
	v, err := m.versionOf(ctx, h, "version", q.Version)
	if err != nil {
		return err
	}
	x.Version = v.Number
	if !q.Bare {
		x.Revision, x.AtMS = h.Revision, h.At.UnixMilli()
		if x.edits, err = m.editsSince(ctx, h, v, h.Revision); err != nil {
			return err
		}
	}
	server, err := m.cfg.Server(ctx, v.Server)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(x, exportBuffer)
	if _, err := out.WriteString(version.Header(x.format)); err != nil {
		return err
	}
	err = server.Read(ctx, list, v, func(_ uint32, id string, expires int64) error { return x.base(out, id, expires) })
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(x.edits)) {
		if c := x.edits[id]; !c.Remove {
			if err := x.line(out, id, c.ExpiresMS); err != nil {
				return err
			}
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	_, err = x.Write(nil) // an empty export begins here
	return err
}

// readable returns the head of a list whose versions can be read.
func (m *Manager) readable(ctx context.Context, list string) (*namelist.Head, error) {
	h, err := m.control.Head(ctx, list)
	if err == nil && h.State == namelist.Deleting {
		err = conflict("list %s is being deleted", list)
	}
	return &h, err
}

// versionOf returns a version to read, which is not known to be damaged; 0 means the serving
// version. field names the number in errors.
func (m *Manager) versionOf(
	ctx context.Context, h *namelist.Head, field string, number int64,
) (*namelist.Version, error) {
	v := h.Serving
	switch {
	case number != 0:
		got, err := m.control.Version(ctx, h.Name, number)
		if err != nil {
			return nil, err
		}
		v = &got
	case v == nil:
		return nil, &freeslot.Error{
			Code: freeslot.CodeConflict, Field: field,
			Message: fmt.Sprintf("list %s serves no version; %s must name one", h.Name, field),
		}
	}
	if v.Damaged != "" {
		return nil, conflict("version %d of list %s is damaged: %s", v.Number, h.Name, v.Damaged)
	}
	return v, nil
}

// export is an export under way.
type export struct {
	Exported

	format version.Format
	edits  map[string]namelist.Change // not met yet
	begin  func(Exported) io.Writer
	out    io.Writer
	sum    hash.Hash
	buffer []byte // of a line
}

func (x *export) Write(p []byte) (int, error) {
	if x.out == nil {
		x.out = x.begin(x.Exported)
	}
	x.sum.Write(p)
	return x.out.Write(p)
}

// base writes an entry of the version, unless an edit has changed it.
func (x *export) base(out io.Writer, id string, expires int64) error {
	if c, ok := x.edits[id]; ok {
		delete(x.edits, id)
		if c.Remove {
			return nil
		}
		expires = c.ExpiresMS
	}
	return x.line(out, id, expires)
}

func (x *export) line(out io.Writer, id string, expires int64) error {
	if expires != 0 && expires <= x.AtMS {
		return nil
	}
	x.Count++
	x.buffer = version.AppendLine(x.buffer[:0], x.format, id, expires)
	_, err := out.Write(x.buffer)
	return err
}
