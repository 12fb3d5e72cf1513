package reference

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freeslot/freeslot/internal/testing/redistest/golden"
)

// Metrics returns a table of freeslot's own metrics among the registered ones.
func Metrics(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	var rows [][]string
	for _, m := range golden.Described(t, registry) {
		rows = append(rows, []string{code(m.Name), code(m.Labels), m.Help})
	}
	return RowsTable([]string{"metric", "labels", "meaning"}, rows)
}
