// Command report writes bench/RESULTS.md from the JSON files in bench/results.
//
//	go run -C bench ./report          write it
//	go run -C bench ./report -check   exit 1 unless it is what the files give
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/freeslot/freeslot/bench/result"
)

func main() {
	check := flag.Bool("check", false, "write nothing; exit 1 unless the report is what the files give")
	flag.Parse()
	do := result.Write
	if *check {
		do = result.Check
	}
	if err := do("results", "RESULTS.md"); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}
