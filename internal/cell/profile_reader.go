package cell

import (
	"sync"

	"github.com/freeslot/freeslot/internal/cell/profile"
)

// profileReader keeps a decoder from page to page of a load.
type profileReader struct {
	mu      sync.Mutex
	decoder *profile.Decoder // nil before the first page and after the last
}

// lock returns the decoder. The caller may use it until unlock.
func (r *profileReader) lock() *profile.Decoder {
	r.mu.Lock()
	if r.decoder == nil {
		r.decoder = profile.NewDecoder()
	}
	return r.decoder
}

func (r *profileReader) unlock(more bool) {
	if !more {
		r.decoder = nil
	}
	r.mu.Unlock()
}
