package measure

import (
	"context"
	"sync"

	"github.com/redis/rueidis"
)

// Subscribe has deliver called at each message of a channel, in a goroutine of loops, until ctx
// ends or client is closed. The subscription stands when the channel that it returns is closed.
func Subscribe(
	ctx context.Context, loops *sync.WaitGroup, client rueidis.Client, channel string, deliver func(),
) <-chan struct{} {
	stands := make(chan struct{})
	var once sync.Once
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { once.Do(func() { close(stands) }) })
	command := client.B().Subscribe().Channel(channel).Build()
	loops.Go(func() { _ = client.Receive(ctx, command, func(rueidis.PubSubMessage) { deliver() }) })
	return stands
}
