package config

import "testing"

// Only a tenant that is alone has no share.
func TestSeveralTenants(t *testing.T) {
	t.Parallel()
	acme, other := Token{Tenant: "acme"}, Token{Tenant: "other"}
	oidc := Replica{}
	oidc.Auth.OIDC.Issuer = "https://issuer.example.org"
	for name, tt := range map[string]struct {
		cfg  Replica
		want bool
	}{
		"none":              {Replica{}, false},
		"one, two tokens":   {Replica{Tokens: []Token{acme, acme}}, false},
		"two":               {Replica{Tokens: []Token{acme, other}}, true},
		"one by limits too": {Replica{Tokens: []Token{acme}, Tenants: map[string]Tenant{"other": {}}}, true},
		"a file":            {Replica{TokensFile: "tokens.yaml"}, true},
		"an issuer":         {oidc, true},
	} {
		if got := tt.cfg.SeveralTenants(); got != tt.want {
			t.Errorf("%s: %t, expected %t", name, got, tt.want)
		}
	}
}

// A tenant that is named has its own keys alone; every other one has the defaults.
func TestTenantDefaults(t *testing.T) {
	t.Parallel()
	three := 3
	cfg := Replica{
		Tenants:        map[string]Tenant{"acme": {MaxRunning: 7}},
		TenantDefaults: Tenant{MaxRunning: 5, Weight: &three},
	}
	if got := cfg.Tenant("acme").MaxRunning; got != 7 {
		t.Errorf("a named tenant runs %d, expected 7", got)
	}
	if got := cfg.TenantWeight("acme"); got != 1 {
		t.Errorf("a named tenant without a weight has %d, expected 1", got)
	}
	if got := cfg.Tenant("other").MaxRunning; got != 5 {
		t.Errorf("another tenant runs %d, expected 5", got)
	}
	if got := cfg.TenantWeight("other"); got != 3 {
		t.Errorf("another tenant has the weight %d, expected 3", got)
	}
}
