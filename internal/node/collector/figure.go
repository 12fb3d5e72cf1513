package collector

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Lister is a collector that lists its fields; another collector may have any field.
type Lister interface {
	// Fields returns all fields that it may collect. N stands for a number from 0 on.
	Fields() []string
}

var number = regexp.MustCompile(`\d+`)

// CheckFigure returns an error if none of the collectors has a figure with this name, "type.field".
// The error continues a sentence that begins with the place of the name, and lists the known
// figures.
func CheckFigure(name string, collectors []Collector) error {
	kind, field, _ := strings.Cut(name, ".")
	var known []string
	for _, c := range collectors {
		l, lists := c.(Lister)
		if !lists {
			if c.Type() == kind && validField(field) {
				return nil
			}
			known = append(known, c.Type()+".*")
			continue
		}
		for _, f := range l.Fields() {
			// A figure that has a digit in its name, such as load1, is listed with the digit.
			if c.Type() == kind && (f == field || f == number.ReplaceAllString(field, "N")) {
				return nil
			}
			known = append(known, c.Type()+"."+f)
		}
	}
	if len(known) == 0 {
		return errors.New("is not a figure of a collector: there is no collector")
	}
	slices.Sort(known)
	return fmt.Errorf("is not a figure of a collector that runs here, expected one of %s", strings.Join(known, ", "))
}
