// Command etcd is etcd as a peer of the benchmark of the registry: its server, without fsync, or a
// client that does what the others do.
//
//	etcd server FOLDER          answers each line with its address until standard input ends
//	etcd client ADDRESS COUNT   is that many clients, as package entrant has it
//	etcd once ADDRESS COUNT     is clients that open a stream for each single heartbeat
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/registry/entrant"
)

const startLimit = 20 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "server":
		return serve(args[1])
	case len(args) == 3 && (args[0] == "client" || args[0] == "once"):
		count, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return entrant.Serve(context.Background(), count, func(ctx context.Context) (entrant.Registry, error) {
			return open(ctx, args[1], args[0] == "once")
		})
	}
	return errors.New("usage: etcd server FOLDER | etcd client|once ADDRESS COUNT")
}

func serve(folder string) error {
	cfg := embed.NewConfig()
	cfg.Dir, cfg.UnsafeNoFsync = folder, true
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	anyPort := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = anyPort, anyPort
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = anyPort, anyPort
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		return err
	case <-time.After(startLimit):
		return fmt.Errorf("etcd was not ready within %s", startLimit)
	}
	fmt.Println(measure.Ready)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); { // each asks for the address
		fmt.Println(e.Clients[0].Addr())
	}
	return nil
}
