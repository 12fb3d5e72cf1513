package wire

import (
	"bytes"
	"cmp"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/freeslot/freeslot"
)

// unmarshalStrict refuses unknown fields, repeated fields and null. Callers check that the text is
// UTF-8: the decoder would also refuse escapes such as \ud800, which are valid JSON.
func unmarshalStrict(text []byte, into any) error {
	options := strict
	if bytes.Contains(text, []byte("null")) {
		options = strictNoNull
	}
	return json.Unmarshal(text, into, options)
}

var (
	strict = json.JoinOptions(
		json.RejectUnknownMembers(true),
		jsontext.AllowInvalidUTF8(true),
		json.WithUnmarshalers(bounded),
	)
	// strictNoNull also looks at every value, which takes half as long again.
	strictNoNull = json.JoinOptions(strict, json.WithUnmarshalers(
		json.JoinUnmarshalers(bounded, json.UnmarshalFromFunc(refuseNull))))
	bounded = json.JoinUnmarshalers(
		json.UnmarshalFromFunc(decodePayload),
		json.UnmarshalFromFunc(decodeBatch),
		json.UnmarshalFromFunc(func(d *jsontext.Decoder, list *[]string) error {
			return decodeList(d, list, max(freeslot.MaxServices, freeslot.MaxLabelRuleValues, freeslot.MaxFeatures), "entries")
		}),
		json.UnmarshalFromFunc(func(d *jsontext.Decoder, list *[]freeslot.LabelRule) error {
			return decodeList(d, list, freeslot.MaxLabelRules, "entries")
		}),
		json.UnmarshalFromFunc(decodeLabels),
	)
)

// anyValue takes a payload as it is: it may be null, and may repeat names.
var anyValue = json.JoinOptions(jsontext.AllowDuplicateNames(true), json.WithUnmarshalers(nil))

func decodePayload(d *jsontext.Decoder, payload *stdjson.RawMessage) error {
	return json.UnmarshalDecode(d, payload, anyValue)
}

func refuseNull(d *jsontext.Decoder, into any) error {
	if d.PeekKind() == 'n' {
		return wrongKind(d, reflect.TypeOf(into))
	}
	return errors.ErrUnsupported // the decoder continues
}

// wrongKind reads the value, and returns the error that its type is wrong.
func wrongKind(d *jsontext.Decoder, want reflect.Type) error {
	value, err := d.ReadValue()
	if err != nil {
		return err
	}
	return &json.SemanticError{JSONKind: value.Kind(), GoType: want}
}

// decodeList stops at the limit: an empty entry costs a client three bytes, and a replica a hundred
// times as much.
func decodeList[T any](d *jsontext.Decoder, list *[]T, limit int, entries string) error {
	return decodeEach(d, '[', ']', reflect.TypeFor[[]T](), func() error {
		if len(*list) == limit {
			return tooMany(limit, entries)
		}
		*list = append(*list, *new(T))
		return json.UnmarshalDecode(d, &(*list)[len(*list)-1])
	})
}

func decodeLabels(d *jsontext.Decoder, labels *map[string]string) error {
	*labels = map[string]string{}
	return decodeEach(d, '{', '}', reflect.TypeOf(labels), func() error {
		if len(*labels) == freeslot.MaxLabels {
			return tooMany(freeslot.MaxLabels, "entries")
		}
		var name, value string
		if err := json.UnmarshalDecode(d, &name); err != nil {
			return err
		}
		if err := json.UnmarshalDecode(d, &value); err != nil {
			return err
		}
		(*labels)[name] = value
		return nil
	})
}

// decodeEach calls decode for each entry of an array or an object.
func decodeEach(d *jsontext.Decoder, begin, end jsontext.Kind, want reflect.Type, decode func() error) error {
	if d.PeekKind() != begin {
		return wrongKind(d, want)
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != end {
		if err := decode(); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// tooMany returns an error without its field, which refuse adds.
func tooMany(limit int, entries string) error {
	return &freeslot.Error{Code: freeslot.CodeInvalidArgument, Message: fmt.Sprintf("has more than %d %s", limit, entries)}
}

// refuse makes the error for the client, which names the field. root is the path of the decoded
// text; "" is a frame.
func refuse(root string, err error) *freeslot.Error {
	field, text := root, err.Error()
	var own *freeslot.Error
	var semantic *json.SemanticError
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntax):
		field = fieldPath(root, syntax.JSONPointer)
		text = fmt.Sprintf("is not valid JSON: %v at byte %d", syntax.Err, syntax.ByteOffset)
		if errors.Is(syntax, jsontext.ErrDuplicateName) {
			text = "is given twice"
		}
	case errors.As(err, &semantic):
		field = fieldPath(root, semantic.JSONPointer)
		switch {
		case errors.Is(semantic, json.ErrUnknownName):
			text = "is not a known field"
		case errors.As(semantic, &own):
			text = own.Message
		default:
			text = fmt.Sprintf("is %s, expected %s", found(semantic), expected(semantic.GoType))
		}
	}
	refused := freeslot.Invalid(cmp.Or(field, "frame"), "%s", text)
	refused.Field = field
	return refused
}

// fieldPath writes a pointer in the form that clients know: "/jobs/3/slots" is "jobs[3].slots". It
// ends at a payload.
func fieldPath(root string, pointer jsontext.Pointer) string {
	path, parent := root, ""
	for token := range pointer.Tokens() {
		switch {
		case slices.Contains([]string{"jobs", "services", "label_rules", "values", "features"}, parent):
			path += "[" + token + "]"
		case path == "":
			path = clip(token)
		default:
			path += "." + clip(token)
		}
		if token == "payload" {
			break
		}
		parent = token
	}
	return path
}

// maxQuoted bounds how much of the client's input an error message repeats.
const maxQuoted = 40

func clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxQuoted)], "") }

func found(e *json.SemanticError) string {
	if len(e.JSONValue) > 0 { // a number with a fraction, or out of range
		return strconv.Quote(clip(string(e.JSONValue)))
	}
	switch e.JSONKind {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '[':
		return "an array"
	default:
		return "an object"
	}
}

func expected(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int64:
		return "an integer"
	case reflect.Slice:
		return "an array"
	default:
		return "an object"
	}
}
