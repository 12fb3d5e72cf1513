package presence

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/script"
)

//go:embed script
var sources embed.FS

var scripts = script.MustLoad(sources)

// followLimit is how long Redis keeps which configuration a replica follows.
const followLimit = 10 * time.Minute

// Store keeps in Redis which replicas run, and which configuration of pools each follows. It is
// safe for concurrent use. The errors of its methods come from Redis.
type Store struct {
	runner *script.Runner
	keys   keys
}

// NewStore makes a store on the first cell of a system. It does no I/O.
func NewStore(first *script.Runner) *Store {
	first.Add(scripts)
	return &Store{runner: first, keys: keysOf(first.Layout())}
}

// Present records that a replica runs with its heartbeat limit and figures, valid for limit, and
// returns all running replicas, sorted by name. It may be repeated.
func (s *Store) Present(ctx context.Context, r Replica, limit time.Duration) ([]Replica, error) {
	return s.present(ctx, r, limit, "1")
}

// Leave records that a replica no longer runs. It may be repeated. After an error the replica
// counts as running until the limit has passed.
func (s *Store) Leave(ctx context.Context, replica string, limit time.Duration) error {
	_, err := s.present(ctx, Replica{Name: replica}, limit, "0")
	return err
}

func (s *Store) present(ctx context.Context, r Replica, limit time.Duration, stays string) ([]Replica, error) {
	keys := []string{s.keys.replicas, s.keys.limits, s.keys.figures, s.keys.status}
	args := []string{r.Name, millis(limit), stays, millis(r.HeartbeatLimit), r.Figures, r.Status}
	reply, err := s.runner.Call(ctx, scripts["presence"], keys, args).AsStrSlice()
	if err != nil {
		return nil, fmt.Errorf("presence of replica %s: %w", r.Name, err)
	}
	var all []Replica
	for of := range slices.Chunk(reply, 4) {
		ms, _ := strconv.ParseInt(of[1], 10, 64) // another release may write anything
		at, _ := strconv.ParseInt(of[2], 10, 64)
		all = append(all, Replica{
			Name: of[0], HeartbeatLimit: time.Duration(ms) * time.Millisecond, AtMS: at, Figures: of[3],
			ReadsHeartbeats: strings.HasPrefix(of[1], "+"),
		})
	}
	slices.SortFunc(all, func(a, b Replica) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Running returns the replicas that run, without their limits and statuses. It is for processes
// that are no replica: while none runs, those that were killed last may be among them.
func (s *Store) Running(ctx context.Context) (all []Replica, err error) {
	read := s.runner.B().Zrange().Key(s.keys.replicas).Min("0").Max("-1").Withscores().Build()
	told, err := s.runner.Do(ctx, "running", read).AsZScores()
	if err != nil {
		return nil, fmt.Errorf("read which replicas run: %w", err)
	}
	figures, err := s.runner.Do(ctx, "running", s.runner.B().Hgetall().Key(s.keys.figures).Build()).AsStrMap()
	if err != nil {
		return nil, fmt.Errorf("read the figures of replicas: %w", err)
	}
	for _, t := range told {
		all = append(all, Replica{Name: t.Member, AtMS: int64(t.Score), Figures: figures[t.Member]})
	}
	slices.SortFunc(all, func(a, b Replica) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Statuses returns what the replicas say of themselves, by name.
func (s *Store) Statuses(ctx context.Context) (map[string]string, error) {
	all, err := s.runner.Do(ctx, "statuses", s.runner.B().Hgetall().Key(s.keys.status).Build()).AsStrMap()
	if err != nil {
		return nil, fmt.Errorf("read the statuses of replicas: %w", err)
	}
	return all, nil
}

// FeatureExpects is the feature of a release that knows what pools expect of their nodes.
const FeatureExpects = "expects"

// Features lists what this release does and an earlier one does not. A replica's status, a JSON
// object, has them in its field features.
func Features() []string { return []string{FeatureExpects} }

// AllReadHeartbeats reports whether all of these replicas, which an answer of presence named, do so.
func AllReadHeartbeats(all []Replica) bool {
	return !slices.ContainsFunc(all, func(r Replica) bool { return !r.ReadsHeartbeats })
}

// Lacking returns the running replicas whose status does not have the feature, sorted.
func (s *Store) Lacking(ctx context.Context, feature string) (names []string, err error) {
	there, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	statuses, err := s.Statuses(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(there, func(replica string) bool {
		var status struct {
			Features []string `json:"features"`
		}
		// A status of another form does not have the feature either.
		err := json.Unmarshal([]byte(statuses[replica]), &status)
		return err == nil && slices.Contains(status.Features, feature)
	}), nil
}

// names returns the running replicas, sorted.
func (s *Store) names(ctx context.Context) ([]string, error) {
	read := s.runner.B().Zrange().Key(s.keys.replicas).Min("0").Max("-1").Build()
	names, err := s.runner.Do(ctx, "follow", read).AsStrSlice()
	if err != nil {
		return nil, fmt.Errorf("which replicas are there: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

// Follow records that the replica follows this version of the configuration, and begins nothing by
// an older one any more. It must be repeated well within ten minutes.
func (s *Store) Follow(ctx context.Context, replica string, version uint64, generation string) error {
	if generation == "" {
		generation = "-"
	}
	args := []string{replica, strconv.FormatUint(version, 10), generation, millis(followLimit)}
	if err := s.runner.Call(ctx, scripts["follow"], []string{s.keys.followed}, args).Error(); err != nil {
		return fmt.Errorf("note the version of replica %s: %w", replica, err)
	}
	return nil
}

// Behind returns the running replicas that have not recorded that they follow this version of this
// generation, or a newer one, sorted.
func (s *Store) Behind(ctx context.Context, version uint64, generation string) ([]string, error) {
	there, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	noted, err := s.runner.Do(ctx, "follow", s.runner.B().Hgetall().Key(s.keys.followed).Build()).AsStrMap()
	if err != nil {
		return nil, fmt.Errorf("which versions replicas go by: %w", err)
	}
	return slices.DeleteFunc(there, func(replica string) bool { return follows(noted[replica], version, generation) }), nil
}

func follows(noted string, version uint64, generation string) bool {
	part := strings.Split(noted, " ")
	if len(part) != 3 || part[1] != generation {
		return false
	}
	n, err := strconv.ParseUint(part[0], 10, 64)
	return err == nil && n >= version
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
