// Package jsonscan says what counts as JSON.
package jsonscan

import (
	"encoding/json"
	"unicode/utf8"
)

// IsValid reports whether data is one JSON value by the grammar of RFC 8259, in UTF-8 and nested
// at most 10,000 levels deep. White space may be around it.
func IsValid(data []byte) bool { return utf8.Valid(data) && json.Valid(data) }
