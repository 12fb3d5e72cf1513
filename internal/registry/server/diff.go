package server

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// diffContext is how many equal lines stand around a difference.
	diffContext = 3
	// maxDiffSteps bounds the lines that differ. Texts that differ more are shown as removed and
	// added as a whole.
	maxDiffSteps = 1000
)

// edit is a line of a difference: ' ', '-' or '+'.
type edit struct {
	op   byte
	text string
}

// diffText returns the difference of two texts as diff -u shows it, without names; "" if they are
// equal.
func diffText(a, b string) string {
	if a == b {
		return ""
	}
	return unified(diffLines(lines(a), lines(b)))
}

// lines returns the lines of a text. If the last line does not end in a newline, it says so.
func lines(s string) []string {
	out := strings.SplitAfter(s, "\n")
	if last := len(out) - 1; out[last] == "" {
		out = out[:last]
	} else {
		out[last] += "\n\\ No newline at end of file\n"
	}
	return out
}

// diffLines returns the fewest edits that turn a into b (E. Myers, An O(ND) Difference Algorithm,
// 1986).
func diffLines(a, b []string) []edit {
	head := 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var out []edit
	add := func(op byte, lines []string) {
		for _, l := range lines {
			out = append(out, edit{op, l})
		}
	}
	add(' ', a[:head])
	inA, inB := a[head:len(a)-tail], b[head:len(b)-tail]
	if middle, ok := shortest(inA, inB); ok {
		out = append(out, middle...)
	} else {
		add('-', inA)
		add('+', inB)
	}
	add(' ', a[len(a)-tail:])
	return out
}

// shortest walks the diagonals k = x-y: far[k] is how far d edits lead on diagonal k. ok is false
// beyond maxDiffSteps.
func shortest(a, b []string) (out []edit, ok bool) {
	limit := min(len(a)+len(b), maxDiffSteps)
	far := make([]int, 2*limit+3)
	at := func(k int) *int { return &far[k+limit+1] }
	var trace [][]int // far[-d..d] before step d
	for d := 0; d <= limit; d++ {
		trace = append(trace, slices.Clone(far[limit+1-d:limit+2+d]))
		for k := -d; k <= d; k += 2 {
			x := 0
			if d > 0 {
				x = after(k, d, *at(k - 1), *at(k + 1))
			}
			y := x - k
			for x < len(a) && y < len(b) && a[x] == b[y] {
				x, y = x+1, y+1
			}
			*at(k) = x
			if x >= len(a) && y >= len(b) {
				return walkBack(a, b, trace), true
			}
		}
	}
	return nil, false
}

// after returns where diagonal k begins at step d: by an added line from above, or by a removed
// line from the left.
func after(k, d int, left, above int) int {
	if k == -d || k != d && left < above {
		return above
	}
	return left + 1
}

// walkBack finds the edits from the end.
func walkBack(a, b []string, trace [][]int) (out []edit) {
	x, y := len(a), len(b)
	for d := len(trace) - 1; d >= 0; d-- {
		at := func(k int) int {
			if i := k + d; i >= 0 && i < len(trace[d]) {
				return trace[d][i]
			}
			return 0
		}
		k, fromX, fromY := x-y, 0, 0
		if d > 0 {
			from := k - 1
			if k == -d || k != d && at(k-1) < at(k+1) {
				from = k + 1
			}
			fromX = at(from)
			fromY = fromX - from
		}
		for x > fromX && y > fromY {
			x, y = x-1, y-1
			out = append(out, edit{' ', a[x]})
		}
		switch {
		case d == 0:
		case y > fromY:
			y--
			out = append(out, edit{'+', b[y]})
		default:
			x--
			out = append(out, edit{'-', a[x]})
		}
	}
	slices.Reverse(out)
	return out
}

// unified shows the lines that differ, with the lines around them.
func unified(edits []edit) string {
	var out strings.Builder
	lineA, lineB := 1, 1 // line numbers of edits[i]
	for i := 0; i < len(edits); {
		if edits[i].op == ' ' && !slices.ContainsFunc(edits[i:min(i+diffContext+1, len(edits))], changes) {
			i, lineA, lineB = i+1, lineA+1, lineB+1
			continue
		}
		// A hunk ends at a run of equal lines longer than what is shown between two differences.
		end, last := i, i
		for ; end < len(edits) && end-last <= 2*diffContext; end++ {
			if changes(edits[end]) {
				last = end
			}
		}
		end = min(last+1+diffContext, len(edits))
		inA, inB := 0, 0
		for _, e := range edits[i:end] {
			if e.op != '+' {
				inA++
			}
			if e.op != '-' {
				inB++
			}
		}
		_, _ = fmt.Fprintf(&out, "@@ -%s +%s @@\n", span(lineA, inA), span(lineB, inB))
		for _, e := range edits[i:end] {
			out.WriteByte(e.op)
			out.WriteString(e.text)
		}
		i, lineA, lineB = end, lineA+inA, lineB+inB
	}
	return out.String()
}

// span returns a range of lines; an empty range names the line before it.
func span(from, n int) string {
	if n == 0 {
		from--
	}
	return fmt.Sprintf("%d,%d", from, n)
}

func changes(e edit) bool { return e.op != ' ' }
