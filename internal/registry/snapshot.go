package registry

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/follow"
)

const (
	// snapshotEvery is the least time between two writes for one service.
	snapshotEvery = 3 * time.Second
	// snapshotMagic begins a file; its last part is the version.
	snapshotMagic = "freeslot-registry-1"
)

// newSnapshots returns the folder of a consumer's last lists.
func newSnapshots(dir, prefix string, log *zap.Logger) *follow.Disk[*List] {
	return &follow.Disk[*List]{
		Dir: dir, Prefix: prefix, Feature: "registry", Noun: "service", Every: snapshotEvery, Log: log,
		Encode: func(to io.Writer, _ string, l *List) error {
			data, err := encodeSnapshot(l)
			if err == nil {
				_, err = to.Write(data)
			}
			return err
		},
	}
}

// worthKeeping is false for lists from the disk, and for lists with instances that Redis does not
// have.
func (l *List) worthKeeping() bool {
	return l.State != StateDisk && l.State != StateRebuilding && l.State != StateStale
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
