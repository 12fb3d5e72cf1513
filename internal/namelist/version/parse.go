package version

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/freeslot/freeslot/internal/namelist/form"
)

// Format is the format of an upload. Each may be compressed by gzip.
type Format string

// The formats. Lines end with LF or CRLF, and the first may begin with a byte order mark. Every
// line counts, even an empty one, which is refused.
const (
	// CSV has lines of the form id[,expiry]. Fields may be quoted as in RFC 4180, but contain no
	// line breaks. An expiry is RFC 3339, or a whole number: Unix seconds from 10^8 to 10^11,
	// otherwise Unix ms. Smaller numbers are refused, because they are durations, not times. An
	// empty expiry means never.
	CSV Format = "csv"
	// TXT has one id a line.
	TXT Format = "txt"
)

// HeaderChoice says whether the first line of an upload is a header, which is then skipped.
type HeaderChoice string

// The choices; the empty one is HeaderAuto.
const (
	// HeaderAuto recognises id and id,expiry in a CSV, in upper and lower case, also quoted.
	HeaderAuto HeaderChoice = "auto"
	HeaderYes  HeaderChoice = "yes"
	HeaderNo   HeaderChoice = "no"
)

const (
	// MaxRejects is the number of refused lines that are kept.
	MaxRejects = 10_000
	// maxHeader is longer than the name of any column.
	maxHeader = 64
	// maxLine is longer than any valid line.
	maxLine = 4 << 10
	// maxRatio bounds how far gzip may expand; small uploads may expand to minExpanded.
	maxRatio    = 100
	minExpanded = 1 << 20
)

// Upload is a file to import.
type Upload struct {
	ID string
	// Open opens the file at its beginning; a build that continues may open it again.
	Open   func() (io.ReadCloser, error)
	Bytes  int64 // of the file
	Format Format
	Header HeaderChoice
}

// Reject is a refused line.
type Reject struct {
	Line int64  `json:"line"` // from 1
	Why  string `json:"why"`
}

// Report says what was in an upload.
type Report struct {
	Lines    int64 `json:"lines"`
	Rejected int64 `json:"rejected"`
	// Expired counts the refused lines whose expiry was over before the import.
	Expired int64 `json:"expired,omitzero"`
	// Header is true if the first line was skipped as a header. HeaderLike holds a first line that
	// looks like a header, but was read as an id.
	Header     bool   `json:"header,omitzero"`
	HeaderLike string `json:"header_like,omitzero"`
	// Duplicates counts lines whose id occurs again in a later line.
	Duplicates int64 `json:"duplicates"`
	// Rejects holds the first MaxRejects refused lines.
	Rejects []Reject `json:"rejects"`
}

// TooLargeError is returned for compressed uploads that expand unreasonably.
type TooLargeError struct{ Limit int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf(
		"the upload expands to more than %d bytes, which is %d times its size; upload it without gzip", e.Limit, maxRatio,
	)
}

var gzipMagic = []byte{0x1f, 0x8b}

// Entries counts the lines that have an entry.
func (r *Report) Entries() int64 {
	n := r.Lines - r.Rejected
	if r.Header {
		n--
	}
	return n
}

// parse calls add for each entry of an upload, and sometimes progress with the number of bytes
// read. It refuses entries that have expired at the time at, in Unix ms; 0 refuses none. Errors:
// from reading, from add, or *TooLargeError.
func parse(
	ctx context.Context, upload *Upload, of form.Form, at int64, progress func(read int64),
	add func(id string, expires int64) error,
) (*Report, error) {
	file, err := upload.Open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	counted := &limited{in: file, left: math.MaxInt64}
	in, err := expand(counted, upload.Bytes)
	if err != nil {
		return nil, err
	}
	p := &parser{in: in, format: upload.Format, form: of, report: &Report{}}
	for {
		line, err := p.line()
		if errors.Is(err, io.EOF) {
			return p.report, nil
		}
		if err != nil {
			return nil, err
		}
		if p.report.Lines++; p.report.Lines%4096 == 0 {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			progress(math.MaxInt64 - counted.left)
		}
		if p.report.Lines == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
			if p.parted(upload.Header, line) {
				p.reject(errParted.Error())
				continue
			}
			if p.report.Header = p.header(upload.Header, line); p.report.Header {
				continue
			}
		}
		id, expires, err := p.entry(line)
		switch {
		case err == nil && expires != 0 && expires <= at:
			p.report.Expired++
			p.reject("expired before the import")
		case err != nil && p.report.Lines == 1 && p.headerLike(upload.Header, line):
			p.reject(err.Error() + "; of a header, import with header yes")
		case err != nil:
			p.reject(err.Error())
		default:
			if p.report.Lines == 1 && p.headerLike(upload.Header, line) {
				p.report.HeaderLike = id
			}
			if err := add(id, expires); err != nil {
				return nil, err
			}
		}
	}
}

// expand reads an upload of this many bytes, also if it is compressed.
func expand(from io.Reader, size int64) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(from, bufferBytes)
	if head, _ := in.Peek(len(gzipMagic)); !bytes.Equal(head, gzipMagic) {
		return in, nil
	}
	expanded, err := gzip.NewReader(in)
	if err != nil {
		return nil, err
	}
	limit := max(size*maxRatio, minExpanded)
	return bufio.NewReaderSize(&limited{in: expanded, left: limit, limit: limit}, bufferBytes), nil
}

// limited ends with an error; io.LimitReader would hide that there is more.
type limited struct {
	in          io.Reader
	left, limit int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.in.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, &TooLargeError{Limit: l.limit}
	}
	return n, err
}

type parser struct {
	in     *bufio.Reader
	format Format
	form   form.Form
	report *Report
}

var errLine = fmt.Errorf("the line is longer than %d bytes", maxLine)

// line returns the next line without its end, valid until the next call. If the line is too long,
// it returns the beginning, which entry refuses.
func (p *parser) line() ([]byte, error) {
	line, err := p.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line = line[:maxLine+1]
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = p.in.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return line, nil
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		return line, nil
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}

func (p *parser) reject(why string) {
	if p.report.Rejected++; len(p.report.Rejects) < MaxRejects {
		p.report.Rejects = append(p.report.Rejects, Reject{Line: p.report.Lines, Why: why})
	}
}

var (
	errQuote   = errors.New("a quoted field has no end, or text behind it")
	errColumns = errors.New("it has more than the columns id and expiry")
	errParted  = errors.New("parted by ;, expected ,: if these are ids, import with header no")
	errExpiry  = errors.New("the expiry is no time of RFC 3339, Unix seconds or Unix ms")
	errSmall   = fmt.Errorf(
		"the expiry is a number below %d, which is no time: expected RFC 3339, Unix seconds or Unix ms, and no duration",
		firstSeconds,
	)
)

// header reports whether the first line is skipped.
func (p *parser) header(choice HeaderChoice, line []byte) bool {
	if choice == HeaderYes || choice == HeaderNo {
		return choice == HeaderYes
	}
	if p.format != CSV {
		return false
	}
	field, rest, more, err := csvField(line, ',')
	if err != nil || !isName(field, "id") {
		return false
	}
	if !more {
		return true
	}
	field, _, more, err = csvField(rest, ',')
	return err == nil && !more && isName(field, "expiry")
}

func isName(field []byte, name string) bool {
	return strings.EqualFold(strings.TrimSpace(string(field)), name)
}

// parted reports whether a semicolon parts the columns of a CSV, as Excel writes them in many
// countries: the first line then has the name of a column before it, or a time of RFC 3339 behind
// it. Each of the lines would be an id.
func (p *parser) parted(choice HeaderChoice, line []byte) bool {
	if p.format != CSV || choice == HeaderNo {
		return false
	}
	name, rest, more, err := csvField(line, ';')
	if err != nil || !more {
		return false
	}
	second, _, _, _ := csvField(rest, ';')
	_, err = time.Parse(time.RFC3339, string(second))
	return err == nil || columnLike(strings.TrimSpace(string(name)))
}

// headerLike reports whether a line that header does not skip begins like a column's name: with
// words without digits, where the last word says what a column of ids contains.
func (p *parser) headerLike(choice HeaderChoice, line []byte) bool {
	field := line
	if p.format == CSV {
		field, _, _, _ = csvField(line, ',')
	}
	if id := string(field); choice != HeaderNo && len(id) < maxHeader {
		return columnLike(id)
	}
	return false
}

func columnLike(id string) bool {
	words := strings.FieldsFunc(
		camel.ReplaceAllString(id, "$1 $2"), func(r rune) bool { return strings.ContainsRune("_-. ", r) },
	)
	for _, w := range words {
		if strings.ContainsFunc(w, func(r rune) bool { return !unicode.IsLetter(r) }) {
			return false
		}
	}
	return len(words) > 0 && slices.Contains(columnNames, strings.ToLower(words[len(words)-1]))
}

// camel finds the beginnings of words inside a name such as userId.
var camel = regexp.MustCompile(`(\p{Ll})(\p{Lu})`)

var columnNames = []string{
	"account", "accounts", "address", "code", "customer", "customers", "device", "devices", "email", "emails", "entry",
	"id", "identifier",
	"ids", "imei", "ip", "ips", "key", "keys", "mail", "member", "members", "msisdn", "name", "names", "number", "numbers",
	"phone", "subject",
	"token", "tokens", "uid", "userid", "username", "user", "users", "uuid", "value", "values",
}

func (p *parser) entry(line []byte) (id string, expires int64, err error) {
	if len(line) > maxLine {
		return "", 0, errLine
	}
	field, rest, more := line, []byte(nil), false
	if p.format == CSV {
		if field, rest, more, err = csvField(line, ','); err != nil {
			return "", 0, err
		}
	}
	if id, err = p.form.Clean(string(field)); err != nil || !more {
		return id, 0, err
	}
	if field, _, more, err = csvField(rest, ','); err != nil {
		return "", 0, err
	}
	if more {
		return "", 0, errColumns
	}
	expires, err = expiry(string(field))
	return id, expires, err
}

// csvField cuts the first field off a line of fields parted by mark. more is true if mark follows.
func csvField(line []byte, mark byte) (field, rest []byte, more bool, err error) {
	if len(line) == 0 || line[0] != '"' {
		field, rest, more = bytes.Cut(line, []byte{mark})
		return field, rest, more, nil
	}
	for line = line[1:]; ; line = line[1:] {
		i := bytes.IndexByte(line, '"')
		if i < 0 {
			return nil, nil, false, errQuote
		}
		field, line = append(field, line[:i]...), line[i+1:]
		switch {
		case len(line) == 0:
			return field, nil, false, nil
		case line[0] == mark:
			return field, line[1:], true, nil
		case line[0] != '"':
			return nil, nil, false, errQuote
		}
		field = append(field, '"')
	}
}

const (
	// FirstMS is the smallest whole number that counts as ms, not seconds: 1973 in ms, 5138 in
	// seconds.
	FirstMS = 100_000_000_000
	// firstSeconds is the smallest number that counts as seconds: 1973. Smaller numbers, such as
	// 3600, are durations.
	firstSeconds = 100_000_000
)

func expiry(text string) (ms int64, err error) {
	if text == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(text, 10, 53); err == nil && text[0] != '0' {
		switch {
		case n < firstSeconds:
			return 0, errSmall
		case n < FirstMS:
			n *= 1000
		}
		return int64(n), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.UnixMilli() <= 0 {
		return 0, errExpiry
	}
	return at.UnixMilli(), nil
}
