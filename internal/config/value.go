package config

import "reflect"

// Decode sets the fields of *dst, a struct with koanf tags, from a parsed document, and
// returns everything that does not fit: unknown keys, values of a wrong type. Whole
// numbers must be int or int64. The values themselves are not validated.
func Decode(document map[string]any, dst any) Problems {
	var problems Problems
	v := reflect.ValueOf(dst).Elem()
	dec := decoder{problems: &problems, known: Keys(v.Interface())}
	dec.structure("", document, v)
	return problems
}

// ParseYAML reads exactly one YAML document, of which JSON is a part, that is a
// mapping. An empty text is an empty mapping.
func ParseYAML(data []byte) (map[string]any, error) { return strictYAML{}.Unmarshal(data) }
