// Package openfeature is a provider of OpenFeature for package namelist: its flags are chains.
//
//	c, err := namelist.Open(namelist.Config{RedisURL: "redis://lists:6379"})
//	err = openfeature.SetProviderAndWait(provider.New(c, "checkout")) // of github.com/open-feature/go-sdk
//	on := openfeature.NewDefaultClient().Boolean(ctx, "checkout", false, openfeature.NewEvaluationContext("user-1", nil))
//
// # Values
//
// The targeting key is the subject's key, and the context's attributes are the subject's. A boolean
// flag is true if the chain allows and false if it denies; the variants are then "allow" and
// "deny". If the chain gives a variant, the flag's value is the variant's, which must have the type
// that was asked for. As a string, a variant without a value is its name.
//
// # Unknown
//
// If a chain's outcome is unknown, the flag has the caller's default, the reason ERROR, and one of
// these error codes: FLAG_NOT_FOUND (there is no such chain), PROVIDER_NOT_READY (it is not
// loaded), PARSE_ERROR (of a later release), TARGETING_KEY_MISSING, INVALID_CONTEXT (an attribute
// is missing or has another type), GENERAL (a list did not know). The message says which rule was
// unknown, and why.
//
// Other reasons are STATIC (a chain without rules), DEFAULT (no rule decided), SPLIT (a percentage)
// and TARGETING_MATCH (any other rule). The metadata has chain_version, and rule, stale and doubt
// if they are not empty.
//
// # Events
//
// READY, STALE (no news for three seconds), ERROR (a chain that New names decides nothing) follow
// the chains that New names. CONFIGURATION_CHANGED names a chain that has changed, if New names it
// or it was evaluated. Edits of lists are no change of configuration.
package openfeature
