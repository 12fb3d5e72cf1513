// Package boards reads the alerts of deploy/prometheus and the boards of deploy/grafana.
package boards

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

var promQL = parser.NewParser(parser.Options{})

// Rule is an alert, or a recording rule.
type Rule struct {
	rulefmt.Rule
	// Name is the name of the alert or of the recorded metric.
	Name  string
	Query Query
}

// Rules returns the rules of a file. It returns an error if Prometheus would not load it.
func Rules(file string) ([]Rule, error) {
	groups, errs := rulefmt.ParseFile(file, false, model.LegacyValidation, promQL, slog.Default())
	if len(errs) > 0 {
		return nil, errs[0]
	}
	var all []Rule
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			query, err := Parse(r.Expr)
			if err != nil {
				return nil, fmt.Errorf("%s%s: %w", r.Alert, r.Record, err)
			}
			all = append(all, Rule{Rule: r, Name: r.Alert + r.Record, Query: query})
		}
	}
	return all, nil
}

// Use is a metric of an expression, and all labels that the expression expects of it.
type Use struct {
	Metric string
	Labels []string
}

// Query is a parsed expression.
type Query struct {
	Uses []Use
	// Numbers are the numbers in the expression.
	Numbers []float64
	// Aggregates is true if it groups series; Kept are the labels of the groups.
	Aggregates bool
	Kept       []string
}

// Parse parses an expression. A label of a grouping or a matching counts for all metrics below it.
func Parse(text string) (Query, error) {
	expr, err := promQL.ParseExpr(text)
	if err != nil {
		return Query{}, err
	}
	var q Query
	q.walk(expr, nil)
	return q, nil
}

func (q *Query) walk(node parser.Node, outer []string) {
	switch n := node.(type) {
	case *parser.NumberLiteral:
		q.Numbers = append(q.Numbers, n.Val)
	case *parser.VectorSelector:
		use := Use{Metric: n.Name, Labels: slices.Clone(outer)}
		for _, m := range n.LabelMatchers {
			if m.Name == model.MetricNameLabel {
				use.Metric = m.Value
				continue
			}
			use.Labels = append(use.Labels, m.Name)
		}
		q.Uses = append(q.Uses, use)
	case *parser.AggregateExpr:
		if n.Op != parser.TOPK {
			q.Aggregates, q.Kept = true, append(q.Kept, n.Grouping...)
		}
		if !n.Without {
			outer = append(slices.Clone(outer), n.Grouping...)
		}
	case *parser.BinaryExpr:
		if m := n.VectorMatching; m != nil && m.On {
			outer = append(slices.Clone(outer), m.MatchingLabels...)
		}
	}
	for child := range parser.ChildrenIter(node) {
		q.walk(child, outer)
	}
}

// Base returns the name of the family that a series belongs to: of a histogram's parts, the
// histogram.
func Base(metric string) string {
	for _, part := range []string{"_bucket", "_count", "_sum"} {
		if base, ok := strings.CutSuffix(metric, part); ok {
			return base
		}
	}
	return metric
}
