package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/history"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func TestHistory(t *testing.T) {
	t.Parallel()
	l := start(t)
	waittest.Until(t, "a figure of the fleet", func() bool {
		var got history.HistoryTable
		out := l.ctl(t, "history", "--since", "1m", "-o", "json").expect(t, exitOK).out
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		i := slices.Index(got.Columns, "nodes_online")
		return slices.ContainsFunc(got.Rows, func(row []history.Figure) bool { return row[i] != nil })
	})
	l.ctl(t, "history", "--since", "1m", "--series", "nodes_online,waiting").expect(t, exitOK, "SERIES", "nodes_online", "waiting")
	l.ctl(t, "history", "--series", "nodes").expect(t, exitUsage, "--series nodes is unknown, expected of arrivals_placed")
	l.ctl(t, "history", "--since", "2d").expect(t, exitFailure, "since")
}

func TestHistoryRow(t *testing.T) {
	t.Parallel()
	figures := func(values ...float64) (all []history.Figure) {
		for _, v := range values {
			if v < 0 {
				all = append(all, nil)
			} else {
				all = append(all, &v)
			}
		}
		return all
	}
	long := make([]float64, 121)
	long[0], long[119] = 7, 4
	for _, c := range []struct {
		values []float64
		want   []string
	}{
		{[]float64{0, 7, -1, 3.5}, []string{"s", "3.5", "0", "7", "▁█ ▄"}},
		{[]float64{2_500_000, -1}, []string{"s", "-", "2.50M", "2.50M", "█ "}},
		{[]float64{0, 0}, []string{"s", "0", "0", "0", "▁▁"}},
		{[]float64{-1}, []string{"s", "-", "-", "-", ""}},
		{nil, []string{"s", "-", "-", "-", ""}},
		{long, []string{"s", "0", "0", "7", "█" + strings.Repeat("▁", 39) + "▅"}},
	} {
		if got := historyRow("s", figures(c.values...)); !slices.Equal(got, c.want) {
			t.Errorf("%v: %q; want %q", c.values, got, c.want)
		}
	}
}
