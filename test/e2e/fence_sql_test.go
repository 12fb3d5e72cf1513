package e2e

import (
	"database/sql"
	"os"
	"regexp"
	"testing"

	_ "github.com/ncruces/go-sqlite3/driver" // SQLite in Go, without cgo
)

// TestFenceInSQL runs the statements of docs/lock.md: equal or higher tokens write, lower ones
// change no row.
func TestFenceInSQL(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/lock.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```sql\n(.*?)^```$").FindAllSubmatch(page, -1)
	if len(blocks) != 2 {
		t.Fatalf("docs/lock.md has %d blocks of SQL, expected the table and the write", len(blocks))
	}
	db, err := sql.Open("sqlite3", "file:"+t.TempDir()+"/fence.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), string(blocks[0][1])); err != nil {
		t.Fatal(err)
	}
	const token = int64(1_700_000_000_000_001)
	for _, step := range []struct {
		token int64
		body  string
		rows  int64
	}{{token, "a", 1}, {token, "b", 1}, {token - 1, "c", 0}, {token + 1, "d", 1}, {token, "e", 0}} {
		result, err := db.ExecContext(t.Context(), string(blocks[1][1]), "1001", step.body, step.token)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := result.RowsAffected()
		var body string
		errRead := db.QueryRowContext(t.Context(), "SELECT body FROM profile WHERE id = '1001'").Scan(&body)
		if err != nil || errRead != nil || rows != step.rows || (body == step.body) != (step.rows == 1) {
			t.Errorf("%q with token %d: %d rows, the body is %q: %v %v", step.body, step.token, rows, body, err, errRead)
		}
	}
}
