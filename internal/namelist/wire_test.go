package namelist

import (
	"encoding/json"
	"testing"
	"time"
)

// FuzzWire: no answer by HTTP harms a reader.
func FuzzWire(f *testing.F) {
	f.Add(`{"at_ms":5,"history":"h","lists":{"vip":{"revision":7,"birth":"b"},"other":{}}}`)
	f.Add(`{"at_ms":5,"history":"h","head":{"birth":"b","revision":9,"state":"active","form":"exact","seed":"ff","serving":{"number":1}},"edits":[{"revision":8,"entries":[{"id":"a"}]}]}`)
	f.Add(`{"at_ms":5,"head":{"birth":"b","revision":9,"seed":"0"},"edits":[{"revision":8},{"revision":8}]}`)
	f.Add(`{"found":[{"member":true,"expires_ms":-1},{"why":"moved"}]}`)
	f.Add(`{"ids":{"a":0,"b":5}}`)
	f.Fuzz(func(t *testing.T, text string) {
		if marks, _, _, err := DecodeMarks([]byte(text), []string{"vip", "other"}); err == nil {
			for _, m := range marks {
				if m.Revision < 0 || (m.Revision == 0) != (m.Birth == "") {
					t.Errorf("marks: %+v", marks)
				}
			}
		}
		if d, err := DecodeDelta("vip", []byte(text), 3); err == nil {
			last := int64(3)
			for _, e := range d.Edits {
				if e.Revision <= last || e.Revision > d.Head.Revision {
					t.Errorf("edits: %+v", d)
				}
				last = e.Revision
			}
			if d.Head.Name != "vip" || d.Head.Birth != "" && d.Head.Revision < 1 || d.Head.Birth == "" && len(d.Edits) > 0 {
				t.Errorf("delta: %+v", d)
			}
		}
		if found, err := DecodeFound([]byte(text), 2); err == nil && (len(found) != 2 || found[0].ExpiresMS < 0) {
			t.Errorf("found: %+v", found)
		}
		v := &Version{Count: 2}
		if ids, err := DecodeIDs("vip", v, []byte(text)); err == nil && len(ids) != 2 {
			t.Errorf("ids: %v", ids)
		}
	})
}

// TestWire: a head is read as it was written, whatever the state.
func TestWire(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		same := func(list string) {
			t.Helper()
			d, err := r.Delta(ctx, list, 0, true)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(d.Wire())
			if err != nil {
				t.Fatal(err)
			}
			got, err := DecodeDelta(list, text, 0)
			if err != nil {
				t.Fatal(err)
			}
			is, h := &d.Head, &got.Head
			if h.Birth != is.Birth || h.Revision != is.Revision || h.State != is.State || h.Seed != is.Seed || h.Form != is.Form || h.ExpiredNo != is.ExpiredNo ||
				h.Whole != is.Whole || h.Floor != is.Floor || !h.Expires.Equal(is.Expires) || !h.At.Equal(is.At) || got.History != d.History || got.More != d.More {
				t.Errorf("%+v, expected %+v", got, d)
			}
		}
		same("none")
		if _, err := r.Create(ctx, "vip", Spec{Form: "integer", Settings: Settings{Whole: true, ExpiredNo: true, Expires: time.UnixMilli(4_000_000_000_000)}}); err != nil {
			t.Fatal(err)
		}
		same("vip")
		if _, err := r.Delete(ctx, "vip", AnyVersion, false, By{}); err != nil {
			t.Fatal(err)
		}
		same("vip")
		if err := r.FinishDelete(ctx, "vip"); err != nil {
			t.Fatal(err)
		}
		same("vip")
	})
}
