package cell

// before is what a key has before the id that it ends with.
func before(key func(id string) string) string {
	k := key("?")
	return k[:len(k)-1]
}

// usualKey is the length of a key as most are, in bytes.
const usualKey = 48

// keyBuilder makes many keys out of one piece of memory.
type keyBuilder struct {
	text []byte
	ends []int
}

// newKeyBuilder has room for n keys; more are no error.
func newKeyBuilder(n int) *keyBuilder {
	return &keyBuilder{text: make([]byte, 0, n*usualKey), ends: make([]int, 0, n)}
}

func (b *keyBuilder) add(before, id string) {
	b.text = append(append(b.text, before...), id...)
	b.ends = append(b.ends, len(b.text))
}

// keys are those that were added, behind some that come first.
func (b *keyBuilder) keys(first ...string) []string {
	out := append(make([]string, 0, len(first)+len(b.ends)), first...)
	text, begin := string(b.text), 0
	for _, end := range b.ends {
		out = append(out, text[begin:end])
		begin = end
	}
	return out
}
