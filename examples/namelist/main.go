// Program namelist asks a list for ids, one a line of standard input, and prints the answers.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/freeslot/freeslot/namelist"
)

func main() {
	redis := flag.String("redis", "redis://127.0.0.1:6379", "URL of the scheduler's Redis")
	replica := flag.String("url", "", "URL of a replica, in place of Redis; its token is in FREESLOT_TOKEN")
	name := flag.String("list", "vip", "name of the list")
	flag.Parse()
	cfg := namelist.Config{RedisURL: *redis, ClientName: "example"}
	if *replica != "" {
		cfg.RedisURL, cfg.URL, cfg.Token = "", *replica, os.Getenv("FREESLOT_TOKEN")
	}
	if err := run(cfg, *name); err != nil {
		log.Fatal(err)
	}
}

func run(cfg namelist.Config, name string) error {
	ctx := context.Background()
	c, err := namelist.Open(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	list := c.List(name)
	ready, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := list.WaitReady(ready); err != nil {
		return err
	}
	ids := bufio.NewScanner(os.Stdin)
	for ids.Scan() {
		a := list.Check(ctx, ids.Text())
		fmt.Printf("%s: %s from %s, version %d, revision %d\n", ids.Text(), a.Verdict, a.Source, a.Version, a.Revision)
	}
	return ids.Err()
}
