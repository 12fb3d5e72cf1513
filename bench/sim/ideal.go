package sim

// ideal is a central scheduler that knows everything at once: a job begins on any free slot as it comes, or,
// first come first served, on the first slot that becomes free. It has no placement to decide, because for
// jobs of one slot all slots of a pool are alike.
type ideal struct {
	pools []freed
}

// freed is a binary heap of the moments at which the slots of a pool become free. Slots that never had a job
// are not in it.
type freed struct {
	at    []int64
	slots int
}

func newIdeal(cfg *Config) *ideal {
	d := &ideal{pools: make([]freed, max(cfg.Pools, 1))}
	for i, n := range cfg.Slots {
		d.pools[i%len(d.pools)].slots += n
	}
	return d
}

// add takes a slot from the run's begin until held.
func (d *ideal) add(pool int32, held int64) { d.pools[pool].push(held) }

// delay is how long the job waits for its slot. Jobs must come in the order of their arrival.
func (d *ideal) delay(j job) int64 {
	f := &d.pools[j.pool]
	if len(f.at) < f.slots {
		f.push(j.at + j.held)
		return 0
	}
	begin := max(j.at, f.at[0])
	f.replace(begin + j.held)
	return begin - j.at
}

func (f *freed) push(at int64) {
	f.at = append(f.at, at)
	for i := len(f.at) - 1; i > 0 && f.at[(i-1)/2] > f.at[i]; i = (i - 1) / 2 {
		f.at[i], f.at[(i-1)/2] = f.at[(i-1)/2], f.at[i]
	}
}

// replace takes out the earliest moment and puts another in.
func (f *freed) replace(at int64) {
	f.at[0] = at
	for i := 0; ; {
		least := i
		for down := 2*i + 1; down <= 2*i+2 && down < len(f.at); down++ {
			if f.at[down] < f.at[least] {
				least = down
			}
		}
		if least == i {
			return
		}
		f.at[i], f.at[least] = f.at[least], f.at[i]
		i = least
	}
}
