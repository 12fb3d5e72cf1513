package identity

import "context"

type knownKey struct{}

// As returns a context in which requests come from a caller who was identified before, and not by
// a token in the request.
func As(ctx context.Context, who *Principal) context.Context {
	return context.WithValue(ctx, knownKey{}, who)
}

// IsKnown reports whether the caller was identified before the request: by the cookie of the
// console, or because the console itself asks for its user.
func IsKnown(ctx context.Context) bool { return known(ctx) != nil }

// known returns nil if the request's caller was not identified before.
func known(ctx context.Context) *Principal {
	who, _ := ctx.Value(knownKey{}).(*Principal)
	return who
}
