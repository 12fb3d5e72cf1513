package manage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/oklog/ulid/v2"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
)

const (
	// MaxChunk is the largest chunk of an upload.
	MaxChunk = 8 << 20
	// MaxUpload is the largest upload, in bytes as sent.
	MaxUpload = 64 << 30
	// maxUploads is how many uploads a replica keeps, including ended ones.
	maxUploads = 1000
	// uploadLife is how long an upload stays after its last call.
	uploadLife = 24 * time.Hour
)

// Mode says what an import does with the entries that a list has.
type Mode string

// The modes.
const (
	Replace Mode = "replace" // the new version has only the upload's entries
	Add     Mode = "add"
	Remove  Mode = "remove"
)

// UploadState says how far an upload is.
type UploadState string

// The states.
const (
	Open     UploadState = "open"
	Building UploadState = "building"
	Ready    UploadState = "ready"
	Failed   UploadState = "failed"
)

// Upload is a file that a replica receives and makes a version from.
type Upload struct {
	ID     string         `json:"id"`
	List   string         `json:"list"`
	Format version.Format `json:"format"`
	Mode   Mode           `json:"mode"`
	// Header says whether the first line is a header; empty means build.HeaderAuto.
	Header version.HeaderChoice `json:"header,omitzero"`
	// Switch is true to publish the version if nothing speaks against it.
	Switch bool        `json:"switch,omitzero"`
	By     namelist.By `json:"by"`
	// Tenant is the tenant of who began the upload.
	Tenant string `json:"tenant,omitzero"`
	// Shared is true if it was begun by a caller who may act for Tenant alone. The tag documents it
	// for readers of the API.
	Shared bool `json:"shared,omitzero" doc:"Whether it counts for the share of its tenant."`
	// Bytes counts the bytes received without a hole. Sum is their CRC-32C.
	Bytes   int64       `json:"bytes"`
	Sum     uint32      `json:"crc32c" doc:"CRC-32C of the bytes that were received."`
	State   UploadState `json:"state"`
	Touched time.Time   `json:"touched"`
	// Op is the operation that builds.
	Op *namelist.Operation `json:"op,omitzero"`
	// Version, Report and Why are set once the upload has ended.
	Version *namelist.Version `json:"version,omitzero"`
	Report  *version.Report   `json:"report,omitzero"`
	Why     string            `json:"why,omitzero"`
	// The tag documents Unpublished for readers of the API.
	Unpublished string `json:"unpublished,omitzero" doc:"Why the list did not switch to the version, though that was asked."`

	progress version.Progress // of the build
	writing  *sync.Mutex      // held while a chunk is written
}

// Progress returns how far the build is.
func (u *Upload) Progress() version.Progress { return u.progress }

// ElsewhereError says that an upload is on another replica.
type ElsewhereError struct{ URL string }

func (e *ElsewhereError) Error() string {
	return "the upload is on the replica at " + e.URL + "; ask that"
}

// uploadID returns an id that contains the replica's URL, so that every replica can say where the
// upload is.
func (m *Manager) uploadID() string {
	return base64.RawURLEncoding.EncodeToString([]byte(m.cfg.URL)) + "." + strings.ToLower(ulid.Make().String())
}

func (m *Manager) folder(id string) string { return filepath.Join(m.cfg.Dir, "uploads", id) }

// OpenUpload begins an upload. The list must exist.
func (m *Manager) OpenUpload(ctx context.Context, u Upload) (Upload, error) {
	var found freeslot.FieldErrors
	if u.Mode = cmp.Or(u.Mode, Replace); !slices.Contains([]Mode{Replace, Add, Remove}, u.Mode) {
		found.Addf("mode", "is %q, expected replace, add or remove", u.Mode)
	}
	if u.Format = cmp.Or(u.Format, version.CSV); u.Format != version.CSV && u.Format != version.TXT {
		found.Addf("format", "is %q, expected csv or txt", u.Format)
	}
	if u.Header = cmp.Or(u.Header, version.HeaderAuto); !slices.Contains(
		[]version.HeaderChoice{version.HeaderAuto, version.HeaderYes, version.HeaderNo}, u.Header,
	) {
		found.Addf("header", "is %q, expected auto, yes or no", u.Header)
	}
	if err := found.Err(); err != nil {
		return Upload{}, err
	}
	if _, err := m.control.Head(ctx, u.List); err != nil {
		return Upload{}, err
	}
	u.ID, u.State, u.Touched, u.Bytes, u.writing = m.uploadID(), Open, time.Now(), 0, &sync.Mutex{}
	if err := m.room(&u, 1, 0, 0); err != nil {
		return Upload{}, err
	}
	if err := os.MkdirAll(m.folder(u.ID), 0o700); err != nil { // at first use, this also makes the folder above
		return Upload{}, m.named(err)
	}
	return u, m.named(m.keep(&u))
}

// named adds to an error of the file system which folder it concerns. A replica whose lists are not
// used needs no folder, so this may be the first that its operator hears of it.
func (m *Manager) named(err error) error {
	path := ""
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		path = e.Path
	} else if e, ok := errors.AsType[*os.LinkError](err); ok {
		path = e.New
	}
	if path == "" || !strings.HasPrefix(path, m.cfg.Dir) {
		return err
	}
	return &freeslot.Error{
		Code:    freeslot.CodeUnavailable,
		Message: fmt.Sprintf("folder %s of the replica (lists.dir) cannot be used: %v", m.cfg.Dir, err),
	}
}

// keep writes what is known of an upload. A reader sees it whole.
func (m *Manager) keep(u *Upload) error {
	raw, err := json.Marshal(u)
	if err != nil {
		return err
	}
	path := filepath.Join(m.folder(u.ID), "upload.json")
	if err := os.WriteFile(path+".new", raw, 0o600); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := *u
	m.uploads[u.ID] = &kept
	return nil
}

// readUploads takes over what an earlier process has left in the folder. Its builds continue.
func (m *Manager) readUploads() error {
	folders, err := os.ReadDir(filepath.Join(m.cfg.Dir, "uploads"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing was uploaded yet
	}
	if err != nil {
		return err
	}
	goesOn := make(map[string]bool)
	for _, f := range folders {
		raw, err := os.ReadFile(filepath.Join(m.cfg.Dir, "uploads", f.Name(), "upload.json"))
		u := &Upload{}
		if err == nil {
			err = json.Unmarshal(raw, u)
		}
		if err != nil || u.ID != f.Name() {
			m.log.Warn("lists.upload_unreadable", zap.String("folder", f.Name()), zap.Error(err))
			continue
		}
		u.writing = &sync.Mutex{}
		m.mu.Lock()
		m.uploads[u.ID] = u
		m.mu.Unlock()
		if u.State == Building && u.Op != nil {
			goesOn[u.Op.ID] = true
			// The lease belongs to the earlier process. If it was lost, the first renewal says so.
			if err := m.work(u.List, *u.Op, func(ctx context.Context) error { return m.importing(ctx, *u) }); err != nil {
				m.log.Warn("lists.upload_build_failed", zap.String("upload", u.ID), zap.Error(err))
			}
		}
	}
	builds, err := os.ReadDir(filepath.Join(m.cfg.Dir, "builds"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, b := range builds {
		if !goesOn[b.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(m.cfg.Dir, "builds", b.Name())))
		}
	}
	return err
}

// Upload returns what is known of an upload. Errors: *ElsewhereError; not_found.
func (m *Manager) Upload(id string) (Upload, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u := m.uploads[id]; u != nil {
		return *u, nil
	}
	encoded, _, _ := strings.Cut(id, ".")
	if url, err := base64.RawURLEncoding.DecodeString(encoded); err == nil && string(url) != m.cfg.URL &&
		strings.Contains(string(url), "://") {
		return Upload{}, &ElsewhereError{URL: string(url)}
	}
	return Upload{}, &freeslot.Error{
		Code: freeslot.CodeNotFound, Message: "there is no upload " + id + "; an upload goes a day after its last change",
	}
}

// Chunk writes a part of an upload at an offset: where the previous part ended, or again over what
// was written. sum is its CRC-32C.
func (m *Manager) Chunk(id string, offset int64, data []byte, sum uint32) (Upload, error) {
	u, err := m.Upload(id)
	if err != nil {
		return u, err
	}
	u.writing.Lock()
	defer u.writing.Unlock()
	if u, err = m.Upload(id); err != nil {
		return u, err
	}
	switch {
	case u.State != Open:
		return u, conflict("upload %s is %s, and takes no more", id, u.State)
	case offset < 0 || offset > u.Bytes:
		return u, freeslot.Invalid("offset", "is %d, expected 0 to %d, where the upload ends", offset, u.Bytes)
	case len(data) == 0 || len(data) > MaxChunk:
		return u, freeslot.Invalid("body", "has %d bytes, expected 1 to %d", len(data), MaxChunk)
	case offset+int64(len(data)) > MaxUpload:
		return u, freeslot.Invalid("offset", "is beyond %d bytes, the largest upload", int64(MaxUpload))
	case crc32.Checksum(data, castagnoli) != sum:
		return u, freeslot.Invalid("crc32c", "is another than the CRC-32C of the body")
	}
	known := min(int64(len(data)), u.Bytes-offset)
	if err := m.repeats(id, offset, data[:known]); err != nil {
		return u, err
	}
	if data = data[known:]; len(data) > 0 {
		if err := m.room(&u, 0, int64(len(data)), int64(len(data))); err != nil {
			return u, err
		}
		if err := m.append(id, u.Bytes, data); err != nil {
			return u, err
		}
		m.metrics.uploaded.Add(float64(len(data)))
	}
	u.Bytes, u.Sum, u.Touched = u.Bytes+int64(len(data)), crc32.Update(u.Sum, castagnoli, data), time.Now()
	return u, m.keep(&u)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (m *Manager) append(id string, offset int64, data []byte) error {
	file, err := os.OpenFile(m.data(id), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(data, offset)
	if err = errors.Join(err, file.Close()); errors.Is(err, syscall.ENOSPC) {
		return overloaded("the disk of folder %s (lists.dir) is full", m.cfg.Dir)
	}
	if err = m.named(err); err != nil {
		return fmt.Errorf("write upload: %w", err)
	}
	return nil
}

// repeats compares bytes that are sent again with those received: a file that changed meanwhile
// would become a version that exists nowhere else.
func (m *Manager) repeats(id string, offset int64, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	file, err := os.Open(m.data(id))
	if err != nil {
		return err
	}
	defer file.Close()
	before := make([]byte, len(data))
	if _, err := file.ReadAt(before, offset); err != nil {
		return fmt.Errorf("read upload: %w", err)
	}
	if !bytes.Equal(before, data) {
		return &freeslot.Error{
			Code: freeslot.CodeConflict, Field: "body",
			Message: fmt.Sprintf("body is another than what upload %s has at %d; begin a new upload", id, offset),
		}
	}
	return nil
}

func (m *Manager) data(id string) string { return filepath.Join(m.folder(id), "data") }

// Commit ends the reception of an upload of size bytes, and starts the build. It can be repeated.
func (m *Manager) Commit(ctx context.Context, id string, size int64) (Upload, error) {
	u, err := m.Upload(id)
	if err != nil {
		return u, err
	}
	u.writing.Lock()
	defer u.writing.Unlock()
	if u, err = m.Upload(id); err != nil || u.State != Open {
		return u, err
	}
	if u.Bytes != size {
		return u, freeslot.Invalid("bytes", "is %d, but %d were received", size, u.Bytes)
	}
	if err := m.room(&u, 0, 0, buildShare*size); err != nil {
		return u, err
	}
	op, err := m.control.Begin(
		ctx, u.List, namelist.Begin{Kind: namelist.OpImport, Holder: m.cfg.Self, Serving: namelist.AnyVersion, By: u.By},
	)
	if err != nil {
		return u, err
	}
	u.State, u.Op, u.Touched = Building, &op, time.Now()
	if err := m.keep(&u); err != nil {
		m.giveUp(u.List, op, err)
		return u, err
	}
	if err := m.work(u.List, op, func(ctx context.Context) error { return m.importing(ctx, u) }); err != nil {
		u.State, u.Op = Open, nil
		return u, errors.Join(err, m.keep(&u))
	}
	return u, nil
}

// DropUpload forgets an upload. If it is being built, the build is cancelled.
func (m *Manager) DropUpload(ctx context.Context, id string) error {
	u, err := m.Upload(id)
	if err != nil {
		return err
	}
	if u.State == Building {
		if _, err := m.control.Cancel(ctx, u.List, u.Op.ID); err != nil && freeslot.CodeOf(err) != freeslot.CodeConflict {
			return err
		}
	}
	m.mu.Lock()
	delete(m.uploads, id)
	m.mu.Unlock()
	return os.RemoveAll(m.folder(id))
}

// endUpload records the end of an upload's build.
func (m *Manager) endUpload(u Upload, result *version.Result, v *namelist.Version, failed error) {
	if result != nil {
		u.Report = &result.Report
	}
	u.State, u.Version, u.Touched = Ready, v, time.Now()
	if failed != nil {
		u.State, u.Why = Failed, failed.Error()
	}
	err := m.keep(&u)
	if err := errors.Join(err, os.Remove(m.data(u.ID))); err != nil && !errors.Is(err, os.ErrNotExist) {
		m.log.Warn("lists.upload_not_cleared", zap.String("upload", u.ID), zap.Error(err))
	}
}

// unpublished records why the version of an upload does not serve.
func (m *Manager) unpublished(id string, why error) {
	u, err := m.Upload(id)
	if err != nil {
		return // it was dropped
	}
	if u.Unpublished = why.Error(); m.ctx.Err() != nil {
		u.Unpublished = errStopped.Error()
	}
	if err := m.keep(&u); err != nil {
		m.log.Warn("lists.upload_not_kept", zap.String("upload", id), zap.Error(err))
	}
}

// open opens the file of an upload.
func (m *Manager) open(u *Upload) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		f, err := os.Open(m.data(u.ID))
		if errors.Is(err, os.ErrNotExist) {
			return &received{ReadCloser: io.NopCloser(strings.NewReader("")), upload: u}, nil // no chunk was sent
		}
		return &received{ReadCloser: f, upload: u}, err
	}
}

// received reads the file of an upload, and fails at its end if it is not what was received: after
// a power failure the file may have holes, or be gone.
type received struct {
	io.ReadCloser

	upload *Upload
	bytes  int64
	sum    uint32
}

func (r *received) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.bytes, r.sum = r.bytes+int64(n), crc32.Update(r.sum, castagnoli, p[:n])
	if errors.Is(err, io.EOF) && (r.bytes != r.upload.Bytes || r.sum != r.upload.Sum) {
		err = fmt.Errorf(
			"the file of upload %s has lost data: %d bytes with CRC-32C %x are left of %d with %x; import it anew",
			r.upload.ID, r.bytes, r.sum, r.upload.Bytes, r.upload.Sum,
		)
	}
	return n, err
}

// dropOld removes uploads that no one has touched for a day.
func (m *Manager) dropOld() {
	m.mu.Lock()
	var old []string
	for id, u := range m.uploads {
		if u.State != Building && time.Since(u.Touched) > uploadLife {
			old = append(old, id)
			delete(m.uploads, id)
		}
	}
	m.mu.Unlock()
	for _, id := range old {
		if err := os.RemoveAll(m.folder(id)); err != nil {
			m.log.Warn("lists.upload_not_removed", zap.String("upload", id), zap.Error(err))
		}
	}
}

func overloaded(format string, args ...any) error {
	return &freeslot.Error{Code: freeslot.CodeOverloaded, Message: fmt.Sprintf(format, args...)}
}

func conflict(format string, args ...any) error {
	return &freeslot.Error{Code: freeslot.CodeConflict, Message: fmt.Sprintf(format, args...)}
}
