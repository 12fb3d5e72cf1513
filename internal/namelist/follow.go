package namelist

import (
	"context"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/events"
)

// Follow calls heard with each event of a list, in their order, until stop. Neither Follow nor
// heard may block. An event with a zero Revision means that events may have been lost.
// subscriptions is a client used only for subscriptions to the control server; the caller keeps and
// closes it.
func (c *Control) Follow(subscriptions rueidis.Client, list string, log *zap.Logger, heard func(Event)) (stop func()) {
	sub := events.NewSubscriber(subscriptions, Channel(c.k.layout, list), c.k.layout.Sharded, log)
	sub.Handle(func(message string) {
		e, err := DecodeEvent(list, message)
		if err != nil {
			log.Warn("namelist.event_ignored", zap.Error(err))
			e = Event{}
		}
		heard(e)
	}, func() { heard(Event{}) })
	_ = sub.Start(context.Background())                  // it never fails
	return func() { _ = sub.Stop(context.Background()) } // it never fails
}
