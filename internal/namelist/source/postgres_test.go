package source

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/postgrestest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestPostgres has one server for all that concerns it.
func TestPostgres(t *testing.T) {
	t.Parallel()
	s := postgrestest.New(t)
	s.Exec(`
		CREATE ROLE reader LOGIN PASSWORD 'geheim';
		DO $$ BEGIN EXECUTE format(
			'COPY (VALUES (''host all reader 127.0.0.1/32 scram-sha-256''), (''host all all 127.0.0.1/32 trust'')) TO %L',
			current_setting('hba_file')); END $$;
		SELECT pg_reload_conf();
		CREATE TABLE written (id text);
		CREATE FUNCTION write() RETURNS text LANGUAGE sql AS 'INSERT INTO written VALUES (''a'') RETURNING id';
		CREATE TABLE hidden (id text)`)
	t.Run("rows", func(t *testing.T) { postgresRows(t, s) })
	t.Run("refused", func(t *testing.T) { postgresRefused(t, s) })
	t.Run("memory", func(t *testing.T) { postgresMemory(t, s) })
	t.Run("password", func(t *testing.T) { postgresPassword(t, s) })
	t.Run("held", func(t *testing.T) { postgresHeld(t, s) })
	t.Run("killed", func(t *testing.T) { postgresKilled(t, s) })
}

func query(s *postgrestest.Server, text string) *Config {
	return &Config{Kind: KindPostgres, URL: s.URL(), Query: text, Timeout: time.Minute}
}

// postgresRows: ids and expiries come as an import reads them.
func postgresRows(t *testing.T, s *postgrestest.Server) {
	for q, want := range map[string]string{
		"SELECT 'a' UNION ALL SELECT 'b' ORDER BY 1;":                       "a\nb\n",
		"SELECT 'a', '2100-01-31 12:00:00.5+02'::timestamptz -- the expiry": "a,2100-01-31T10:00:00.5+00:00\n",
		"SELECT 'a', 4102444800":                                            "a,4102444800\n",
		"SELECT 'a', 'infinity'::timestamptz":                               "a\n",
		"SELECT 'a', NULL::timestamptz":                                     "a\n",
		"SELECT 7::bigint, '4102444800'":                                    "7,4102444800\n",
		`SELECT 'say "a, b"'`:                                               "\"say \"\"a, b\"\"\"\n",
		`SELECT E'a\nb'`:                                                    "a\x00b\n",
		"SELECT NULL::text":                                                 "\n",
		"SELECT 'a' WHERE false":                                            "",
		"SET TIME ZONE 'Asia/Tokyo'; SELECT 1":                              "SQLSTATE",
		"SELECT 'a', '2100-01-31'::timestamp":                               "without a time zone",
		"SELECT 1, 2, 3":                                                    "3 columns",
		"SELECT repeat('x', 2000000)":                                       "more than 1048576 bytes",
		"SELECT 1 / (3 - i) FROM generate_series(1, 5) i":                   "division by zero",
		"SELECT CASE i WHEN 20000 THEN 1/(i-20000) END FROM generate_series(1, 30000) i": "division by zero",
	} {
		var out bytes.Buffer
		_, err := query(s, q).readPostgres(waittest.Context(t), "", &out)
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && out.String() != want {
			t.Errorf("%s: %q, %v; want %q", q, out.String()[:min(out.Len(), 100)], err, want)
		}
		if got, _, ok := strings.Cut(want, "\n"); !ok && got != "" && err == nil {
			t.Errorf("%s: no error; want %q", q, want)
		}
	}
}

// postgresRefused: nothing that writes, and nothing that is no query, runs.
func postgresRefused(t *testing.T, s *postgrestest.Server) {
	for q, want := range map[string]string{
		"SELECT write()": "read-only transaction",
		"INSERT INTO written VALUES ('a') RETURNING id":                              "syntax error",
		"WITH w AS (INSERT INTO written VALUES ('a') RETURNING id) SELECT id FROM w": "data-modifying",
		"SELECT 1; INSERT INTO written VALUES ('a')":                                 "multiple commands",
		"SELECT 1; COMMIT": "multiple commands",
		"SELECT set_config('transaction_read_only', 'off', true), write()": "read-write mode",
		"SELECT id FROM nowhere": `"nowhere" does not exist`,
		"SELEC 1":                "syntax error",
		"SELECT $1::text":        "SQLSTATE",
	} {
		var out bytes.Buffer
		_, err := query(s, q).readPostgres(waittest.Context(t), "", &out)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want an error with %q", q, out.String(), err, want)
		}
	}
	if n := s.Exec("SELECT count(*) FROM written"); n != "0" {
		t.Errorf("%s rows were written; want none", n)
	}
}

// heap is a writer that notes the most memory in use, garbage aside.
type heap struct {
	rows    int
	highest uint64
}

func (h *heap) Write(p []byte) (int, error) {
	if h.rows++; h.rows%20_000 == 0 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		h.highest = max(h.highest, m.HeapAlloc)
	}
	return len(p), nil
}

// postgresMemory: many fetches take as much memory as one.
func postgresMemory(t *testing.T, s *postgrestest.Server) {
	const rows = 120_000
	var h heap
	q := fmt.Sprintf("SELECT i || repeat('x', 480) FROM generate_series(1, %d) i", rows) // 58 MB
	_, err := query(s, q).readPostgres(waittest.Context(t), "", &h)
	if err != nil || h.rows != rows {
		t.Errorf("%d rows, %v; want %d", h.rows, err, rows)
	}
	if h.highest > 40<<20 {
		t.Errorf("the heap had %d bytes; want less than 40 MiB for 58 MB of rows", h.highest)
	}
}

// postgresPassword: the password comes from the file, and no reason holds it or the address.
func postgresPassword(t *testing.T, s *postgrestest.Server) {
	file := filepath.Join(t.TempDir(), "password")
	closed := strings.Replace(s.URL(), s.Addr(), "127.0.0.1:1", 1)
	for name, test := range map[string]struct{ url, password, query, want string }{
		"right":     {s.URL(), "geheim\n", "SELECT current_user", ""},
		"wrong":     {s.URL(), "falsch\n", "SELECT 1", "password authentication failed"},
		"empty":     {s.URL(), "\n", "SELECT 1", "no single line"},
		"rights":    {s.URL(), "geheim\n", "SELECT id FROM hidden", "permission denied"},
		"away":      {closed, "geheim\n", "SELECT 1", "refused"},
		"database":  {s.URL() + "2", "geheim\n", "SELECT 1", "does not exist"},
		"no server": {"postgres://reader:geheim@127.0.0.1:x/", "geheim\n", "SELECT 1", "cannot be used"},
	} {
		if err := os.WriteFile(file, []byte(test.password), 0o600); err != nil {
			t.Fatal(err)
		}
		c := query(s, test.query)
		c.URL, c.PasswordFile = strings.Replace(test.url, "postgres@", "reader:falsch@", 1), file
		var out bytes.Buffer
		_, err := c.readPostgres(waittest.Context(t), "", &out)
		if test.want == "" && (err != nil || out.String() != "reader\n") {
			t.Errorf("%s: %q, %v; want the row reader", name, out.String(), err)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v; want an error with %q", name, err, test.want)
		}
		for _, secret := range []string{"geheim", "falsch", s.URL()} {
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %v; want nothing with %q", name, err, secret)
			}
		}
	}
}

// postgresHeld: rows that are no ids hold a version, and the same rows again make no other one.
func postgresHeld(t *testing.T, s *postgrestest.Server) {
	g := newRig(t)
	s.Exec(`CREATE TABLE vip (id text, until timestamptz);
		INSERT INTO vip VALUES ('id', NULL), ('a', '2100-01-01'), (E'b\nc', NULL), (NULL, NULL)`)
	g.replica(
		"r1", map[string]Config{"crm": {Kind: KindPostgres, URL: s.URL(), Query: "SELECT id, until FROM vip ORDER BY id"}},
	)
	_, err := g.store.Set(g.ctx, list, Assignment{Source: "crm"})
	g.check(err)
	first := g.run()
	g.want(first, Held, "2 lines")
	again := g.run()
	g.want(again, Held, "2 lines")
	if first.Version != 1 || again.Version != 1 || first.Rows != 4 {
		t.Errorf("runs %+v and %+v; want both held with version 1 of 4 rows", first, again)
	}
	s.Exec(`DELETE FROM vip WHERE id IS NULL OR id LIKE '%c'`)
	g.want(g.run(), Served, "")
	if _, count := g.serves(); count != 2 {
		t.Errorf("the list serves %d ids; want id and a", count)
	}
	g.want(g.run(), Unchanged, "")
	s.Exec("TRUNCATE vip")
	g.want(g.run(), Held, "")
	if _, count := g.serves(); count != 2 {
		t.Errorf("after an empty run the list serves %d ids; want 2", count)
	}
}

// postgresKilled: a run whose server dies, or that takes too long, changes nothing; the next one is
// served.
func postgresKilled(t *testing.T, s *postgrestest.Server) {
	g := newRig(t)
	s.Exec(`CREATE TABLE slow (on_row int); INSERT INTO slow VALUES (0)`)
	const text = `SELECT i || CASE i WHEN (SELECT on_row FROM slow) THEN pg_sleep(600)::text ELSE '' END
		FROM generate_series(1, 15000) i`
	asleep := func() bool {
		return s.Exec("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "1"
	}
	crm := Config{Kind: KindPostgres, URL: s.URL(), Query: text, MaxRows: 20_000}
	short := crm
	short.Timeout = 2 * time.Second
	g.replica("r1", map[string]Config{"crm": crm, "short": short})
	set := func(source string) {
		_, err := g.store.Set(g.ctx, list, Assignment{Source: source})
		g.check(err)
	}
	serves := func(want int64) {
		t.Helper()
		if number, count := g.serves(); number != want || count != 15_000 {
			t.Errorf("version %d with %d ids serves; want version %d with 15000", number, count, want)
		}
	}
	set("crm")
	g.want(g.run(), Served, "")
	serves(1)

	s.Exec("UPDATE slow SET on_row = 12000")
	before := g.begin()
	waittest.Until(t, "the second fetch", asleep)
	s.Kill()
	g.want(g.ended(before), Failed, "")
	g.want(g.run(), Failed, "refused")
	serves(1)
	s.Start()

	set("short")
	g.want(g.run(), Failed, "longer than timeout (2s)")
	waittest.Until(t, "the query to end", func() bool { return !asleep() })
	set("crm")
	before = g.begin()
	waittest.Until(t, "the second fetch", asleep)
	set("short") // a run of the source before is over with that
	g.want(g.ended(before), Failed, "another source")
	waittest.Until(t, "the query to end", func() bool { return !asleep() })
	serves(1)
	s.Exec("UPDATE slow SET on_row = 0")
	g.want(g.run(), Unchanged, "")
}
