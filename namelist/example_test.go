package namelist_test

import (
	"context"
	"fmt"
	"time"

	"github.com/freeslot/freeslot/namelist"
)

// Ask whether a user is in a list, and say what unknown means.
func Example() {
	c, err := namelist.Open(namelist.Config{RedisURL: "redis://127.0.0.1:6379"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	defer func() { _ = c.Close(ctx) }()

	blocked := c.List("blocked")
	a := blocked.Check(ctx, "")
	fmt.Println(a.Verdict)
	fmt.Println("deny list:", a.Member(true))     // better too strict
	fmt.Println("grey release:", a.Member(false)) // better the old way
	// Output:
	// unknown
	// deny list: true
	// grey release: false
}
