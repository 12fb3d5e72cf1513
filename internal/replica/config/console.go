package config

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/freeslot/freeslot/internal/loopback"
)

// Console tunes the page for operators.
type Console struct {
	// With `false` this replica does not serve it.
	Enabled bool `koanf:"enabled"`
	// How many pages may get live updates from this replica at a time, 1 to 10000. Where several
	// tenants are configured, one of them may have half of these.
	MaxViewers int `koanf:"max_viewers"`
	// The address of a Prometheus that scrapes all replicas, such as `http://prometheus:9090`. Figures
	// of more than 24 hours, up to 90 days, come from there.
	PrometheusURL string `koanf:"prometheus_url"`
	// A file with the bearer token for that Prometheus. It is read for each query.
	PrometheusTokenFile string `koanf:"prometheus_token_file"`
	// Labels that its series of this system have, such as `job: freeslot`. Set them where it scrapes
	// several systems.
	PrometheusLabels map[string]string `koanf:"prometheus_labels"`
	// With `false` the page shows no payloads and results of jobs to anyone, and this replica refuses
	// them to those who signed in there.
	Payloads bool `koanf:"payloads"`
	// Links from a job to other systems, such as its trace or its log, at most 10.
	Links []Link `koanf:"links"`
}

// Link leads from a job to another system.
type Link struct {
	// What the link is called, such as `Trace`.
	Name string `koanf:"name"`
	// The address, which begins with https:// or http://, such as
	// `https://tempo.example.com/trace/{trace}`. `{id}`, `{trace}`, `{node}`, `{tenant}`, `{service}`
	// and `{attempt}` behind the host stand for the values of the job, escaped. A job that lacks one
	// of them has no such link.
	URL string `koanf:"url"`
}

const (
	maxLinks    = 10
	maxLinkName = 40
)

// linkParts are the names that the address of a link may have in braces.
var linkParts = []string{"id", "trace", "node", "tenant", "service", "attempt"}

var linkPart = regexp.MustCompile(`\{[^{}]*\}`)

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

func (c *Console) validate(p *Problems) {
	p.Between("console.max_viewers", c.MaxViewers, 1, 10_000)
	c.validatePrometheus(p)
	if len(c.Links) > maxLinks {
		p.Addf("console.links", "has %d links, expected at most %d", len(c.Links), maxLinks)
	}
	for i, l := range c.Links {
		l.validate(element("console.links", i), p)
	}
}

func (l *Link) validate(at string, p *Problems) {
	if name := strings.TrimSpace(l.Name); name == "" || len(l.Name) > maxLinkName {
		p.Addf(join(at, "name"), "is %q, expected 1 to %d characters", l.Name, maxLinkName)
	}
	for _, part := range linkPart.FindAllString(l.URL, -1) {
		if !slices.Contains(linkParts, strings.Trim(part, "{}")) {
			p.Addf(join(at, "url"), "has %s, expected {%s}", part, strings.Join(linkParts, "}, {"))
			return
		}
	}
	// Whatever stands for a part, it is in no scheme, user or host.
	plain := linkPart.ReplaceAllString(l.URL, "x")
	u, err := url.Parse(plain)
	begin, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(l.URL, "https://"), "http://"), "/")
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" ||
		strings.ContainsAny(begin, "{}?#") || strings.ContainsAny(plain, "{}") {
		p.Addf(join(at, "url"), "is %q, expected an address such as https://tempo.example.com/trace/{trace}", l.URL)
	}
}

func (c *Console) validatePrometheus(p *Problems) {
	if c.PrometheusURL == "" {
		if c.PrometheusTokenFile != "" || len(c.PrometheusLabels) > 0 {
			p.Addf("console.prometheus_url", "is missing, expected the address of a Prometheus such as http://prometheus:9090")
		}
		return
	}
	u, err := url.Parse(c.PrometheusURL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		p.Addf("console.prometheus_url", "is no address that begins with http:// or https://")
	case u.User != nil:
		p.Addf("console.prometheus_url", "has a user, expected a bearer token in console.prometheus_token_file")
	case u.RawQuery != "" || u.Fragment != "":
		p.Addf("console.prometheus_url", "has a query or a fragment, expected an address such as http://prometheus:9090")
	case c.PrometheusTokenFile != "" && u.Scheme != "https" && !loopback.Is(u.Hostname()):
		p.Addf(
			"console.prometheus_url", "would carry the token of console.prometheus_token_file in the clear, expected https",
		)
	}
	if c.PrometheusTokenFile != "" {
		_, err := ReadFile(c.PrometheusTokenFile)
		p.Add("console.prometheus_token_file", err)
	}
	for name := range c.PrometheusLabels {
		if !labelName.MatchString(name) || strings.HasPrefix(name, "__") {
			p.Addf("console.prometheus_labels", "has %q, expected names of labels such as job", name)
		}
	}
}
