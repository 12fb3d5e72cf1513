package manage

import (
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// Uploads are bounded in number and bytes, and leave room on the disk.
func TestUploadsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	overloaded := func(err error, why string) {
		t.Helper()
		if freeslot.CodeOf(err) != freeslot.CodeOverloaded || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, expected overloaded: %s", err, why)
		}
	}
	send := func(u Upload, offset int64, text string) (Upload, error) {
		return r.Chunk(u.ID, offset, []byte(text), crc32.Checksum([]byte(text), castagnoli))
	}
	r.quota = quota{open: 2, bytes: 10}
	u, err := r.OpenUpload(r.ctx, Upload{List: "vip", Format: version.TXT, By: by})
	r.check(err)
	other, err := r.OpenUpload(r.ctx, Upload{List: "vip", By: by})
	r.check(err)
	_, err = r.OpenUpload(r.ctx, Upload{List: "vip", By: by})
	overloaded(err, "has 2 open uploads")
	_, err = send(u, 0, "abc\nd\n")
	r.check(err)
	_, err = send(other, 0, "12345")
	overloaded(err, "would have 11 bytes, and may have 10")
	r.check(r.DropUpload(r.ctx, other.ID))

	if _, err = send(u, 2, "X\nd\n"); freeslot.CodeOf(err) != freeslot.CodeConflict {
		t.Errorf("another text than before: %v", err)
	}
	_, err = send(u, 4, "d\nef")
	r.check(err)
	u, err = send(u, 0, "abc\n")
	r.check(err)
	if want := crc32.Checksum([]byte("abc\nd\nef"), castagnoli); u.Bytes != 8 || u.Sum != want {
		t.Errorf("%d bytes, sum %08x; expected 8, %08x", u.Bytes, u.Sum, want)
	}

	r.quota.free = 1 << 60
	_, err = send(u, 8, "g")
	overloaded(err, "the disk of folder "+r.cfg.Dir)
	_, err = r.Commit(r.ctx, u.ID, 8)
	overloaded(err, "16, and")
	_, err = r.OpenUpload(r.ctx, Upload{List: "vip", By: by})
	overloaded(err, "lists.dir")
	r.quota.free = 0
	_, err = r.Commit(r.ctx, u.ID, 8)
	r.check(err)
	if u = r.ended(u.ID); u.State != Ready || u.Version.Count != 3 {
		t.Errorf("%+v; want u.State == Ready, u.Version.Count == 3", u)
	}
	r.quota.open = 0
	_, err = r.OpenUpload(r.ctx, Upload{List: "vip", By: by})
	overloaded(err, "has 0 open uploads") // the one that has ended does not count
}

// TestTenantsShareUploads: one tenant takes at most a quarter of a replica's uploads, open uploads
// and their bytes. Others, and those that are not bound to a tenant, go on.
func TestTenantsShareUploads(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	full := func(err error) {
		t.Helper()
		if freeslot.CodeOf(err) != freeslot.CodeOverloaded || !strings.Contains(err.Error(), "share of tenant shop") {
			t.Errorf("%v; want overloaded: the share of tenant shop", err)
		}
	}
	open := func(tenant string, shared bool) (Upload, error) {
		return r.OpenUpload(r.ctx, Upload{List: "vip", Format: version.TXT, By: by, Tenant: tenant, Shared: shared})
	}
	send := func(u Upload, text string) error {
		_, err := r.Chunk(u.ID, 0, []byte(text), crc32.Checksum([]byte(text), castagnoli))
		return err
	}
	r.quota = quota{open: 8, bytes: 40}
	first, err := open("shop", true)
	r.check(err)
	second, err := open("shop", true)
	r.check(err)
	_, err = open("shop", true)
	full(err)
	other, err := open("bank", true)
	r.check(err)
	_, err = open("shop", false)
	r.check(err)

	r.check(send(first, "12345\n"))
	full(send(second, "1234\n"))
	r.check(send(other, "12345678\n"))

	r.check(r.DropUpload(r.ctx, second.ID))
	r.mu.Lock()
	for i := range maxUploads/4 - 1 {
		id := fmt.Sprint("ended", i)
		r.uploads[id] = &Upload{ID: id, State: Failed, Tenant: "shop", Shared: true, Touched: time.Now()}
	}
	r.mu.Unlock()
	_, err = open("shop", true)
	full(err)
	_, err = open("bank", true)
	r.check(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range maxUploads/4 - 1 {
		delete(r.uploads, fmt.Sprint("ended", i)) // they have no folder
	}
}
