package cgroup

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Supported is true if the system can have control groups.
const Supported = true

const (
	// leafName is the cgroup of the process itself in v2, where a cgroup with processes cannot have
	// limited ones below it. DelegateSubgroup= of a systemd unit can name it too.
	leafName = "freeslot-agent"
	// homePrefix begins the name of a manager's directory.
	homePrefix = "freeslot-jobs-"
)

var errClosed = errors.New("the cgroups were given up, the agent stops")

// Manager makes groups. It is safe for concurrent use.
type Manager struct {
	v2 bool
	mu sync.Mutex // guards homes
	// homes holds the manager's locked directories, one for each hierarchy; none once closed.
	homes []*home
	// reason tells why a controller is missing.
	reason error
	made   atomic.Uint64
	// mkdir is os.Mkdir except in tests.
	mkdir func(string, os.FileMode) error
}

// home is a manager's directory in one hierarchy.
type home struct {
	dir  string
	lock *os.File
	// controllers lists the controllers that its groups can use.
	controllers []string
}

// Open finds a place for groups, v2 before v1, and removes the leftovers of killed processes there.
// In v2 it moves its own process into a leaf, so it must be called before the first command. The
// error tells why there can be no group.
func Open() (*Manager, error) {
	at, err := find()
	if err != nil {
		return nil, err
	}
	return open(at)
}

func open(at places) (*Manager, error) {
	err2 := errors.New("no cgroup v2 hierarchy is mounted")
	if at.v2 != "" {
		m, err := openV2(at.v2, memory, cpu, pids)
		if err == nil {
			return m, nil
		}
		err2 = err
	}
	m, err1 := openV1(at.v1)
	if err1 != nil {
		return nil, fmt.Errorf("no cgroup can be used: v2: %w; v1: %w", err2, err1)
	}
	return m, nil
}

// openV2 uses the wanted controllers that the process' cgroup has. Groups without limits want none.
func openV2(own string, want ...string) (*Manager, error) {
	base := own
	if filepath.Base(own) == leafName {
		base = filepath.Dir(own)
	}
	there, err := words(filepath.Join(base, "cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	usable := slices.DeleteFunc(slices.Clone(want), func(name string) bool { return !slices.Contains(there, name) })
	if len(usable) == 0 && len(want) > 0 {
		return nil, fmt.Errorf("%s has none of the controllers %s", base, strings.Join(want, ", "))
	}
	if err := makeInner(base, own == base, usable); err != nil {
		return nil, err
	}
	h, err := newHome(base, usable)
	if err != nil {
		return nil, err
	}
	m := &Manager{v2: true, homes: []*home{h}, mkdir: os.Mkdir, reason: fmt.Errorf("%s lacks it", base)}
	if err := enable(h.dir, usable); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// makeInner makes the cgroup pass controllers to the cgroups below it. Only the root can also have
// processes of its own; in any other cgroup the process moves to the leaf.
func makeInner(base string, inside bool, controllers []string) error {
	_, err := os.Stat(filepath.Join(base, "cgroup.type"))
	if root := errors.Is(err, os.ErrNotExist); root || !inside {
		return enable(base, controllers)
	}
	leaf := filepath.Join(base, leafName)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	pid := strconv.Itoa(os.Getpid())
	if err := set(leaf, "cgroup.procs", pid); err != nil {
		return err
	}
	err = enable(base, controllers)
	if errors.Is(err, unix.EBUSY) {
		err = fmt.Errorf("%s has other processes beside this one", base)
	}
	if err != nil {
		err = errors.Join(err, set(base, "cgroup.procs", pid), os.Remove(leaf))
	}
	return err
}

func enable(dir string, controllers []string) error {
	if len(controllers) == 0 {
		return nil
	}
	return set(dir, "cgroup.subtree_control", "+"+strings.Join(controllers, " +"))
}

// openV1 uses the hierarchies that it may write to. Controllers that are mounted together share
// one.
func openV1(dirs map[string]string) (*Manager, error) {
	m := &Manager{mkdir: os.Mkdir}
	var problems []error
	bases := make(map[string]*home)
	for _, name := range []string{memory, cpu, pids} {
		base := dirs[name]
		if base == "" {
			problems = append(problems, fmt.Errorf("no hierarchy with %s is mounted", name))
			continue
		}
		h := bases[base]
		if h == nil {
			var err error
			if h, err = newHome(base, nil); err != nil {
				problems = append(problems, err)
				continue
			}
			bases[base] = h
			m.homes = append(m.homes, h)
		}
		h.controllers = append(h.controllers, name)
	}
	m.reason = errors.Join(problems...)
	if len(m.homes) == 0 {
		return nil, m.reason
	}
	return m, nil
}

// newHome makes and locks a directory, and removes the directories of owners that have died.
func newHome(base string, controllers []string) (*home, error) {
	old, err := filepath.Glob(filepath.Join(base, homePrefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range old {
		sweep(dir)
	}
	for {
		dir := filepath.Join(base, homePrefix+rand.Text()[:10])
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		// Another process that is opening may sweep the directory before it is locked.
		if lock, ok := lockDir(dir); ok {
			return &home{dir: dir, lock: lock, controllers: controllers}, nil
		}
	}
}

// sweep removes the leftovers of a killed owner. If something cannot be removed, the next sweep
// tries again.
func sweep(dir string) {
	lock, ok := lockDir(dir)
	if !ok {
		return
	}
	defer lock.Close()
	_ = killAll([]string{dir})
	_ = removeAll(dir)
}

// lockDir returns false if another process holds the directory, or has removed it.
func lockDir(dir string) (*os.File, bool) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, false
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		var mine, there os.FileInfo
		mine, err = f.Stat()
		if err == nil {
			there, err = os.Stat(dir)
		}
		if err == nil && os.SameFile(mine, there) {
			return f, true
		}
	}
	_ = f.Close()
	return nil, false
}

func (m *Manager) list() []*home {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.homes
}

// Supports returns an error for a limit that the system cannot set.
func (m *Manager) Supports(l Limits) error {
	homes := m.list()
	if homes == nil {
		return errClosed
	}
	for _, name := range l.needs() {
		if !slices.ContainsFunc(homes, func(h *home) bool { return slices.Contains(h.controllers, name) }) {
			return fmt.Errorf("the controller %s is missing: %w", name, m.reason)
		}
	}
	return nil
}

// Create makes a group. The name shows up among the system's cgroups, and may be used again. The
// caller removes the group.
func (m *Manager) Create(name string, l Limits) (*Group, error) {
	if err := m.Supports(l); err != nil {
		return nil, err
	}
	name += "." + strconv.FormatUint(m.made.Add(1), 10)
	g := &Group{v2: m.v2}
	for _, h := range m.list() {
		dir := filepath.Join(h.dir, name)
		if err := m.mkdir(dir, 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("make a cgroup: %w", err), g.Remove())
		}
		g.dirs = append(g.dirs, dir)
		if slices.Contains(h.controllers, memory) {
			g.memory = dir
		}
		if err := limit(m.v2, dir, h.controllers, l); err != nil {
			return nil, errors.Join(fmt.Errorf("limit a cgroup: %w", err), g.Remove())
		}
	}
	if len(g.dirs) == 0 {
		return nil, errClosed
	}
	if m.v2 {
		f, err := os.Open(g.dirs[0])
		if err != nil {
			return nil, errors.Join(err, g.Remove())
		}
		g.file = f
	}
	return g, nil
}

// Close ends the processes in the groups, and removes the groups. There are no groups afterwards.
func (m *Manager) Close() error {
	m.mu.Lock()
	homes := m.homes
	m.homes = nil
	m.mu.Unlock()
	var problems []error
	for _, h := range homes {
		problems = append(problems, killAll([]string{h.dir}), removeAll(h.dir), h.lock.Close())
	}
	return errors.Join(problems...)
}
