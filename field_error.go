package freeslot

import (
	"errors"
	"fmt"
)

// MaxFieldErrors is the most offending inputs that one [Error] lists.
const MaxFieldErrors = 100

// FieldError is one of several offending inputs.
type FieldError struct {
	Field string `json:"field"`
	// Message begins with the field.
	Message string `json:"message"`
}

// FieldErrors collects offending inputs in the order in which they are found. The zero value is
// empty and ready for use.
type FieldErrors []FieldError

// Addf adds the error that [Invalid] makes of its arguments.
func (f *FieldErrors) Addf(field, format string, args ...any) {
	f.Add(Invalid(field, format, args...))
}

// Add adds an [*Error], or the first one that err wraps. Any other error is added without a
// field; nil is not added.
func (f *FieldErrors) Add(err error) {
	var coded *Error
	switch {
	case errors.As(err, &coded):
		*f = append(*f, FieldError{Field: coded.Field, Message: coded.Message})
	case err != nil:
		*f = append(*f, FieldError{Message: err.Error()})
	}
}

// Err returns nil if f is empty, else an [*Error] with [CodeInvalidArgument] that lists the
// first error of each field.
func (f FieldErrors) Err() error {
	if len(f) == 0 {
		return nil
	}
	seen := make(map[string]bool, len(f))
	var distinct []FieldError
	for _, bad := range f {
		if !seen[bad.Field] {
			distinct = append(distinct, bad)
		}
		seen[bad.Field] = true
	}
	e := &Error{Code: CodeInvalidArgument, Field: f[0].Field, Message: f[0].Message, Errors: distinct[:min(len(distinct), MaxFieldErrors)]}
	if len(distinct) > 1 {
		e.Message += fmt.Sprintf(" (and %d more)", len(distinct)-1)
	}
	return e
}
