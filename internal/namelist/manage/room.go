package manage

// quota bounds what the uploads of a replica take; tests have a smaller one.
type quota struct {
	// open is how many uploads may be open or in a build, bytes how many bytes these may have.
	open  int
	bytes int64
	// free is the disk space that must stay free.
	free int64
}

var defaultQuota = quota{open: 100, bytes: 4 * MaxUpload, free: 64 << 20}

// buildShare is how many bytes of disk a build needs for each byte of its upload.
const buildShare = 2

// tenantShare is which part of the quota the uploads of one tenant may take: a quarter.
const tenantShare = 4

// room refuses further uploads, bytes in open uploads, or bytes on the disk, if they would exceed
// the quota, or the share of the tenant of u.
func (m *Manager) room(u *Upload, uploads int, bytes, disk int64) error {
	if u.Shared {
		kept, open, has := m.taking(uploads, bytes, func(other *Upload) bool {
			return other.Shared && other.Tenant == u.Tenant
		})
		if kept > maxUploads/tenantShare || open > m.quota.open/tenantShare || has > m.quota.bytes/tenantShare {
			return overloaded(
				"the share of tenant %s on this replica is full: it may have %d uploads, %d open ones and %d bytes in these, "+
					"a quarter; end or delete some, or try another replica",
				u.Tenant, maxUploads/tenantShare, m.quota.open/tenantShare, m.quota.bytes/tenantShare,
			)
		}
	}
	kept, open, bytes := m.taking(uploads, bytes, func(*Upload) bool { return true })
	switch {
	case kept > maxUploads:
		return overloaded("this replica has %d uploads; delete some, or wait a day", kept-uploads)
	case open > m.quota.open:
		return overloaded("this replica has %d open uploads; end or delete some, or try another replica", open-uploads)
	case bytes > m.quota.bytes:
		return overloaded(
			"the open uploads of this replica would have %d bytes, and may have %d; end or delete some, or try another replica",
			bytes, m.quota.bytes,
		)
	}
	if free, known := diskFree(m.cfg.Dir); known && free-disk < m.quota.free {
		return overloaded(
			"the disk of folder %s (lists.dir) has %d bytes free; uploads and builds need %d, and %d must stay free", m.cfg.Dir,
			free, disk, m.quota.free,
		)
	}
	return nil
}

// taking returns how many uploads would be kept, how many open, and the bytes of the open ones,
// with this many more.
func (m *Manager) taking(uploads int, more int64, of func(*Upload) bool) (kept, open int, bytes int64) {
	kept, open, bytes = uploads, uploads, more
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.uploads {
		if !of(u) {
			continue
		}
		kept++
		if u.State == Open || u.State == Building {
			open++
			bytes += u.Bytes
		}
	}
	return kept, open, bytes
}
