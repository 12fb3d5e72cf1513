package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/tokenfile"
)

// maxLabels bounds the labels of a line.
const maxLabels = 64

// tokenLine is a [Token] in the file.
type tokenLine struct {
	Name         string              `yaml:"name"`
	SHA256       string              `yaml:"sha256"`
	Nodes        []string            `yaml:"nodes,flow"`
	Expires      *time.Time          `yaml:"expires,omitempty"`
	Certificate  string              `yaml:"certificate,omitempty"`
	Services     []string            `yaml:"services,omitempty,flow"`
	Pools        []string            `yaml:"pools,omitempty,flow"`
	Labels       map[string][]string `yaml:"labels,omitempty,flow"`
	Capabilities []string            `yaml:"capabilities,omitempty,flow"`
	Slots        int                 `yaml:"slots,omitempty"`
}

var tokenKeys = []string{
	"name", "sha256", "nodes", "expires", "certificate", "services", "pools", "labels", "capabilities", "slots",
}

// NewSecret makes a token's secret, and its digest for the tokens file.
func NewSecret() (secret string, digest [sha256.Size]byte) { return tokenfile.NewSecret("fsn_") }

// Line returns the token as a line of the tokens file, without the newline. The error names the
// first field that a tokens file would refuse.
func (t *Token) Line() (string, error) {
	line := tokenLine{
		Name: t.Name, SHA256: hex.EncodeToString(t.Digest[:]), Nodes: t.Nodes,
		Certificate: t.Certificate,
		Services:    t.Services, Pools: t.Pools, Labels: t.Labels, Capabilities: t.Capabilities, Slots: t.Slots,
	}
	if !t.Expires.IsZero() {
		at := t.Expires.UTC().Truncate(time.Second)
		line.Expires = &at
	}
	if _, err := line.token(); err != nil {
		return "", err
	}
	return tokenfile.Line(line)
}

func parseToken(item *yaml.Node) (Token, tokenfile.Head, error) {
	var line tokenLine
	if err := tokenfile.Decode(item, tokenKeys, &line); err != nil {
		return Token{}, tokenfile.Head{}, err
	}
	t, err := line.token()
	return t, tokenfile.Head{Name: t.Name, Digest: t.Digest, Expires: t.Expires}, err
}

// token converts and checks the line. The error begins with the field.
func (l *tokenLine) token() (t Token, err error) {
	t = Token{
		Name: l.Name, Nodes: l.Nodes, Services: l.Services, Pools: l.Pools, Capabilities: l.Capabilities, Labels: l.Labels,
		Slots: l.Slots, Certificate: l.Certificate,
	}
	if err := freeslot.ValidateName("name", l.Name); err != nil {
		return t, tokenfile.PlainCoded(err)
	}
	if t.Digest, err = tokenfile.Digest(l.SHA256); err != nil {
		return t, err
	}
	if len(l.Nodes) == 0 {
		return t, errors.New("nodes is empty, expected the ids of nodes, or patterns such as gpu-*")
	}
	if t.Expires, err = tokenfile.Expiry(l.Expires); err != nil {
		return t, err
	}
	if len(l.Certificate) > maxCertificateName || strings.ContainsFunc(l.Certificate, unicode.IsControl) {
		return t, fmt.Errorf("certificate is no name, expected a line of at most %d bytes", maxCertificateName)
	}
	if l.Slots < 0 || l.Slots > frame.MaxSlots {
		return t, fmt.Errorf("slots is %d, expected 1 to %d, or none for no limit", l.Slots, frame.MaxSlots)
	}
	for _, list := range []struct {
		key      string
		patterns []string
	}{{"nodes", l.Nodes}, {"services", l.Services}, {"pools", l.Pools}, {"capabilities", l.Capabilities}} {
		if err := tokenfile.CheckPatterns(list.key, list.patterns, tokenfile.NamePattern); err != nil {
			return t, err
		}
	}
	return t, l.checkLabels()
}

func (l *tokenLine) checkLabels() error {
	if len(l.Labels) > maxLabels {
		return fmt.Errorf("labels has %d entries, expected at most %d", len(l.Labels), maxLabels)
	}
	for _, label := range slices.Sorted(maps.Keys(l.Labels)) {
		if err := freeslot.ValidateName("labels", label); err != nil {
			return tokenfile.PlainCoded(err)
		}
		if len(l.Labels[label]) == 0 {
			return fmt.Errorf("labels.%s has no values, expected values, or patterns such as eu-*", label)
		}
		if err := tokenfile.CheckPatterns(
			"labels."+label, l.Labels[label], func(value string) bool { return len(value) <= freeslot.MaxLabelValueLength },
		); err != nil {
			return err
		}
	}
	return nil
}
