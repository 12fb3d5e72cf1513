package freeslot

// ClassIDLength is the length of a class id, in bytes. An id has the digits 0-9 and a-f.
const ClassIDLength = 16

// ValidateClassID checks the form of a class id. The error is an [*Error] with code
// [CodeInvalidArgument] that names field.
func ValidateClassID(field, id string) error {
	ok := len(id) == ClassIDLength
	for i := range len(id) {
		ok = ok && ('0' <= id[i] && id[i] <= '9' || 'a' <= id[i] && id[i] <= 'f')
	}
	if !ok {
		return Invalid(field, "is %q, expected the id of a class, %d of 0-9 a-f", id, ClassIDLength)
	}
	return nil
}
