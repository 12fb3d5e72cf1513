package replica

import (
	"context"
	"errors"
	"time"

	"go.uber.org/dig"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/feature"
)

// app is an fx application for one start and one stop. It keeps three promises that fx alone does
// not keep: a part gets the caller's context, whose end cuts it off; a failed start stops all that
// it has started, even if its context has ended; and a stop stops every part, even if its context
// ends in the middle.
type app struct {
	fx *fx.App
	// undo bounds what a failed start takes to stop its parts.
	undo time.Duration
	// calls is the context that the parts get. fx gets one without an end, because at its end fx
	// would leave the other parts as they are.
	calls  context.Context
	failed error              // of the part that failed to start
	undone context.CancelFunc // frees calls after a failed start
}

// start makes and starts everything. If it returns an error, nothing runs. The error is the part's
// own. made is false if the parts could not even be made, so that none of them was stopped.
func (a *app) start(ctx context.Context, log *zap.Logger, modules fx.Option) (made bool, _ error) {
	a.calls = ctx
	a.fx = fx.New(wiring(log), fx.Provide(func(lc fx.Lifecycle) feature.Hook {
		return func(s feature.Step) { lc.Append(a.hook(ctx, s)) }
	}), modules)
	if err := a.fx.Err(); err != nil {
		return false, dig.RootCause(err)
	}
	if err := a.fx.Start(context.WithoutCancel(ctx)); err != nil {
		if a.failed == nil {
			return true, err
		}
		a.undone()
		return true, a.failed // without the errors of the undoing
	}
	return true, nil
}

// hook returns fx's form of a step.
func (a *app) hook(start context.Context, s feature.Step) fx.Hook {
	var h fx.Hook
	if s.Start != nil {
		h.OnStart = func(context.Context) error {
			err := s.Start(start)
			if err != nil {
				a.failed = err
				// fx stops the parts that have started right after this.
				a.calls, a.undone = context.WithTimeout(context.WithoutCancel(start), a.undo)
			}
			return err
		}
	}
	if s.Stop != nil {
		h.OnStop = func(context.Context) error { return s.Stop(a.calls) }
	}
	return h
}

// stop stops all parts, in the reverse order of their start, and joins their errors. When ctx ends,
// it cuts off what is left.
func (a *app) stop(ctx context.Context) error {
	a.calls = ctx
	return a.fx.Stop(context.WithoutCancel(ctx))
}

// wiring logs, on the level debug, what fx does; nothing without a log.
func wiring(log *zap.Logger) fx.Option {
	if log == nil {
		return fx.NopLogger
	}
	return fx.WithLogger(func() fxevent.Logger {
		l := &fxevent.ZapLogger{Logger: log.Named("fx")}
		l.UseLogLevel(zap.DebugLevel)
		l.UseErrorLevel(zap.DebugLevel) // the caller gets the error
		return l
	})
}

// errGraph ends the making of an application whose graph is all that is wanted.
var errGraph = errors.New("the graph is known")

// Graph returns how the parts of a replica are wired, in the language of Graphviz. It makes no part
// and connects to nothing.
func (r *Replica) Graph() (string, error) {
	var graph fx.DotGraph
	err := fx.New(fx.NopLogger, fx.Provide(func() feature.Hook { return nil }),
		// The first to be invoked. The parts would be made for the others.
		fx.Module("graph", fx.Invoke(func(g fx.DotGraph) error { graph = g; return errGraph })),
		r.modules(nil)).Err()
	if !errors.Is(err, errGraph) {
		return "", dig.RootCause(err)
	}
	return string(graph), nil
}
