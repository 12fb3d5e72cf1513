// Command registry shows two programs that find each other: run it as provider as often as you
// like, and once as consumer.
//
//	go run ./examples/registry provider
//	go run ./examples/registry consumer
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/freeslot/freeslot/registry"
	"github.com/freeslot/freeslot/registry/transport"
)

// service is the name by which the programs find each other.
const service = "greeter"

func main() {
	url := flag.String("redis", "redis://127.0.0.1:6379", "URL of Redis")
	calls := flag.Int("calls", 0, "end after this many answers (consumer); 0 is never")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch flag.Arg(0) {
	case "provider":
		err = provide(ctx, *url)
	case "consumer":
		err = consume(ctx, *url, *calls)
	default:
		err = errors.New("expected provider or consumer")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}

// provide serves on a free port, and is registered until it ends.
func provide(ctx context.Context, url string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{
		ReadHeaderTimeout: time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, "hello from process %d\n", os.Getpid())
		}),
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	defer serving.Wait()
	defer func() { _ = server.Close() }()

	p, err := registry.NewProvider(registry.Options{RedisURL: url, StopPause: time.Second})
	if err != nil {
		return err
	}
	if err := p.Start(ctx); err != nil {
		return err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	err = p.Register(ctx, registry.Registration{Service: service, Host: "127.0.0.1", Port: port, Protocol: "HTTP"})
	fmt.Println("provider on port", port)
	if err == nil {
		<-ctx.Done()
	}
	// First the clients learn about it, then the instance goes: no call is lost.
	stopping, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, p.Stop(stopping))
}

// consume calls the service by its name, each time at an instance that the registry gives.
func consume(ctx context.Context, url string, calls int) error {
	c, err := registry.NewConsumer(registry.ConsumerOptions{RedisURL: url})
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	defer func() { _ = c.Stop(context.Background()) }()
	services := transport.New(transport.Config{Policy: registry.LeastLoaded}, c)
	defer services.Close()
	client := &http.Client{Transport: services, Timeout: 5 * time.Second}
	for answers := 0; calls == 0 || answers < calls; {
		answer, err := ask(ctx, client)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Print(answer)
			answers++
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(500 * time.Millisecond):
		}
	}
	return nil
}

func ask(ctx context.Context, client *http.Client) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+service+"/", http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer [64]byte
	n, _ := resp.Body.Read(answer[:])
	return string(answer[:n]), nil
}
