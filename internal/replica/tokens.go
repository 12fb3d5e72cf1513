package replica

import (
	"cmp"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/replica/config"
)

func newAuthenticator(cfg config.Replica, log *zap.Logger) (*identity.Authenticator, error) {
	auth := identity.Config{
		OpenTenant: config.DefaultTenant, OperatorsAreAdmins: cfg.Auth.OperatorsAreAdmins, TokensFile: cfg.TokensFile,
		Log: log.Named("auth"),
	}
	if len(cfg.Tokens) > 0 {
		read := cfg.ReadTokens
		if read == nil {
			read = config.TokensReader(cfg.Tokens, config.Options{})
		}
		auth.Inline = func() (all []identity.Credential, problems []error, err error) {
			tokens, bad, err := read()
			for _, p := range bad {
				problems = append(problems, errors.New(p.String()))
			}
			for _, t := range tokens {
				all = append(all, identity.Credential{
					Token: t.Token, Principal: identity.Principal{Tenant: t.Tenant, Role: cmp.Or(t.Role, identity.Client)},
				})
			}
			return all, problems, err
		}
	}
	if o := cfg.Auth.OIDC; o.On() {
		auth.OIDC = &identity.OIDC{
			Issuer: o.Issuer, Audience: o.Audience, JWKSFile: o.JWKSFile, Algorithms: o.Algorithms, ClockSkew: o.ClockSkew,
			NameClaim: o.Claims.Name, TenantClaim: o.Claims.Tenant, RoleClaim: o.Claims.Role,
			ScopesClaim: o.Claims.Scopes, Roles: o.Roles,
		}
	}
	return identity.New(auth)
}

// tokensModule starts before the gateway and the front, which ask who a caller is.
func tokensModule() fx.Option {
	return fx.Module("tokens", fx.Provide(newAuthenticator),
		fx.Invoke(func(hook feature.Hook, auth *identity.Authenticator, reg prometheus.Registerer) {
			auth.Register(reg)
			hook(feature.Step{Start: auth.Start, Stop: auth.Stop})
		}))
}
