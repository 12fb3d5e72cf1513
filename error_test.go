package freeslot

import (
	"errors"
	"strconv"
	"testing"
)

func TestFieldErrors(t *testing.T) {
	t.Parallel()
	var found FieldErrors
	if found.Add(nil); found.Err() != nil {
		t.Errorf("nothing is %v", found.Err())
	}
	found.Addf("a", "is %d", 1)
	found.Add(ValidateName("a", ""))
	found.Add(errors.New("other"))
	var e *Error
	if !errors.As(found.Err(), &e) || e.Code != CodeInvalidArgument || e.Field != "a" || e.Message != "a is 1 (and 1 more)" {
		t.Fatalf("got %v", found.Err())
	}
	if len(e.Errors) != 2 || e.Errors[0] != (FieldError{"a", "a is 1"}) || e.Errors[1] != (FieldError{Message: "other"}) {
		t.Errorf("got %v", e.Errors)
	}
	for i := range 2 * MaxFieldErrors {
		found.Addf(strconv.Itoa(i), "is wrong")
	}
	if !errors.As(found.Err(), &e) || len(e.Errors) != MaxFieldErrors || e.Message != "a is 1 (and 201 more)" {
		t.Errorf("got %v and %d errors", found.Err(), len(e.Errors))
	}
}

// TestUnknownNames: what a later release adds is neither worth a repetition nor an end.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	if Code("later").Temporary() {
		t.Error("an unknown code is temporary, expected final")
	}
	if State("later").Terminal() {
		t.Error("an unknown state is terminal, expected not")
	}
}
