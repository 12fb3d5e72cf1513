package registry

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// warnings is a logger that sends the errors of its warnings.
func warnings(to chan<- error) *zap.Logger {
	core, _ := observer.New(zap.WarnLevel)
	return logging.WithHints(zap.New(core), func(err error) string {
		select {
		case to <- err:
		default:
		}
		return ""
	})
}

// A call that Redis denies names the user, and the command that prints what it lacks.
func TestDenied(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	admin := redis.Client(t)
	for name, rule := range map[string]string{"connects": "+@connection +info", "reads": "+@all ~other:* allchannels"} {
		rules := append([]string{"on", ">x"}, strings.Fields(rule)...)
		if err := admin.Do(t.Context(), admin.B().AclSetuser().Username(name).Rule(rules...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	logged := make(chan error, 1000)
	options := func(user string) Options {
		return Options{RedisURL: "redis://" + user + ":x@" + redis.Addrs()[0], KeyPrefix: "p", Namespace: "eu", StopPause: -1, Logger: warnings(logged)}
	}
	denied := func(what string, err error, role, user string) {
		t.Helper()
		want := "(Redis' user is " + user + `; "schedctl acl --role ` + role + " --user " + user + " --key-prefix p"
		if role == "registry" {
			want += " --namespace eu"
		}
		if want += ` --add" prints what it may lack (with --cluster on a cluster))`; err == nil || !errors.As(err, new(*DeniedError)) || strings.Count(err.Error(), want) != 1 {
			t.Errorf("%s: %v, expected %s", what, err, want)
		}
	}
	for user, first := range map[string]string{"connects": "subscribe", "reads": "look: "} {
		n, err := NewNaming(NamingOptions{Options: options(user)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Stop(bounded(t)) })
		if err := n.Start(bounded(t)); err != nil {
			t.Fatal(err)
		}
		denied("register", n.Register(bounded(t), Registration{Service: "s", ID: "i", Host: "10.0.0.1", Port: 1}), "registry", user)
		if _, err := n.Subscribe("s", func(*List) {}); err != nil {
			t.Fatal(err)
		}
		for err = nil; err == nil || !strings.Contains(err.Error(), first) || !strings.Contains(err.Error(), "user is "+user); { // the other one may go on
			select {
			case err = <-logged:
			case <-bounded(t).Done():
				t.Fatal("a consumer that may not read logs nothing")
			}
		}
		denied("subscribe", err, "registry", user)
		_, err = n.Document(bounded(t), "d")
		denied("document", err, "registry", user)
		_, err = n.PutDocument(bounded(t), "d", 0, "x", "me", "")
		denied("put", err, "replica", user)
	}
}
