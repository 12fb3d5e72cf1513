package healthcheck

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// maxHealthBytes bounds the answer, which is a number.
const maxHealthBytes = 4 << 10

type grpcProbe struct {
	cfg  *GRPC
	dial Dial
}

// run uses a connection of its own. A kept connection would retry after a failure only with growing
// pauses of up to two minutes, and would not see that the service is back.
func (g grpcProbe) run(ctx context.Context) error {
	creds := insecure.NewCredentials()
	if g.cfg.TLS != nil {
		tlsConfig, err := g.cfg.TLS.config()
		if err != nil {
			return err
		}
		creds = credentials.NewTLS(tlsConfig)
	}
	conn, err := grpc.NewClient(
		// The address as it is: the default resolver would also ask the DNS for service
		// configurations.
		"passthrough:///"+g.cfg.Address,
		grpc.WithTransportCredentials(creds), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithUserAgent("freeslot-check"), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxHealthBytes)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return g.dial(ctx, "tcp", address)
		}),
	)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the answer has come by then
	resp, err := health.NewHealthClient(conn).Check(ctx, &health.HealthCheckRequest{Service: g.cfg.Service})
	if err != nil {
		return g.failure(err)
	}
	if s := resp.GetStatus(); s != health.HealthCheckResponse_SERVING {
		return fmt.Errorf("the health service says %s, expected SERVING", s)
	}
	return nil
}

func (g grpcProbe) failure(err error) error {
	switch s := status.Convert(err); s.Code() {
	case codes.NotFound:
		return fmt.Errorf("the health service does not know service %q", g.cfg.Service)
	case codes.Unimplemented:
		return fmt.Errorf("the server has no health service grpc.health.v1")
	default:
		return fmt.Errorf("%s: %s", s.Code(), s.Message())
	}
}
