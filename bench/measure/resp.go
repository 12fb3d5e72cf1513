package measure

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// AppendCommand appends a command as RESP2 has it.
func AppendCommand(dst []byte, words ...string) []byte {
	dst = fmt.Appendf(dst, "*%d\r\n", len(words))
	for _, w := range words {
		dst = fmt.Appendf(dst, "$%d\r\n%s\r\n", len(w), w)
	}
	return dst
}

// ReadReply reads one reply of RESP2: string, int64, nil or []any of them.
func ReadReply(in *bufio.Reader) (any, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("empty reply")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, errors.New(rest)
	}
	count, err := strconv.ParseInt(rest, 10, 64)
	if err != nil || kind == ':' {
		return count, err
	}
	if count < 0 {
		return nil, nil
	}
	if kind == '$' {
		text := make([]byte, count+2)
		_, err := io.ReadFull(in, text)
		return string(text[:count]), err
	}
	if kind != '*' {
		return nil, fmt.Errorf("reply of kind %q is not known", kind)
	}
	list := make([]any, count)
	for i := range list {
		if list[i], err = ReadReply(in); err != nil {
			return nil, err
		}
	}
	return list, nil
}
