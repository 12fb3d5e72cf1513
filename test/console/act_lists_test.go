package console

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func whole(target string) string { return target }

// listActs are actions on lists, their uploads and applications. TestLists has the others.
func (f *fleet) listActs(r *replica) []act {
	f.t.Helper()
	file := filepath.Join(f.t.TempDir(), "ids.txt")
	if err := os.WriteFile(file, []byte("1\n\n2\n"), 0o600); err != nil { // a refused line makes a doubt
		f.t.Fatal(err)
	}
	listOf := map[string]string{}
	var uploads [2]string
	for i, n := range []string{"1", "2"} {
		for _, kind := range []string{"delete", "cancel", "accept", "upload"} {
			r.shell("", "schedctl lists apply "+kind+"-"+n)
		}
		r.shell("", "schedctl lists session begin cancel-"+n)
		r.shell("", "schedctl lists import accept-"+n+" "+file)
		r.shell("", "schedctl lists applications apply shop-"+n)
		var u struct{ ID string }
		if err := r.ask(http.MethodPost, "/v1/lists/upload-"+n+"/uploads", "", `{"format":"txt"}`, &u); err != nil {
			f.t.Fatal(err)
		}
		uploads[i], listOf[u.ID] = u.ID, "upload-"+n
	}
	view := func(list string) string { return "#/lists/" + list }
	return []act{
		{
			button: "Delete", call: "delete-list", targets: [2]string{"delete-1", "delete-2"}, view: view, typed: whole,
			effect: func(list string) error { return r.gone("/v1/lists/" + list) },
		},
		{
			button: "Cancel", call: "cancel-operation", targets: [2]string{"cancel-1", "cancel-2"}, view: view,
			effect: func(list string) error {
				var l struct{ Operation *struct{ Kind string } }
				if err := r.get("/v1/lists/"+list, "", &l); err != nil || l.Operation == nil {
					return err
				}
				return fmt.Errorf("the operation %s goes on", l.Operation.Kind)
			},
		},
		{
			button: "Accept", call: "accept-version", targets: [2]string{"accept-1", "accept-2"}, typed: whole,
			view: func(list string) string { return "#/lists/" + list + "?version=1" },
			effect: func(list string) error {
				var page struct{ Versions []struct{ Doubt string } }
				if err := r.get("/v1/lists/"+list+"/versions", "", &page); err != nil {
					return err
				}
				if len(page.Versions) != 1 || page.Versions[0].Doubt != "" {
					return fmt.Errorf("the versions are %+v", page.Versions)
				}
				return nil
			},
		},
		{
			button: "Forget", call: "drop-upload", targets: uploads,
			view:   func(upload string) string { return "#/lists/" + listOf[upload] },
			effect: func(upload string) error { return r.gone("/v1/list-uploads/" + upload) },
		},
		{
			button: "Forget", call: "delete-application", targets: [2]string{"shop-1", "shop-2"}, typed: whole,
			view:   func(name string) string { return "#/lists?part=applications&application=" + name },
			effect: func(name string) error { return r.gone("/v1/list-applications/" + name) },
		},
	}
}

// houseActs are actions on locks, documents and pools.
func (f *fleet) houseActs(r *replica) []act {
	f.t.Helper()
	for _, name := range []string{"force-1", "force-2", "ask-1", "ask-2"} {
		waittest.Receive(f.t, "the lock "+name, f.hold(name, name))
	}
	for _, name := range []string{"limits-1", "limits-2"} {
		if err := r.ask(http.MethodPut, "/admin/registry/config/"+name, "", `{"version":0,"content":"a: 1\n"}`, nil); err != nil {
			f.t.Fatal(err)
		}
	}
	lock := func(key string) string { return "#/locks/" + key }
	free := func(key string) error {
		var l struct{ Held bool }
		if err := r.get("/v1/locks/"+key, "", &l); err != nil || !l.Held {
			return err
		}
		return fmt.Errorf("the lock is held")
	}
	paused := func(pool string) error { return r.isPaused("pool", pool, true) }
	return []act{
		{button: "Force release", call: "revoke-lock", targets: [2]string{"force-1", "force-2"}, view: lock, typed: whole, effect: free},
		{button: "Ask to release", call: "revoke-lock", targets: [2]string{"ask-1", "ask-2"}, view: lock, effect: free},
		{
			button: "Delete", call: "delete-config-document", targets: [2]string{"limits-1", "limits-2"}, typed: whole,
			view:   func(name string) string { return "#/documents/" + name },
			effect: func(name string) error { return r.gone("/admin/registry/config/" + name) },
		},
		{
			button: "Pause", call: "pause-pool", targets: [2]string{"pool-3", "pool-4"}, undo: true,
			view: func(pool string) string { return "#/pools/" + pool }, effect: paused,
		},
		{
			// A name that nothing has must be typed again.
			button: "Pause service", call: "pause-service", targets: [2]string{"mistyped-1", "mistyped-2"}, typed: whole, undo: true,
			view:   func(service string) string { return "#/queues?service=" + service },
			effect: func(service string) error { return r.isPaused("service", service, true) },
		},
	}
}
