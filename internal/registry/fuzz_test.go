package registry

import (
	"encoding/json"
	"slices"
	"testing"
	"time"
)

// FuzzEvent: no message harms a view.
func FuzzEvent(f *testing.F) {
	f.Add(`{"serviceName":"s","changeType":"registered","instances":["a"],"timestamp":5,"revision":1,"stamp":"x","birth":"x","reason":"registered","entries":[{"id":"a","revision":1,"fields":["host","h","port","80","check","{\"kind\":\"tcp\"}","metrics","{}"],"override":"{\"weight\":3,\"until_ms\":9}"}]}`)
	f.Add(`{"serviceName":"s","changeType":"removed","instances":["a"],"revision":2,"entries":[{"id":"a","revision":2,"fields":{},"override":""}]}`)
	f.Add(`{"serviceName":"s","changeType":"added","instances":[{"id":"a"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		v := newView("s", journeyConfig, 0)
		v.looked(v.ask(), &looked{}, 0)
		p, _ := v.want(0)
		v.loadPage(p.number, &page{cursor: "0"}, 0)
		p, _ = v.want(0)
		v.changesPage(p.number, &page{}, 0)
		c := new(change)
		if json.Unmarshal([]byte(text), c) != nil {
			return
		}
		v.event(c, 0)
		l, _ := v.build()
		if l == nil || l.State == StateEmpty && l.Why == "" {
			t.Fatalf("the list is %+v", l)
		}
		for _, in := range l.Instances {
			if in.Weight < 0 && in.Override == nil {
				t.Errorf("weight is %v", in.Weight)
			}
		}
	})
}

// FuzzSnapshot: what is read can be written, and is then the same; what is damaged is refused.
func FuzzSnapshot(f *testing.F) {
	three := 3.0
	l := &List{Service: "s", head: head{Revision: 7, Birth: "b", Stamp: "t"}, Instances: []*Instance{
		{Registration: Registration{Service: "s", ID: "a", Host: "h", Port: 1, Interval: time.Second, Metadata: map[string]string{"zone": "z"}}, Weight: 3, Epoch: "e", Override: &Override{Weight: &three, Author: "x"}, own: own{Weight: 1}},
	}}
	data, err := encodeSnapshot(l)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)-1])
	f.Add([]byte(snapshotMagic + " \n{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, instances, err := decodeSnapshot(data, "s")
		if err != nil {
			return
		}
		again, err := encodeSnapshot(&List{Service: "s", head: h, Instances: instances})
		if err != nil {
			t.Fatal(err)
		}
		h2, instances2, err := decodeSnapshot(again, "s")
		if err != nil || h2 != h || len(instances2) != len(instances) {
			t.Fatalf("%+v with %d instances became %+v with %d, %v", h, len(instances), h2, len(instances2), err)
		}
		third, err := encodeSnapshot(&List{Service: "s", head: h2, Instances: instances2})
		if err != nil || !slices.Equal(again, third) {
			t.Fatalf("%s became %s, %v", again, third, err)
		}
	})
}
