// Command speech shows freeslot with real input: it turns lines of text into speech.
//
//	go run ./examples/speech                          the phrases in phrases.txt
//	go run ./examples/speech poem.txt                 any text file
//	echo "de-AT: Servus" | go run ./examples/speech - standard input
//
// Each line names its language ("de: Guten Tag") and becomes one job of the service "tts" with that
// target language. Three nodes run espeak-ng, each for languages of its own. freeslot chooses the
// node for a job, and the node chooses the voice. Blank lines and lines that begin with '#' are
// skipped. A bad line is reported with its number, and all others are still spoken.
//
// The program starts everything itself, in the folder .dev/speech: a redis-server, and in its own
// process one replica of the scheduler and the nodes, which are worker.Workers. At the end it stops
// all of it.
package main
