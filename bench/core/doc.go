// Command core measures what the core promises: choosing a node from local memory, the cache's upkeep, and
// the scripts in Redis.
//
//	go run -C bench ./core                       everything, into bench/results/core.json and bench/RESULTS.md
//	go run -C bench ./core -run choose,apply     only these; what the file has of the others stays
//	go run -C bench ./core -list                 the scenarios
//	go run -C bench ./core -short                everything in about a minute; shows that it works, not how fast
//
// Every figure that is compared with another is measured in the same run as that one, in turns, and what is
// reported is a median over the turns. Each scenario notes the command, the commit and the machine that it
// was measured with, because they can be run one by one.
package main
