package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	// fetch is how many rows are fetched at a time.
	fetch = 10_000
	// maxRow is the longest row that is taken into memory, in bytes; an id has 512 at most.
	maxRow = 1 << 20
)

// readPostgres reads the rows of a query by a cursor, in a transaction that may only read.
func (c *Config) readPostgres(ctx context.Context, _ string, out io.Writer) (string, error) {
	address := c.URL
	if c.CAFile != "" { // for each of its hosts
		mark := "?"
		if strings.Contains(address, "?") {
			mark = "&"
		}
		address += mark + url.Values{"sslrootcert": {c.CAFile}}.Encode()
	}
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		return "", errors.New("its url or its ca_file cannot be used, expected postgres://user@host:port/database")
	}
	if c.PasswordFile != "" {
		if cfg.Password, err = secret(c.PasswordFile); err != nil {
			return "", err
		}
	}
	cfg.ConnectTimeout = dialTimeout
	cfg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		front := pgproto3.NewFrontend(r, w)
		front.SetMaxBodyLen(maxRow)
		return front
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return "", connectError(err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(end) // nothing was written
	}()
	err = c.fetchAll(ctx, conn.PgConn(), out)
	var long *pgproto3.ExceededMaxBodyLenErr
	if errors.As(err, &long) {
		err = fmt.Errorf("query answers a row of more than %d bytes", maxRow)
	}
	return "", err
}

func (c *Config) fetchAll(ctx context.Context, conn *pgconn.PgConn, out io.Writer) error {
	// The server ends what goes on when this replica is gone. Times come in one form.
	limit := strconv.FormatInt(c.Timeout.Milliseconds(), 10)
	begin := "BEGIN TRANSACTION READ ONLY; SET LOCAL datestyle = 'ISO'; SET LOCAL timezone = 'UTC'; " +
		"SET LOCAL statement_timeout = " + limit + "; SET LOCAL idle_in_transaction_session_timeout = " + limit
	if _, err := conn.Exec(ctx, begin).ReadAll(); err != nil {
		return err
	}
	// Not by the simple protocol, which would also take a second statement.
	query := strings.TrimRight(strings.TrimSpace(c.Query), ";")
	declare := conn.ExecParams(ctx, "DECLARE ids NO SCROLL CURSOR FOR "+query, nil, nil, nil, nil)
	if _, err := declare.Close(); err != nil {
		return fmt.Errorf("query: %w", err)
	}
	next := "FETCH " + strconv.Itoa(fetch) + " FROM ids"
	line := make([]byte, 0, 512)
	for {
		rows := conn.ExecParams(ctx, next, nil, nil, nil, nil)
		columns := rows.FieldDescriptions()
		count := 0
		var failed error
		for rows.NextRow() && failed == nil {
			count++
			if line, failed = row(line[:0], columns, rows.Values()); failed == nil {
				_, failed = out.Write(line)
			}
		}
		if _, err := rows.Close(); failed == nil {
			failed = err
		}
		if failed != nil || count < fetch {
			return failed
		}
	}
}

// row appends the line of a row.
func row(dst []byte, columns []pgconn.FieldDescription, values [][]byte) ([]byte, error) {
	if len(values) != 1 && len(values) != 2 {
		return dst, fmt.Errorf("query answers %d columns, expected the id, or the id and its expiry", len(values))
	}
	expiry := ""
	if len(values) == 2 && values[1] != nil {
		expiry = string(values[1])
		switch kind := columns[1].DataTypeOID; {
		case kind == pgtype.TimestamptzOID && expiry == "infinity":
			expiry = ""
		case kind == pgtype.TimestamptzOID:
			expiry = strings.Replace(expiry, " ", "T", 1) + ":00" // it was 2027-01-31 12:00:00.5+00
		case kind == pgtype.TimestampOID:
			return dst, errors.New("query answers an expiry without a time zone, expected timestamptz or a number")
		}
		expiry = strings.NewReplacer("\n", "\x00", "\r", "\x00", ",", "\x00").Replace(expiry)
	}
	return appendRow(dst, values[0], expiry), nil // NULL is an empty line, which is refused
}

// connectError leaves out what the address may hold.
func connectError(err error) error {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		return fmt.Errorf("connect: %s (%s)", answer.Message, answer.Code)
	}
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return fmt.Errorf("connect: %w", err)
}
