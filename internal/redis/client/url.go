package client

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// queryKeys are the keys that a URL may have behind its question mark.
var queryKeys = []string{
	"addr", "client_cache", "client_name", "db", "dial_timeout", "master_set", "max_retries", "protocol", "skip_verify",
	"write_timeout",
}

// queryValues are the values that the keys with a few of them may have. rueidis ignores any other.
var queryValues = map[string][]string{
	"client_cache": {"0", "1"},
	"max_retries":  {"0"},
	"protocol":     {"2", "3"},
	"skip_verify":  {"true", "false", "1", "0", ""},
}

// CheckURL parses a URL like a connection, but does not connect. The error contains no secret.
func CheckURL(raw string) error {
	_, err := parseURL(raw)
	if err == nil {
		return nil
	}
	if bad := badURL(raw, err); errors.As(bad, new(*url.Error)) {
		return errors.New("it cannot be parsed")
	}
	return errors.New(strings.TrimPrefix(err.Error(), "redis: "))
}

// parseURL is rueidis.ParseURL without its leniency. rueidis takes an address that it cannot read
// for localhost or for the default port, and ignores a query key that it does not know.
func parseURL(raw string) (rueidis.ClientOption, error) {
	if want, found := unbracketed(raw); found {
		return rueidis.ClientOption{}, fmt.Errorf("an IPv6 address needs brackets: %s", want)
	}
	opt, err := rueidis.ParseURL(raw)
	if err != nil {
		return opt, err
	}
	u, err := url.Parse(raw)
	if err != nil {
		return opt, err
	}
	if strings.Count(u.Host, ":") > 1 && !strings.HasPrefix(u.Host, "[") {
		return opt, errNoURL
	}
	if u.Fragment != "" {
		return opt, errors.New("a # is written as %23")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return opt, errors.New("the query cannot be parsed, write ?key=value&key=value")
	}
	if err := checkQuery(query); err != nil {
		return opt, err
	}
	switch {
	case query.Has("db") && u.Scheme != "unix" && u.Path != "":
		return opt, fmt.Errorf("the database is in the path and in db=%s, expected one of them", query.Get("db"))
	case opt.SelectDB < 0:
		return opt, fmt.Errorf("invalid database number %d, expected 0 or more", opt.SelectDB)
	case query.Has("dial_timeout") && opt.Dialer.Timeout <= 0:
		return opt, fmt.Errorf("dial_timeout=%s, expected a duration above 0", query.Get("dial_timeout"))
	case query.Has("write_timeout") && opt.ConnWriteTimeout <= 0:
		return opt, fmt.Errorf("write_timeout=%s, expected a duration above 0", query.Get("write_timeout"))
	}
	if port := u.Port(); port != "" && !isPort(port) {
		return opt, fmt.Errorf("invalid port %s, it must be 1 to 65535", port)
	}
	return opt, nil
}

// checkQuery checks what rueidis does not.
func checkQuery(query url.Values) error {
	for _, key := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(queryKeys, key) {
			return fmt.Errorf("unknown query key %s, there are only %s", key, strings.Join(queryKeys, ", "))
		}
		if key != "addr" && len(query[key]) > 1 {
			return fmt.Errorf("the query key %s is there %d times", key, len(query[key]))
		}
		value, values := query.Get(key), queryValues[key]
		if values != nil && !slices.Contains(values, value) {
			return fmt.Errorf("%s=%s, expected %s", key, value, strings.Join(values[:min(2, len(values))], " or "))
		}
	}
	if query.Has("master_set") && query.Get("master_set") == "" {
		return errors.New("master_set= has no name")
	}
	for _, addr := range query["addr"] {
		if _, port, err := net.SplitHostPort(addr); err != nil || !isPort(port) {
			return fmt.Errorf("addr=%s is not host:port, with brackets around an IPv6 address", addr)
		}
	}
	return nil
}

// unbracketed finds an IPv6 address without brackets, whose port cannot be distinguished from it,
// and returns what to write instead. It reads the text, because a parser may refuse the URL without
// a reason.
func unbracketed(raw string) (want string, found bool) {
	scheme, rest, _ := strings.Cut(raw, "://")
	host, behind := rest, ""
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		host, behind = rest[:end], rest[end:]
	}
	if strings.Contains(behind, "@") { // otherwise all of it may be a password
		return "", false
	}
	host = host[strings.LastIndexByte(host, '@')+1:]
	last := strings.LastIndexByte(host, ':')
	switch {
	case strings.Count(host, ":") < 2:
		return "", false
	case net.ParseIP(host[:last]) != nil && isPort(host[last+1:]):
		return scheme + "://[" + host[:last] + "]" + host[last:], true
	case net.ParseIP(host) != nil:
		return scheme + "://[" + host + "]:6379", true
	default:
		return "", false
	}
}

func isPort(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n > 0 && n <= 65535
}

var errNoURL = &url.Error{
	Op: "parse", URL: "redis url", Err: errors.New("expected redis://[user:password@]host:port[/db]"),
}

// badURL describes a bad URL without any password. A parser may mistake part of a password for
// something else; then the parser's message is left out, and the error is a *url.Error.
func badURL(raw string, err error) error {
	u, parseErr := url.Parse(raw)
	_, found := unbracketed(raw)
	switch {
	case found:
	case parseErr != nil, u.User == nil && strings.Contains(raw, "@"), errors.As(err, new(*url.Error)):
		return errNoURL
	}
	return fmt.Errorf("redis url %q: %w", raw[strings.LastIndexByte(raw, '@')+1:], err)
}
