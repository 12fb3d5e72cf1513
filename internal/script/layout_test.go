package script

import (
	"fmt"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// Tags name the keys of running systems: these must never change.
var pinnedTags = map[int]string{
	1:  "fjl",
	2:  "lp0 nrv",
	3:  "yq8 fjl drc",
	4:  "qf7 h85 bfa bwc",
	8:  "dlj qbw ltp qsu ng4 jk9 nv6 sq3",
	16: "ms3 mws pt6 arf mb1 eoi pe4 acd gxm ou5 c0h ky8 gio qn ceb rc2",
	64: "ht4 jwb if5 kec hpt 7pj akm zc3 lx9 frw mj8 oin dua fv7 mnx xw he6 box iw7 c9q hav bk8 azo cy9 ub3 fcu tp2 m5 ddc fg5 evb iu " +
		"jvr yw4 cmk xe5 jr2 hqd aaqr ice fsg dp1 gaf eb0 wu7 dtq yg efp bnh yf6 c8a xt7 jc0 qkn kq1 irg fbe da3 gpd es2 wd5 des he ewr",
}

func TestTagsPinned(t *testing.T) {
	t.Parallel()
	for n, want := range pinnedTags {
		if got := strings.Join(Tags(n), " "); got != want {
			t.Errorf("%d: %q,; want got == %v", n, got, want)
		}
	}
}

func TestTagsAreEvenlySpaced(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 64; n++ {
		for i, l := range Layouts("p", n, true) {
			want := (2*i + 1) * HashSlots / (2 * n)
			if slot, ok := l.Slot(); !ok || slot != want || len(l.Tag) > 4 {
				t.Errorf("cell %d of %d: tag %q, slot %d, want %d", i, n, l.Tag, slot, want)
			}
			if freeslot.ValidateName("tag", l.Tag) != nil || !l.Sharded {
				t.Errorf(`%+v; want freeslot.ValidateName("tag", l.Tag) == nil, l.Sharded`, l)
			}
		}
	}
}

// TestSlot compares the slots with the ones that Redis computes for real keys.
func TestSlot(t *testing.T) {
	t.Parallel()
	redis := redistest.Cluster(t)
	client := redis.Client(t)
	for _, l := range Layouts(redis.Prefix(t), 16, true) {
		want, _ := l.Slot()
		for _, key := range []string{l.Key("nodes", "n"), l.Key("version:nodes", ""), l.Key("jobs", "0-x"), l.Key("pool", "p:members"), l.Replicated()} {
			got, err := client.Do(t.Context(), client.B().ClusterKeyslot().Key(key).Build()).AsInt64()
			if err != nil || int(got) != want {
				t.Errorf("%s: slot %d, %v, want %d", key, got, err, want)
			}
		}
	}
}

func TestLayouts(t *testing.T) {
	t.Parallel()
	one := Layouts("p", 1, false)
	if len(one) != 1 || one[0] != (Layout{Prefix: "p"}) || one[0].Key("nodes", "n") != "p:nodes:n" {
		t.Errorf("one cell on a standalone server: %+v", one)
	}
	if _, ok := one[0].Slot(); ok {
		t.Error("keys without a tag share no slot")
	}
	for i, l := range Layouts("p", 3, false) {
		if l.Tag != Tags(3)[i] || l.Sharded || l.Key("nodes", "n") != "p:nodes:{"+l.Tag+"}:n" {
			t.Errorf("%+v", l)
		}
	}
	for _, n := range []int{0, -1, HashSlots + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d cells: no panic", n)
				}
			}()
			Tags(n)
		}()
	}
}

// TestCellOf: the known check value of the CRC, and an even spread.
func TestCellOf(t *testing.T) {
	t.Parallel()
	if crc16("123456789") != 0x31C3 {
		t.Errorf("crc16 is %x", crc16("123456789"))
	}
	count := make([]int, 16)
	for i := range 16_000 {
		count[CellOf(fmt.Sprintf("node-%d", i), 16)]++
	}
	for i, n := range count {
		if n < 700 || n > 1300 {
			t.Errorf("cell %d has %d of 16000 nodes", i, n)
		}
	}
}

func BenchmarkTags(b *testing.B) {
	for _, n := range []int{1, 4, 64} {
		b.Run(fmt.Sprintf("cells=%d", n), func(b *testing.B) {
			for b.Loop() {
				Tags(n)
			}
		})
	}
}
