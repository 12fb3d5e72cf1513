package identity

import (
	"crypto/sha256"
	"time"
)

// Principal is a caller.
type Principal struct {
	// Name names the caller for people: its token's name, or the subject of a signed token. It is
	// empty for a token of the configuration, which has none.
	Name string
	// Tenant owns the jobs that the caller submits.
	Tenant string
	Role   Role
	Scopes Scopes
	// Expires is when the caller is no longer known; zero: never.
	Expires time.Time

	digest [sha256.Size]byte // of the token
	// key is the thumbprint of the key that has signed the token; empty for a token of a file.
	key string
	// raised is true for an operator who is an admin while operators are admins.
	raised bool
}
