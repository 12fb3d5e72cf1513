package sim

import "sync"

// runAll makes all runs, as many at once as Parallel says. The results are in the order of the plans, whatever
// the order in which they were made. The error is the first plan's that failed.
func (in *Inputs) runAll(plans []planned) ([]*Result, error) {
	results := make([]*Result, len(plans))
	errs := make([]error, len(plans))
	next := make(chan int)
	var runners sync.WaitGroup
	for range max(in.Parallel, 1) {
		runners.Go(func() {
			for i := range next {
				results[i], errs[i] = Run(plans[i].cfg)
			}
		})
	}
	for i := range plans {
		next <- i
	}
	close(next)
	runners.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}
