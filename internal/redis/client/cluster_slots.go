package client

import (
	"net"
	"slices"
	"strconv"

	"github.com/redis/rueidis"
)

// ownerIn reads one range of CLUSTER SLOTS, {first, last, {host, port, ...}, ...}, in which the
// master comes first. asked is the address of the server that answered: a node that does not know
// its own address leaves it out.
func ownerIn(m rueidis.RedisMessage, slot int, asked string) (addr string, ok bool) {
	values, err := m.ToArray()
	if err != nil || len(values) < 3 {
		return "", false
	}
	first, errFirst := values[0].AsInt64()
	last, errLast := values[1].AsInt64()
	if errFirst != nil || errLast != nil || int64(slot) < first || int64(slot) > last {
		return "", false
	}
	master, err := values[2].ToArray()
	if err != nil || len(master) < 2 {
		return "", false
	}
	host, _ := master[0].ToString() // empty or nil if it is not known
	port, err := master[1].AsInt64()
	if err != nil {
		return "", false
	}
	if host == "" {
		host, _, _ = net.SplitHostPort(asked)
	}
	return net.JoinHostPort(host, strconv.FormatInt(port, 10)), host != "?"
}

func without(addrs []string, addr string) []string {
	return slices.DeleteFunc(slices.Clone(addrs), func(a string) bool { return a == addr })
}
