// Package trace reads the public traces that the load tools replay: the requests of the Azure LLM
// inference trace of 2023 and the node list of the Alibaba GPU cluster trace of 2023. It turns them
// into arrivals at a given rate, durations that keep a given share of slots busy, and a fleet of a
// given size.
package trace
