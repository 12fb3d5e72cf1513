// Package history keeps the figures of a system over time, in the memory of each replica.
//
// Each replica publishes its [Figures] in the call by which it reports itself (package presence),
// and receives the figures of the others in the answer. A [History] adds them up in three rings:
// 2 s for 15 minutes, 10 s for 3 hours, 1 minute for 24 hours. One replica writes each minute into
// Redis, and a starting replica takes the last day from there.
//
//   - Counters are counted since a replica's start. Only differences between two reports of one run
//     count, so a restart is no spike.
//   - Times are by Redis' clock. A difference is spread evenly over the time between the two
//     reports.
//   - Histograms are added bucket by bucket; percentiles are computed from the sums.
//   - A time without a report of any replica is a gap, and has no values.
package history
