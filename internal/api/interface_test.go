package api_test

import (
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/session"
)

// The production types implement the interfaces.
var (
	_ api.Jobs              = (*dispatch.Dispatcher)(nil)
	_ api.Nodes             = (*cache.Cache)(nil)
	_ session.Authenticator = (*identity.Authenticator)(nil)
)
