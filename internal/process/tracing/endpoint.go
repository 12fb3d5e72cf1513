package tracing

import (
	"net/url"
	"strings"
)

// tracesURL adds OTLP's path to a base URL without one, as OTEL_EXPORTER_OTLP_ENDPOINT does. The
// exporter adds none.
func tracesURL(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || strings.Trim(u.Path, "/") != "" {
		return endpoint
	}
	u.Path = "/v1/traces"
	return u.String()
}
