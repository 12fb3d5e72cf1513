package cell

import (
	"context"

	"github.com/redis/rueidis"
)

// contextWithHook is for a subscription: it ends with cancel; ready gets a token when a subscription stands.
func contextWithHook(ready chan<- struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	return rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) {
		select {
		case ready <- struct{}{}:
		default:
		}
	}), cancel
}
