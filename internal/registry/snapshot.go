package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// snapshotEvery is the least time between two writes for one service.
	snapshotEvery = 3 * time.Second
	// snapshotMagic begins a file; its last part is the version.
	snapshotMagic = "freeslot-registry-1"
	// snapshotLimit bounds the size of a file that is read.
	snapshotLimit = 1 << 30
)

// snapshots keeps the last lists in a folder, a file for each service, so that a process can start
// while Redis is away. They are only a fallback.
type snapshots struct {
	dir, prefix string
	log         *zap.Logger

	mu    sync.Mutex
	lists map[string]*List // guarded by mu; by service, not written yet
}

func newSnapshots(dir, prefix string, log *zap.Logger) *snapshots {
	return &snapshots{dir: dir, prefix: prefix, log: log, lists: make(map[string]*List)}
}

// changed takes a new list. It ignores lists from the disk, and lists with instances that Redis
// does not have.
func (s *snapshots) changed(l *List) {
	if l.State == StateDisk || l.State == StateRebuilding || l.State == StateStale {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists[l.Service] = l
}

// loop writes what has changed until ctx ends, and then once more.
func (s *snapshots) loop(ctx context.Context) {
	ticker := time.NewTicker(snapshotEvery)
	defer ticker.Stop()
	failed := false
	for ctx.Err() == nil {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
		s.mu.Lock()
		lists := s.lists
		s.lists = make(map[string]*List)
		s.mu.Unlock()
		for _, l := range lists {
			err := s.write(l)
			if err != nil && !failed { // the next ones would fail alike
				s.log.Warn("registry.snapshot_not_written", zap.String("service", l.Service), zap.Error(err))
			}
			failed = err != nil
		}
	}
}

// file returns the name of a service's file. It is made of a hash of prefix and name, since names
// may differ in ways that a file system ignores.
func (s *snapshots) file(service string) string {
	sum := sha256.Sum256([]byte(s.prefix + "\x00" + service))
	return filepath.Join(s.dir, "registry-"+hex.EncodeToString(sum[:16])+".snapshot")
}

// write replaces a service's file in one step.
func (s *snapshots) write(l *List) error {
	data, err := encodeSnapshot(l)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.dir, ".registry-*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), s.file(l.Service))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// read returns the content of a service's file. A file that cannot be used is logged and ignored.
func (s *snapshots) read(service string) (h head, instances []*Instance, ok bool) {
	name := s.file(service)
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil, false
	}
	if err == nil && info.Size() > snapshotLimit {
		err = fmt.Errorf("it has %d bytes, expected at most %d", info.Size(), snapshotLimit)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(name)
	}
	if err == nil {
		h, instances, err = decodeSnapshot(data, service)
	}
	if err != nil {
		s.log.Warn("registry.snapshot_ignored", zap.String("file", name), zap.String("service", service), zap.Error(err))
		return head{}, nil, false
	}
	return h, instances, true
}

// snapshot is the JSON of a file. It follows a first line of magic, a space, and the SHA-256 of the
// JSON.
type snapshot struct {
	Service   string          `json:"service"`
	Head      head            `json:"head"`
	Instances []savedInstance `json:"instances"`
}

// savedInstance is an instance with the values that an override hides.
type savedInstance struct {
	*Instance
	Own own
}

func encodeSnapshot(l *List) ([]byte, error) {
	file := snapshot{Service: l.Service, Head: l.head, Instances: make([]savedInstance, len(l.Instances))}
	for i, in := range l.Instances {
		file.Instances[i] = savedInstance{Instance: in, Own: in.own}
	}
	body, err := json.Marshal(file)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	return append([]byte(snapshotMagic+" "+hex.EncodeToString(sum[:])+"\n"), body...), nil
}

func decodeSnapshot(data []byte, service string) (h head, instances []*Instance, err error) {
	line, body, ok := bytes.Cut(data, []byte("\n"))
	sum := sha256.Sum256(body)
	if !ok || string(line) != snapshotMagic+" "+hex.EncodeToString(sum[:]) {
		return h, nil, errors.New("it is not a snapshot of this version, or is damaged")
	}
	var file snapshot
	if err := json.Unmarshal(body, &file); err != nil {
		return h, nil, err
	}
	if file.Service != service {
		return h, nil, fmt.Errorf("it is of service %q", file.Service)
	}
	for _, saved := range file.Instances {
		in := saved.Instance
		if in == nil || in.ID == "" || in.Service != service {
			return h, nil, errors.New("an instance has no id, or is of another service")
		}
		in.own, in.Late, in.Unconfirmed = saved.Own, false, false
		instances = append(instances, in)
	}
	return file.Head, instances, nil
}
