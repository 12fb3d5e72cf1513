package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func figure() *Figure {
	return &Figure{
		Title: "A test",
		X:     Axis{Label: "delay, ms", Log: true}, Y: Axis{Label: "refused", Log: true, Percent: true},
		Lines: []Line{
			{Name: "one", Points: []Point{{X: 0.1, Y: 0.0001}, {X: 1, Y: 0.01}, {X: 100, Y: 0.2}}},
			{Name: "none", Points: []Point{{X: 1, Y: 0}, {X: 0, Y: 1}}},
			{Name: "two", Points: []Point{{X: 0.1, Y: 0}, {X: 1, Y: 0.02}}},
		},
	}
}

func TestSVG(t *testing.T) {
	t.Parallel()
	data, err := SVG(figure())
	if err != nil {
		t.Fatal(err)
	}
	words := texts(t, data)
	for _, want := range []string{"A test", "delay, ms", "refused", "one", "two", "10 %", "0.01 %", "0.1", "100"} {
		if !strings.Contains(words, "\n"+want+"\n") {
			t.Errorf("%q is not in the plot: %q", want, words)
		}
	}
	if strings.Contains(words, "\nnone\n") {
		t.Error("a line without a point that can be shown is in the legend")
	}
	again, err := SVG(figure())
	if err != nil || !bytes.Equal(data, again) {
		t.Errorf("drawn again it is another plot (%v)", err)
	}
}

// TestSVGOfLittle: axes must not fail without points, or with one.
func TestSVGOfLittle(t *testing.T) {
	t.Parallel()
	for _, points := range [][]Point{nil, {{X: 1, Y: 0}}, {{X: 1, Y: 1}}} {
		for _, log := range []bool{false, true} {
			f := figure()
			f.X.Log, f.Y.Log = log, log
			f.Lines = []Line{{Name: "one", Points: points}}
			if _, err := SVG(f); err != nil {
				t.Errorf("%v: %v; want no error", points, err)
			}
		}
	}
}

func TestCorner(t *testing.T) {
	t.Parallel()
	all := map[string]Point{"left bottom": {X: 0, Y: 0}, "left top": {X: 0, Y: 1}, "right bottom": {X: 1, Y: 0}, "right top": {X: 1, Y: 1}}
	for want := range all {
		f := &Figure{Lines: []Line{{Name: "middle", Points: []Point{{X: 0.5, Y: 0.5}}}}}
		for name, p := range all {
			if name != want {
				f.Lines[0].Points = append(f.Lines[0].Points, p)
			}
		}
		p, err := newPlot(f)
		if err != nil {
			t.Fatal(err)
		}
		got := map[bool]string{true: "left ", false: "right "}[p.Legend.Left] + map[bool]string{true: "top", false: "bottom"}[p.Legend.Top]
		if got != want {
			t.Errorf("the legend is %s, want %s", got, want)
		}
	}
}

// texts are the words of an SVG, a line each.
func texts(t *testing.T, data []byte) string {
	t.Helper()
	var b strings.Builder
	b.WriteByte('\n')
	dec := xml.NewDecoder(bytes.NewReader(data))
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := token.(xml.CharData); ok && len(bytes.TrimSpace(c)) > 0 {
			b.Write(bytes.TrimSpace(c))
			b.WriteByte('\n')
		}
	}
}
