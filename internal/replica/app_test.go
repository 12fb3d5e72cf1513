package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/fx"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/process/metrics"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// played is an application of three parts that write down what happens to them. Parts of the names
// in fails do not start, or do not stop.
type played struct {
	app
	events []string
	fails  map[string]error
	hang   bool // the third part waits for the end of its start's context
}

var errPart = errors.New("the part says why")

func (p *played) modules() fx.Option {
	var all []fx.Option
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, fx.Module(name, fx.Invoke(func(hook feature.Hook) { hook(p.step(name)) })))
	}
	return fx.Options(all...)
}

func (p *played) step(name string) feature.Step {
	happens := func(ctx context.Context, what string) error {
		state := ""
		if ctx.Err() != nil {
			state = " late"
		}
		p.events = append(p.events, what+" "+name+state)
		return p.fails[what+" "+name]
	}
	return feature.Step{
		Start: func(ctx context.Context) error {
			if p.hang && name == "c" {
				<-ctx.Done()
				return ctx.Err()
			}
			return happens(ctx, "start")
		},
		Stop: func(ctx context.Context) error { return happens(ctx, "stop") },
	}
}

func (p *played) expect(t *testing.T, want string) {
	t.Helper()
	if got := strings.Join(p.events, ", "); got != want {
		t.Errorf("%s, expected %s", got, want)
	}
}

// TestAppStops: parts stop in the reverse order of their start, also behind one whose stop fails.
func TestAppStops(t *testing.T) {
	t.Parallel()
	p := &played{fails: map[string]error{"stop b": errPart}}
	if _, err := p.start(waittest.Context(t), nil, p.modules()); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(waittest.Context(t)); !errors.Is(err, errPart) {
		t.Errorf("error %v, expected that of the part", err)
	}
	p.expect(t, "start a, start b, start c, stop c, stop b, stop a")
}

// TestAppStopsLate: if there is no time to stop, each part is told so, and none is left out.
func TestAppStopsLate(t *testing.T) {
	t.Parallel()
	p := &played{}
	if _, err := p.start(waittest.Context(t), nil, p.modules()); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.stop(over); err != nil {
		t.Error(err)
	}
	p.expect(t, "start a, start b, start c, stop c late, stop b late, stop a late")
}

// TestAppStartFails: what has started stops, and the error is the part's own.
func TestAppStartFails(t *testing.T) {
	t.Parallel()
	p := &played{app: app{undo: time.Minute}, fails: map[string]error{"start c": errPart, "stop a": errors.New("another")}}
	if made, err := p.start(waittest.Context(t), nil, p.modules()); err == nil || err.Error() != errPart.Error() || !made {
		t.Errorf("error %v, made %t, expected that of the part", err, made)
	}
	p.expect(t, "start a, start b, start c, stop b, stop a")
}

// TestAppStartHangs: a part that hangs until the start's context ends leaves nothing running, and
// the others have time to stop.
func TestAppStartHangs(t *testing.T) {
	t.Parallel()
	p := &played{app: app{undo: time.Minute}, hang: true}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.start(over, nil, p.modules()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, expected that the context has ended", err)
	}
	p.expect(t, "start a late, start b late, stop b, stop a")
}

// TestAppCannotBeMade: the error is the constructor's own, without fx's words around it.
func TestAppCannotBeMade(t *testing.T) {
	t.Parallel()
	p := &played{}
	broken := fx.Options(fx.Provide(func() (int, error) { return 0, errPart }), p.modules(), fx.Invoke(func(int) {}))
	if made, err := p.start(waittest.Context(t), zap.NewNop(), broken); err == nil || err.Error() != errPart.Error() || made {
		t.Errorf("error %v, made %t, expected that of the constructor", err, made)
	}
	p.expect(t, "")
}

// TestGraph: it has all parts, and asks no server.
func TestGraph(t *testing.T) {
	t.Parallel()
	cfg := config.DefaultReplica()
	graph, err := New(cfg, zap.NewNop(), metrics.NewRegistry()).Graph()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"digraph", "newFleet", "newDispatcher", "newPresence", "newFront", "newDoor"} {
		if !strings.Contains(graph, want) {
			t.Errorf("the graph lacks %s", want)
		}
	}
	for n, want := range map[int]bool{len(Features()) - 1: true, len(Features()): false} {
		if got := strings.Contains(graph, fmt.Sprintf(`"feature.Part[group=parts]%d"`, n)); got != want {
			t.Errorf("the graph has part %d: %t, expected %t", n, got, want)
		}
	}
}
