package selection

import "strings"

// languages is an immutable set of folded language tags. Nil is empty.
type languages struct{ tags set }

func newLanguages(tags []string) languages {
	folded := make([]string, len(tags))
	for i, tag := range tags {
		folded[i] = fold(tag)
	}
	return languages{newSet(folded)}
}

// find looks up a folded tag by RFC 4647 section 3.4. It returns false for "".
func (l languages) find(tag string) bool {
	for ; tag != ""; tag = shorten(tag) {
		if l.tags.has(tag) {
			return true
		}
	}
	return false
}

// findAny reports whether at least one of the folded tags is found.
func (l languages) findAny(tags []string) bool {
	for _, tag := range tags {
		if l.find(tag) {
			return true
		}
	}
	return false
}

// fold makes tags equal that differ only in letter case or separator. Validation accepts '_' as a
// separator, so it must not hide a match. Only ASCII letters are folded.
func fold(tag string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'A' <= r && r <= 'Z':
			return r + ('a' - 'A')
		case r == '_':
			return '-'
		default:
			return r
		}
	}, tag)
}

// shorten cuts the last subtag. It also cuts every single-character subtag that would then be at
// the end, because alone it introduces nothing. "" means that nothing is left.
func shorten(tag string) string {
	for {
		cut := strings.LastIndexByte(tag, '-')
		if cut < 0 {
			return ""
		}
		tag = tag[:cut]
		if !endsInSingle(tag) {
			return tag
		}
	}
}

func endsInSingle(tag string) bool {
	return len(tag) == 1 && tag != "-" || len(tag) > 1 && tag[len(tag)-2] == '-' && tag[len(tag)-1] != '-'
}
