// Command speech is freeslot at its main job, on real input: it turns lines of text into speech.
//
//	go run ./examples/speech                          the phrases in phrases.txt
//	go run ./examples/speech poem.txt                 any text file
//	echo "de-AT: Servus" | go run ./examples/speech - standard input
//
// Each line names its language ("de: Guten Tag") and becomes one job of the service "tts" whose target
// language is that one. Three nodes run espeak-ng, each for languages of its own; which of them gets a job
// is freeslot's choice, and which voice reads it is the node's. Blank lines and those that begin with '#'
// are left out; a line that cannot be used is reported with its number, and all others are still spoken.
//
// The program starts everything itself, in the folder .dev/speech: a redis-server, one scheduler process,
// and the nodes, which are worker.Workers in this process. Nothing of it is left running.
package main
