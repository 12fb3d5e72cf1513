package cell

import (
	"strconv"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/freeslot/freeslot"
)

// NewJobID returns a new job id: the cell, then a ULID.
func NewJobID(cell int) string { return strconv.Itoa(cell) + "-" + ulid.Make().String() }

// JobCell returns the cell that a job id names; false if id is not a job id.
func JobCell(id string) (cell int, ok bool) {
	number, rest, ok := strings.Cut(id, "-")
	if !ok || len(number) > 1 && number[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseUint(number, 10, 8)
	if err != nil || n >= MaxCells {
		return 0, false
	}
	if _, err := ulid.ParseStrict(rest); err != nil {
		return 0, false
	}
	return int(n), true
}

// ValidateJobID checks an id that came from outside. The error is a *freeslot.Error with code
// invalid_argument.
func ValidateJobID(field, id string) error {
	if _, ok := JobCell(id); !ok {
		return freeslot.Invalid(field, `is not a job id, expected one such as "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z"`)
	}
	return nil
}

// MovedID returns the id of the job in another cell: its ULID is the same in all cells.
func MovedID(jobID string, cell int) string {
	_, rest, _ := strings.Cut(jobID, "-")
	return strconv.Itoa(cell) + "-" + rest
}
