package version

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/freeslot/freeslot/internal/namelist"
)

// journal records what a build has done. It survives the process, not the machine.
type journal struct {
	// Boot names the run of the machine. After another start the files may have lost data.
	Boot   string `json:"boot,omitempty"`
	List   string `json:"list"`
	Number int64  `json:"number"`
	Build  string `json:"build"`
	// Bits is the number of hash bits that divide the partitions. Based is true if the files of the
	// base and of edits are complete.
	Bits  uint8 `json:"bits"`
	Based bool  `json:"based"`
	// Partitions are by number.
	Partitions []sorted `json:"partitions"`
	// Version is set once its count is known. Until the build is verified, FilterBytes counts only
	// the blocks that are written.
	Version *namelist.Version `json:"version,omitzero"`
	// Segments and Blocks count what is written: all with lower numbers.
	Segments uint32 `json:"segments"`
	Blocks   uint32 `json:"blocks"`
	Verified bool   `json:"verified"`
}

const (
	journalFile = "journal.json"
	// reportFile has the Report of the upload; it is there once the upload is parsed.
	reportFile = "report.json"
)

// bootID returns an id of this run of the machine; empty where the system has none.
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // of Linux alone
	return strings.TrimSpace(string(id))
}

// openJournal reads the journal of a build. If the folder has none, another build's, or one of
// before the machine's last start, it empties the folder.
func openJournal(dir string, plan *Plan) (*journal, error) {
	j, boot := &journal{}, bootID()
	found, err := load(dir, journalFile, j)
	switch {
	case err != nil:
		return nil, err
	case found && j.Build == plan.Build && (j.List != plan.List || j.Number != plan.Number):
		return nil, fmt.Errorf("build %s is of version %d of list %s", j.Build, j.Number, j.List)
	case found && j.Build == plan.Build && j.Boot == boot:
		return j, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	j = &journal{Boot: boot, List: plan.List, Number: plan.Number, Build: plan.Build, Bits: plan.partitionBits()}
	j.Partitions = make([]sorted, 1<<j.Bits)
	return j, j.save(dir)
}

func (j *journal) save(dir string) error { return store(dir, journalFile, j) }

// load reads a JSON file. A file that does not exist, or is incomplete, is not found.
func load(dir, name string, into any) (found bool, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && json.Unmarshal(raw, into) == nil, err
}

// store replaces a file in one step.
func store(dir, name string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".new", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// total adds up the partitions.
func (j *journal) total() (t sorted) {
	for _, p := range j.Partitions {
		t.Count += p.Count
		t.Long += p.Long
		t.Bytes += p.Bytes
		t.Duplicates += p.Duplicates
		t.Expired += p.Expired
	}
	return t
}
