package finding

// Gathered is a finding about several things of one kind. Its zero value, with ID, Severity and
// Next, is about none. It is for one goroutine.
type Gathered struct {
	Finding

	Count int
	// Oldest says more about the thing for which it has held the longest.
	Oldest string
}

// Add adds a thing for which the finding has held since a time in ms.
func (g *Gathered) Add(name string, sinceMS int64, what string) {
	if g.Count++; g.Count <= MaxNames {
		g.Names = append(g.Names, name)
	}
	if g.SinceMS == 0 || sinceMS < g.SinceMS {
		g.SinceMS, g.Oldest = sinceMS, what
	}
}

// Findings returns the findings that are about something, in this order.
func Findings(all ...*Gathered) (found []Finding) {
	for _, g := range all {
		if g.Count > 0 {
			found = append(found, g.Finding)
		}
	}
	return found
}
