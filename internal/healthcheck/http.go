package healthcheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// searchedBytes is the size of the part of a body in which a text is looked for.
const searchedBytes = 64 << 10

// errBody is the outcome if body_contains is not there.
var errBody = errors.New("the body does not have what body_contains expects")

type httpProbe struct {
	cfg  *HTTP
	dial Dial
}

func (h httpProbe) run(ctx context.Context) error {
	tlsConfig, err := h.cfg.TLS.config()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.cfg.URL, http.NoBody)
	if err != nil {
		return plain(err)
	}
	req.Header = header(h.cfg.Headers)
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	resp, err := newClient(tlsConfig, h.dial).Do(req)
	if err != nil {
		return plain(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < h.cfg.MinStatus || resp.StatusCode > h.cfg.MaxStatus {
		return fmt.Errorf("the status is %d, expected %d to %d", resp.StatusCode, h.cfg.MinStatus, h.cfg.MaxStatus)
	}
	if h.cfg.BodyContains == "" {
		return nil
	}
	// The part that came before an error may have the text.
	body, err := io.ReadAll(io.LimitReader(resp.Body, searchedBytes))
	switch {
	case bytes.Contains(body, []byte(h.cfg.BodyContains)):
		return nil
	case err != nil:
		return fmt.Errorf("read the body: %w", err)
	}
	return errBody
}
