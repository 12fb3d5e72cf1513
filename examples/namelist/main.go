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
	name := flag.String("list", "vip", "name of the list")
	flag.Parse()
	if err := run(*redis, *name); err != nil {
		log.Fatal(err)
	}
}

func run(redis, name string) error {
	ctx := context.Background()
	c, err := namelist.Open(namelist.Config{RedisURL: redis, ClientName: "example"})
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
