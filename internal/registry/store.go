package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// Store is the registry as replicas see it: all services, for cleanup, checks and operators. It has
// no loops and needs no Stop. Its methods are safe for concurrent use.
type Store struct{ c *conn }

// NewStore makes a store on client, which the caller keeps and closes. prefix comes from [Prefix].
// It does no I/O.
func NewStore(client rueidis.Client, prefix string, cluster bool, log *zap.Logger) *Store {
	return &Store{newConn(prefix, client, cluster, log, nil)}
}

// Services returns the names of all services with instances, sorted. With an [UnreadError] it
// returns those that could be read.
func (s *Store) Services(ctx context.Context) ([]string, error) {
	out, err := ofTags(ctx, s.c.runners, func(ctx context.Context, runner *script.Runner) ([]string, error) {
		names, err := members(ctx, runner, "registry_services", keys{runner.Layout()}.services())
		if err != nil {
			return nil, fmt.Errorf("list services: %w", err)
		}
		return names, nil
	})
	slices.Sort(out)
	return slices.Compact(out), err // SSCAN may bring one twice
}

// ofTags joins what read finds in each tag; tags are read side by side. A tag that fails adds
// nothing, and is in the UnreadError.
func ofTags[T any](
	ctx context.Context, runners []*script.Runner, read func(context.Context, *script.Runner) ([]T, error),
) (out []T, err error) {
	found, failed := make([][]T, len(runners)), make([]error, len(runners))
	var tags sync.WaitGroup
	for i, runner := range runners {
		tags.Go(func() { found[i], failed[i] = read(ctx, runner) })
	}
	tags.Wait()
	for i := range runners {
		if failed[i] == nil {
			out = append(out, found[i]...)
		}
	}
	if errors.Join(failed...) != nil {
		return out, &UnreadError{failed}
	}
	return out, nil
}

// List returns a page of services: up to limit names, from the first one behind after.
func (s *Store) List(ctx context.Context, after string, limit int) ([]string, error) {
	all, err := s.Services(ctx)
	if err != nil {
		return nil, err
	}
	from, found := slices.BinarySearch(all, after)
	if found {
		from++
	}
	return all[from:min(from+limit, len(all))], nil
}

// members returns the members of a set, in pages that do not hold up Redis. Each page has
// callTimeout.
func members(ctx context.Context, runner *script.Runner, label, key string) (out []string, err error) {
	for cursor := uint64(0); ; {
		one, cancel := context.WithTimeout(ctx, callTimeout)
		page, err := runner.Do(one, label, runner.B().Sscan().Key(key).Cursor(cursor).Count(1000).Build()).AsScanEntry()
		cancel()
		if err != nil {
			return nil, err
		}
		out = append(out, page.Elements...)
		if cursor = page.Cursor; cursor == 0 {
			return out, nil
		}
	}
}

// Cleanup makes one call of the cleanup of a service. Redis lets one caller through in each
// interval.
func (s *Store) Cleanup(ctx context.Context, service string) (Cleaned, error) {
	got, err := s.c.cleanup(ctx, service)
	return Cleaned{Removed: got.removed, More: got.more, Guard: got.guard, Every: got.every}, err
}

// Instances returns a page of a service: up to about 200 instances in no order, and the cursor of
// the next page, "0" at the end. An instance can be in two pages. now is Redis' time.
func (s *Store) Instances(
	ctx context.Context, service, cursor string,
) (out []Detail, next string, now time.Time, err error) {
	return s.Query(ctx, service, nil, cursor)
}

// Query works like Instances, but returns only instances that a filter selects; nil means all.
func (s *Store) Query(
	ctx context.Context, service string, filter *Filter, cursor string,
) (out []Detail, next string, now time.Time, err error) {
	if err := freeslot.ValidateName("service", service); err != nil {
		return nil, "", now, err
	}
	scan, _, ok := cutCursor(cursor)
	if !ok {
		return nil, "", now, freeslot.Invalid("cursor", "is %q, expected the cursor of a page", cursor)
	}
	if now, err = s.now(ctx, service); err != nil {
		return nil, "", now, err
	}
	var p page
	if filter == nil {
		p, err = s.c.load(ctx, service, cursor)
	} else {
		p, err = s.c.query(ctx, service, filter, scan)
	}
	if err != nil {
		return nil, "", now, err
	}
	for i := range p.entries {
		if len(p.entries[i].Fields) > 0 {
			out = append(out, detail(service, &p.entries[i], now))
		}
	}
	return out, p.cursor, now, nil
}

// Instance returns one instance. now is Redis' time. Errors: a *freeslot.Error with not_found.
func (s *Store) Instance(ctx context.Context, service, id string) (out Detail, now time.Time, err error) {
	if err := checkName(service, id); err != nil {
		return out, now, err
	}
	runner, k := s.c.of(service)
	if now, err = s.now(ctx, service); err != nil {
		return out, now, err
	}
	found, err := runner.Do(ctx, "registry_instance", runner.B().Hgetall().Key(k.instance(service, id)).Build()).AsStrMap()
	if err != nil {
		return out, now, fmt.Errorf("instance %s of %s: %w", id, service, err)
	}
	if len(found) == 0 {
		return out, now, notFound(service, id)
	}
	var fields []string
	for name, value := range found {
		fields = append(fields, name, value)
	}
	override, err := runner.Do(
		ctx, "registry_override", runner.B().Hget().Key(k.overrides(service)).Field(id).Build(),
	).ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		return out, now, fmt.Errorf("override of %s of %s: %w", id, service, err)
	}
	return detail(service, &entry{ID: id, Fields: fields, Override: override}, now), now, nil
}

func detail(service string, e *entry, now time.Time) Detail {
	d := Detail{Instance: *instanceOf(service, e)}
	d.applyOverride(now.UnixMilli())
	for f := e.Fields; len(f) >= 2; f = f[2:] {
		switch f[0] {
		case "heartbeat":
			d.BeatAt = time.UnixMilli(msDuration(f[1]).Milliseconds())
		case "revision":
			d.Revision, _ = strconv.ParseInt(f[1], 10, 64)
		}
	}
	return d
}

// now returns Redis' time.
func (s *Store) now(ctx context.Context, service string) (time.Time, error) {
	runner, _ := s.c.of(service)
	parts, err := runner.Do(ctx, "time", runner.B().Time().Build()).AsIntSlice()
	if err != nil {
		return time.Time{}, fmt.Errorf("redis' time: %w", err)
	}
	return time.Unix(parts[0], parts[1]*1000), nil
}

func checkName(service, id string) error {
	var found freeslot.FieldErrors
	found.Add(freeslot.ValidateName("service", service))
	if why := checkID(id); why != "" {
		found.Addf("id", "%s", why)
	}
	return found.Err()
}

func notFound(service, id string) error {
	return &freeslot.Error{Code: freeslot.CodeNotFound, Message: fmt.Sprintf("service %s has no instance %s", service, id)}
}

// SetOverride sets an operator's override. If lasts is more than 0, it ends by itself after lasts.
// nil takes it back. seen is the AtMS of the override that the caller saw, 0 for none: another one
// is a conflict. nil stands for any.
func (s *Store) SetOverride(
	ctx context.Context, service, id string, o *Override, lasts time.Duration, seen *int64,
) (revision int64, err error) {
	if err := checkName(service, id); err != nil {
		return 0, err
	}
	got, err := s.c.override(ctx, service, id, o, lasts, seen)
	if err == nil && got.code == codeGone && o == nil {
		return 0, &freeslot.Error{
			Code: freeslot.CodeNotFound, Message: fmt.Sprintf("nothing is set for instance %s of service %s", id, service),
		}
	}
	if err == nil && got.code == codeOther {
		return 0, &freeslot.Error{
			Code: freeslot.CodeConflict, Field: "seen",
			Message: fmt.Sprintf("instance %s of service %s has another override by now, or none; read it again", id, service),
		}
	}
	if err == nil && got.code == codeFull {
		return 0, &freeslot.Error{
			Code:    freeslot.CodeOverloaded,
			Message: fmt.Sprintf("service %s has overrides for 1000 instances; reset some of them first", service),
		}
	}
	return changed(got, service, id, err)
}

// changed returns the revision of an answer, or the error that it stands for.
func changed(got answer, service, id string, err error) (int64, error) {
	switch {
	case err != nil:
		return 0, err
	case got.code == codeFull:
		return 0, errFull
	case got.code == codeGone:
		return 0, notFound(service, id)
	case got.code == codeHolder:
		return 0, &freeslot.Error{Code: freeslot.CodeConflict, Message: got.holder.Error()}
	}
	return got.revision, nil
}

// SetCleanup sets when silent instances of a service are removed. 0 means the default; nil leaves a
// value as it is.
func (s *Store) SetCleanup(ctx context.Context, service string, limit, every *time.Duration) error {
	found, err := s.Summary(ctx, service)
	if err != nil {
		return err
	}
	if found.Revision == 0 {
		return &freeslot.Error{
			Code: freeslot.CodeNotFound, Message: "no instance of service " + service + " was registered yet",
		}
	}
	runner, k := s.c.of(service)
	set := runner.B().Hset().Key(k.record(service)).FieldValue()
	for name, d := range map[string]*time.Duration{"limit": limit, "every": every} {
		switch {
		case d == nil:
		case *d == 0:
			set = set.FieldValue(name, "")
		default:
			set = set.FieldValue(name, milliseconds(*d))
		}
	}
	if err := runner.Do(ctx, "registry_settings", set.Build()).Error(); err != nil {
		return fmt.Errorf("settings of service %s: %w", service, err)
	}
	return nil
}

// PutPersistent registers a persistent instance, or updates it.
func (s *Store) PutPersistent(ctx context.Context, r Registration) (revision int64, err error) {
	r.Persistent = true
	r = r.WithDefaults()
	if err := r.Validate(); err != nil {
		return 0, err
	}
	// Its epoch never changes, so that repeating a call is harmless.
	fields, _ := r.fields()
	got, err := s.c.register(ctx, r.Service, false, []registerItem{{id: r.ID, epoch: persistentEpoch, fields: fields}})
	if err != nil {
		return 0, err
	}
	if got[0].code == codeSame {
		d, _, err := s.Instance(ctx, r.Service, r.ID)
		return d.Revision, err
	}
	return changed(got[0], r.Service, r.ID, nil)
}

// persistentEpoch is the epoch of instances that operators register.
const persistentEpoch = "operator"

// Remove removes an instance, regardless of who registered it. If epoch is not empty, it must be
// the instance's own: a *freeslot.Error conflict otherwise.
func (s *Store) Remove(ctx context.Context, service, id, epoch string) (revision int64, err error) {
	if err := checkName(service, id); err != nil {
		return 0, err
	}
	got, err := s.c.deregister(ctx, service, reasonOperator, []deregisterItem{{id: id, epoch: epoch}})
	if err != nil {
		return 0, err
	}
	return changed(got[0], service, id, nil)
}

// Targets returns all instances that want active checks. With an [UnreadError] it returns those
// that could be read.
func (s *Store) Targets(ctx context.Context) ([]Target, error) {
	return ofTags(ctx, s.c.runners, func(ctx context.Context, runner *script.Runner) (out []Target, err error) {
		k := keys{runner.Layout()}
		names, err := members(ctx, runner, "registry_checked", k.checked())
		if err != nil {
			return nil, fmt.Errorf("list instances to check: %w", err)
		}
		for page := range slices.Chunk(names, pageSize) {
			found, err := s.targets(ctx, k, page)
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
		}
		return out, nil
	})
}

// targets returns those among names, service:id, that want checks, and forgets the others.
func (s *Store) targets(ctx context.Context, k keys, names []string) ([]Target, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, gone, err := s.checked(ctx, k, names)
	if err != nil {
		return nil, err
	}
	return found, s.forget(ctx, k, gone)
}

// checked returns the instances among names that want checks, and the names of the others.
func (s *Store) checked(ctx context.Context, k keys, names []string) (found []Target, others []string, err error) {
	cmds := make(rueidis.Commands, len(names))
	for i, name := range names {
		service, id, _ := strings.Cut(name, ":")
		cmds[i] = s.c.commands.B().Hmget().Key(k.instance(service, id)).Field(
			"epoch", "host", "port", "check", "checked", "checked_why", "kind",
		).Build()
	}
	for i, result := range s.c.commands.DoMulti(ctx, cmds...) {
		v, err := result.AsStrSlice()
		if err != nil {
			return nil, nil, fmt.Errorf("instance to check: %w", err)
		}
		t := Target{Epoch: v[0], Host: v[1], Persistent: v[6] == "persistent"}
		t.Service, t.ID, _ = strings.Cut(names[i], ":")
		t.Port, _ = strconv.Atoi(v[2])
		if v[3] == "" || json.Unmarshal([]byte(v[3]), &t.Check) != nil {
			others = append(others, names[i])
			continue
		}
		if v[4] == "failing" {
			t.Failing = cmp.Or(v[5], "its checks fail")
		}
		found = append(found, t)
	}
	return found, others, nil
}

// forget removes names from the instances to check, but puts those back that were registered
// meanwhile.
func (s *Store) forget(ctx context.Context, k keys, names []string) error {
	if len(names) == 0 {
		return nil
	}
	b := s.c.commands.B()
	if err := s.c.commands.Do(ctx, b.Srem().Key(k.checked()).Member(names...).Build()).Error(); err != nil {
		return err
	}
	_, gone, err := s.checked(ctx, k, names)
	back := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(gone, name) })
	if err != nil || len(back) == 0 {
		return err
	}
	return s.c.commands.Do(ctx, s.c.commands.B().Sadd().Key(k.checked()).Member(back...).Build()).Error()
}

// Verdict records why an instance fails its checks, or "" when it passes them. Cleanup removes a
// persistent instance only while its failure is repeated at least every 45 s. A verdict about
// another epoch, or about an instance that is gone, changes nothing.
func (s *Store) Verdict(ctx context.Context, t *Target, failing string) error {
	if _, err := s.c.verdict(ctx, t.Service, t.ID, t.Epoch, failing == "", failing); err != nil {
		return err
	}
	return s.Trust(ctx, t)
}

// doubtsLast is how long a doubt lasts unless it is repeated.
const doubtsLast = 30 * time.Second

// Trust takes back the doubt about an instance that another replica has found well.
func (s *Store) Trust(ctx context.Context, t *Target) error {
	_, k := s.c.of(t.Service)
	return s.c.commands.Do(ctx, s.c.commands.B().Hdel().Key(k.doubts()).Field(t.Name()).Build()).Error()
}

// Doubt says that a replica does not trust its own failures of these instances.
func (s *Store) Doubt(ctx context.Context, self string, held []Target) error {
	for i := range held {
		_, k := s.c.of(held[i].Service)
		b := s.c.commands.B()
		for _, result := range s.c.commands.DoMulti(ctx,
			b.Hset().Key(k.doubts()).FieldValue().FieldValue(held[i].Name(), self).Build(),
			b.Pexpire().Key(k.doubts()).Milliseconds(doubtsLast.Milliseconds()).Build(),
		) {
			if err := result.Error(); err != nil {
				return fmt.Errorf("doubt %s: %w", held[i].Name(), err)
			}
		}
	}
	return nil
}

// Doubts returns the instances that replicas other than self doubt.
func (s *Store) Doubts(ctx context.Context, self string) (out []Target, err error) {
	for _, runner := range s.c.runners {
		k := keys{runner.Layout()}
		doubts, err := runner.Do(ctx, "registry_doubts", runner.B().Hgetall().Key(k.doubts()).Build()).AsStrMap()
		if err != nil {
			return nil, fmt.Errorf("doubts of other replicas: %w", err)
		}
		var names []string
		for name, who := range doubts {
			if who != self {
				names = append(names, name)
			}
		}
		for page := range slices.Chunk(names, pageSize) {
			found, err := s.targets(ctx, k, page)
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
		}
	}
	return out, nil
}

// NewProviderOn makes a provider on the connection of a store, which Stop leaves open.
func NewProviderOn(s *Store, opts Options) (*Provider, error) {
	shared := newConnection(nil, nil)
	shared.set(s.c, func() {})
	return newProvider(opts, shared)
}

// StartOn starts a consumer on the connection of a store. Stop leaves that open.
func (c *Consumer) StartOn(s *Store) {
	c.redis.set(s.c, func() {})
	c.begin()
}
