package resolver

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/freeslot/freeslot/internal/registry/pick"
)

// Measure returns an interceptor for [google.golang.org/grpc.WithUnaryInterceptor] that measures
// how long calls of services take. It measures only calls of targets of the form
// freeslot:///service.
func Measure(calls *pick.Calls) grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption,
	) error {
		service, found := strings.CutPrefix(cc.CanonicalTarget(), Scheme+":///")
		if !found {
			return invoke(ctx, method, req, reply, cc, opts...)
		}
		began := time.Now()
		err := invoke(ctx, method, req, reply, cc, opts...)
		calls.Add(service, time.Since(began), err)
		return err
	}
}
