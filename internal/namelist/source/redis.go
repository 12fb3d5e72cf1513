package source

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

// scanCount is how many entries a call asks for. A call then holds up the server for about a
// millisecond.
const scanCount = 1000

// readRedis reads a set, hash or zset of another Redis, page by page. What is in it all the time is
// read; what is read twice counts once.
func (c *Config) readRedis(ctx context.Context, _ string, out io.Writer) (string, error) {
	to := redisclient.Config{
		URL: c.URL, Name: "freeslot-lists-source",
		Access: redisclient.Access{PasswordFile: c.PasswordFile, TLS: redisclient.TLS{CAFile: c.CAFile}},
	}
	topology, err := redisclient.Inspect(ctx, to)
	if err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	clients, err := topology.Open(redisclient.Commands)
	if err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	defer clients.Close()
	return "", c.scan(ctx, clients.For(0), out)
}

func (c *Config) scan(ctx context.Context, client rueidis.Client, out io.Writer) error {
	kind, size, page, err := c.pages(ctx, client)
	if err != nil {
		return err
	}
	before, err := ask(ctx, client, size.Pin()).AsInt64()
	if err != nil {
		return err
	}
	line, count := make([]byte, 0, 512), int64(0)
	for cursor := uint64(0); ; {
		found, err := ask(ctx, client, page(cursor)).AsScanEntry()
		if err != nil {
			return err
		}
		for i := 0; i < len(found.Elements); i++ {
			id, expiry := found.Elements[i], ""
			if kind != "set" {
				if i++; i == len(found.Elements) {
					return fmt.Errorf("the server answered half a pair for key %s", c.Key)
				}
				if c.Expiry {
					expiry = expiryOf(kind, found.Elements[i])
				}
			}
			count++
			line = appendRow(line[:0], []byte(id), expiry)
			if _, err := out.Write(line); err != nil {
				return err
			}
		}
		if cursor = found.Cursor; cursor == 0 {
			break
		}
	}
	// A key that is deleted, or a failover, ends a scan early and without an error.
	after, err := ask(ctx, client, size).AsInt64()
	if err == nil && (count < min(before, after) || after < before/2) {
		err = fmt.Errorf("key %s had %d entries before and %d after, and %d came", c.Key, before, after, count)
	}
	return err
}

// pages returns the type of the key, and the commands for its size and for a page of it.
func (c *Config) pages(ctx context.Context, client rueidis.Client) (
	kind string, size rueidis.Completed, page func(cursor uint64) rueidis.Completed, err error,
) {
	kind, err = ask(ctx, client, client.B().Type().Key(c.Key).Build()).ToString()
	switch {
	case err != nil:
	case kind == "set":
		size = client.B().Scard().Key(c.Key).Build()
		page = func(cursor uint64) rueidis.Completed {
			return client.B().Sscan().Key(c.Key).Cursor(cursor).Count(scanCount).Build()
		}
	case kind == "hash":
		size = client.B().Hlen().Key(c.Key).Build()
		page = func(cursor uint64) rueidis.Completed {
			return client.B().Hscan().Key(c.Key).Cursor(cursor).Count(scanCount).Build()
		}
	case kind == "zset":
		size = client.B().Zcard().Key(c.Key).Build()
		page = func(cursor uint64) rueidis.Completed {
			return client.B().Zscan().Key(c.Key).Cursor(cursor).Count(scanCount).Build()
		}
	case kind == "none":
		err = fmt.Errorf("there is no key %s", c.Key)
	default:
		err = fmt.Errorf("key %s is a %s, expected a set, a hash or a zset", c.Key, kind)
	}
	return kind, size, page, err
}

// ask makes one call, which has a few seconds.
func ask(ctx context.Context, client rueidis.Client, cmd rueidis.Completed) rueidis.RedisResult {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return client.Do(ctx, cmd)
}

// expiryOf returns a field's value, or a member's score, as the expiry of an import. 0 and infinity
// are never, as scores. A value that is no expiry stays as it is, so that its line is refused.
func expiryOf(kind, value string) string {
	value = strings.NewReplacer("\n", "\x00", "\r", "\x00", ",", "\x00").Replace(value)
	score, err := strconv.ParseFloat(value, 64)
	switch {
	case kind != "zset" || err != nil:
		return value
	case score == 0 || math.IsInf(score, 1):
		return ""
	}
	return strconv.FormatFloat(math.Floor(score), 'f', 0, 64)
}
