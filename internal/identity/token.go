package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/tokenfile"
)

// Credential is a token of the configuration, and the caller that it identifies.
type Credential struct {
	Token string
	Principal
}

// tokenLine is a token in the file.
type tokenLine struct {
	Name    string     `yaml:"name"`
	Role    Role       `yaml:"role"`
	Tenant  string     `yaml:"tenant"`
	SHA256  string     `yaml:"sha256"`
	Expires *time.Time `yaml:"expires,omitempty"`
	// The scopes. An empty list is not the same as none.
	Lists     *[]string `yaml:"lists,omitempty,flow"`
	Services  *[]string `yaml:"services,omitempty,flow"`
	Documents *[]string `yaml:"documents,omitempty,flow"`
}

var (
	tokenKeys = []string{"name", "role", "tenant", "sha256", "expires", "lists", "services", "documents"}
	scopeKeys = tokenKeys[len(tokenKeys)-3:]
)

// NewToken makes a secret for a caller, and its line of the tokens file, without the newline. The
// error names the first field that a tokens file would refuse.
func NewToken(p Principal) (secret, line string, err error) {
	secret, p.digest = tokenfile.NewSecret("fst_")
	line, err = p.line()
	return secret, line, err
}

func (p *Principal) line() (string, error) {
	l := tokenLine{Name: p.Name, Role: p.Role, Tenant: p.Tenant, SHA256: hex.EncodeToString(p.digest[:])}
	if !p.Expires.IsZero() {
		at := p.Expires.UTC().Truncate(time.Second)
		l.Expires = &at
	}
	l.Lists, l.Services, l.Documents = written(p.Scopes.Lists), written(p.Scopes.Services), written(p.Scopes.Documents)
	if _, err := l.principal(); err != nil {
		return "", err
	}
	return tokenfile.Line(l)
}

// CheckTokens returns the number of tokens in the text of a tokens file, and all that is wrong with
// it.
func CheckTokens(text []byte) (tokens int, problems []error) {
	return tokenfile.Check(text, parseToken)
}

func parseToken(item *yaml.Node) (*Principal, tokenfile.Head, error) {
	var line tokenLine
	if err := tokenfile.Decode(item, tokenKeys, &line, scopeKeys...); err != nil {
		return nil, tokenfile.Head{}, err
	}
	p, err := line.principal()
	return p, tokenfile.Head{Name: p.Name, Digest: p.digest, Expires: p.Expires}, err
}

// inlineName is the configuration's key of tokens.
const inlineName = "tokens"

// problemKey is the key of a line that stands for a token of the configuration which cannot be
// used.
const problemKey = "problem"

// parseInline reads a line of inlineText, where the tenant stands for the name.
func parseInline(item *yaml.Node) (*Principal, tokenfile.Head, error) {
	if item.Kind == yaml.MappingNode && item.Content[0].Value == problemKey {
		return nil, tokenfile.Head{}, errors.New(item.Content[1].Value)
	}
	p, head, err := parseToken(item)
	if p != nil {
		p.Name = ""
	}
	return p, head, err
}

// principal converts and checks the line. The error begins with the field.
func (l *tokenLine) principal() (*Principal, error) {
	p := &Principal{Name: l.Name, Tenant: l.Tenant, Role: l.Role}
	if err := freeslot.ValidateName("name", l.Name); err != nil {
		return p, tokenfile.PlainCoded(err)
	}
	if !slices.Contains(Roles[:], l.Role) {
		return p, fmt.Errorf("role is %.40q, expected %s", l.Role, strings.Join(RoleNames(), ", "))
	}
	if err := freeslot.ValidateName("tenant", l.Tenant); err != nil {
		return p, tokenfile.PlainCoded(err)
	}
	var err error
	if p.Expires, err = tokenfile.Expiry(l.Expires); err != nil {
		return p, err
	}
	p.Scopes = Scopes{unwritten(l.Lists), unwritten(l.Services), unwritten(l.Documents)}
	if err := p.Scopes.check(l.Role); err != nil {
		return p, err
	}
	p.digest, err = tokenfile.Digest(l.SHA256)
	return p, err
}

// written returns the form of patterns in a line, where nil is left out and an empty list is not.
func written(patterns []string) *[]string {
	if patterns == nil {
		return nil
	}
	return &patterns
}

// unwritten is the reverse of written.
func unwritten(patterns *[]string) []string {
	if patterns == nil {
		return nil
	}
	return *patterns
}

// inlineText writes the tokens of the configuration as a tokens file, which is then read like one.
func inlineText(read func() ([]Credential, []error, error)) func() ([]byte, error) {
	return func() ([]byte, error) {
		tokens, problems, err := read()
		if err != nil {
			return nil, err
		}
		var text strings.Builder
		for _, t := range tokens {
			t.Name, t.digest = t.Tenant, sha256.Sum256([]byte(t.Token))
			line, err := t.line()
			if err != nil {
				problems = append(problems, err)
				continue
			}
			text.WriteString(line + "\n")
		}
		for _, p := range problems {
			line, err := tokenfile.Line(map[string]string{problemKey: p.Error()})
			if err != nil {
				return nil, err
			}
			text.WriteString(line + "\n")
		}
		return []byte(text.String()), nil
	}
}
