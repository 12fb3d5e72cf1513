package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Error says where a trace is not what it should be. Lines and columns count from 1, columns in bytes;
// Column 0 is the whole line.
type Error struct {
	Line, Column int
	// Field is the column's name; empty when the trouble is not in one field.
	Field   string
	Message string
}

// Error implements error.
func (e *Error) Error() string {
	at := fmt.Sprintf("line %d", e.Line)
	if e.Column > 0 {
		at += fmt.Sprintf(", column %d", e.Column)
	}
	if e.Field != "" {
		at += ": " + e.Field
	}
	return at + ": " + e.Message
}

// table reads a CSV file with a fixed header, line by line.
type table struct {
	csv    *csv.Reader
	header []string
	row    []string
}

func newTable(r io.Reader, header ...string) (*table, error) {
	t := &table{csv: csv.NewReader(r), header: header}
	t.csv.ReuseRecord = true
	t.csv.FieldsPerRecord = -1
	row, err := t.csv.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, &Error{Line: 1, Message: "is missing, expected the header " + strings.Join(header, ",")}
	case err != nil:
		return nil, located(err)
	case !slices.Equal(row, header):
		return nil, &Error{Line: 1, Message: fmt.Sprintf("is %q, expected the header %s", strings.Join(row, ","), strings.Join(header, ","))}
	}
	return t, nil
}

// next returns false at the end.
func (t *table) next() (bool, error) {
	row, err := t.csv.Read()
	switch {
	case errors.Is(err, io.EOF):
		return false, nil
	case err != nil:
		return false, located(err)
	}
	t.row = row
	if len(row) != len(t.header) {
		line, _ := t.csv.FieldPos(0)
		return false, &Error{Line: line, Message: fmt.Sprintf("has %d fields, expected %d", len(row), len(t.header))}
	}
	return true, nil
}

// fail is an error in one field of the present row.
func (t *table) fail(field int, format string, args ...any) error {
	line, column := t.csv.FieldPos(field)
	return &Error{Line: line, Column: column, Field: t.header[field], Message: fmt.Sprintf(format, args...)}
}

// number reads a whole number from low to high.
func (t *table) number(field, low, high int) (int, error) {
	n, err := strconv.Atoi(t.row[field])
	if err != nil || n < low || n > high {
		return 0, t.fail(field, "is %q, expected a whole number from %d to %d", t.row[field], low, high)
	}
	return n, nil
}

func located(err error) error {
	var bad *csv.ParseError
	if errors.As(err, &bad) {
		return &Error{Line: bad.Line, Column: bad.Column, Message: bad.Err.Error()}
	}
	return err
}
