package own

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/namelist"
)

const (
	// MaxBorrowed bounds the lists that are borrowed at a time: as many as two documents can ask.
	MaxBorrowed = 128
	// borrowedFor is how long they are followed once no one uses them.
	borrowedFor = 5 * time.Minute
	// closeTimeout bounds the end of a client.
	closeTimeout = 5 * time.Second
)

// guest is a client of its own for borrowed lists. A client never stops to follow a list, so the
// guest closes, and lets go all of them.
type guest struct {
	client *namelist.Client // nil without lists
	lists  map[string]bool
	users  int
	expiry *time.Timer // nil before the first release
}

// Borrow returns a client for documents that are no version of a chain, and ask these lists. They
// are let go some minutes after the last release, or sooner if others need their place. Errors:
// overloaded, while others use too many lists.
func (l *Lists) Borrow(lists []string) (client *namelist.Client, release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return nil, nil, errStopped
	}
	g := &l.guest
	all := make(map[string]bool, len(lists)+len(g.lists))
	for name := range g.lists {
		all[name] = true
	}
	for _, name := range lists {
		all[name] = true
	}
	if len(all) > MaxBorrowed && g.users > 0 {
		return nil, nil, &freeslot.Error{
			Code: freeslot.CodeOverloaded, RetryAfter: time.Second,
			Message: fmt.Sprintf("comparisons under way use %d lists, of at most %d", len(g.lists), MaxBorrowed),
		}
	}
	if len(all) > MaxBorrowed {
		l.letGo()
		clear(all)
		for _, name := range lists {
			all[name] = true
		}
	}
	if g.client == nil {
		cfg := l.cfg
		cfg.Registerer = nil // the other client has the metrics
		if g.client, err = namelist.Open(cfg); err != nil {
			return nil, nil, err
		}
	}
	if g.expiry != nil {
		g.expiry.Stop()
	}
	g.lists = all
	g.users++
	return g.client, sync.OnceFunc(l.giveBack), nil
}

func (l *Lists) giveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.guest.users--; l.guest.users == 0 && l.guest.client != nil {
		l.guest.expiry = time.AfterFunc(borrowedFor, l.expire)
	}
}

// expire lets the lists go, unless someone uses them again.
func (l *Lists) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.guest.users == 0 {
		l.letGo()
	}
}

// letGo closes the guest's client. The caller holds mu.
func (l *Lists) letGo() {
	g := &l.guest
	if g.expiry != nil {
		g.expiry.Stop()
	}
	client := g.client
	g.client, g.lists = nil, nil
	if client == nil {
		return
	}
	l.closing.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = client.Close(ctx) // its reports end by themselves
	})
}
