package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestGraph(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	code := run([]string{"graph"}, &environment{ctx: t.Context(), out: &out, err: &errs})
	if code != exitOK || errs.Len() > 0 || !strings.HasPrefix(out.String(), "digraph {") {
		t.Errorf("exit %d, %.200q, %q; expected 0 and a graph", code, &out, &errs)
	}
}
