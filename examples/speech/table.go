package main

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"
)

// writeTable prints one row a line of the input.
func writeTable(w io.Writer, outcomes []outcome) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(
		t, "LINE\tLANGUAGE\tJOB\tNODE\tATTEMPT\tPOSITION\tASSIGNED AFTER\tRESULT AFTER\tSTATE\tWAV BYTES\tSECONDS\tNOTE",
	)
	for i := range outcomes {
		o := &outcomes[i]
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			o.phrase.line, orDash(o.phrase.language), orDash(o.status.ID), orDash(o.status.Node), count(o.status.Attempt),
			count(o.position),
			milliseconds(o.assigned), milliseconds(o.ended), o.state(), count(o.bytes), seconds(o.seconds), o.note())
	}
	return t.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func count(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func milliseconds(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000)
}

func seconds(s float64) string {
	if s == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", s)
}
