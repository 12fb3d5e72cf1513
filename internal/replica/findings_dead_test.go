package replica

import (
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
)

// TestDied: the finding names the most frequent errors, and is there only while jobs died.
func TestDied(t *testing.T) {
	t.Parallel()
	if got := died(&cell.DeadLetters{}, time.Hour); got != nil {
		t.Errorf("%+v; want nothing", got)
	}
	dead := cell.DeadLetters{Total: 8, LookedAt: 8, Groups: []cell.DeadGroup{
		{Service: "tts", Code: "boom", Jobs: 4}, {Service: "echo", Code: "node_lost", Jobs: 2}, {Service: "tts", Jobs: 1}, {Service: "a", Jobs: 1},
	}}
	const causes = "4 of tts with boom, 2 of echo with node_lost, 1 of tts with no error"
	for total, want := range map[int]string{
		8:    "8 jobs died in the last 1h30m: " + causes,
		9000: "9000 jobs died in the last 1h30m; of the last 8: " + causes,
	} {
		dead.Total = total
		if got := died(&dead, 90*time.Minute); len(got) != 1 || got[0].ID != "jobs.dead" || got[0].Text != want {
			t.Errorf("%+v; want one finding: %s", got, want)
		}
	}
}
