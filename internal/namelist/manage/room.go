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

// room refuses further uploads, bytes in open uploads, or bytes on the disk, if they would exceed
// the quota.
func (m *Manager) room(uploads int, bytes, disk int64) error {
	m.mu.Lock()
	kept, open := len(m.uploads), uploads
	for _, u := range m.uploads {
		if u.State == Open || u.State == Building {
			open++
			bytes += u.Bytes
		}
	}
	m.mu.Unlock()
	switch {
	case kept+uploads > maxUploads:
		return overloaded("this replica has %d uploads; delete some, or wait a day", kept)
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
