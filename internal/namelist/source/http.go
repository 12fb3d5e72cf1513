package source

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	dialTimeout   = 10 * time.Second
	headerTimeout = time.Minute
	maxRedirects  = 5
)

// readHTTP gets a file. It follows redirects on the same host alone, and takes nothing that may be
// a part of a file or a page for people.
func (c *Config) readHTTP(ctx context.Context, etag string, out io.Writer) (string, error) {
	client, err := c.httpClient()
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, http.NoBody)
	if err != nil {
		return "", errors.New("its url cannot be parsed")
	}
	req.Header.Set("Accept-Encoding", "gzip")
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	if c.PasswordFile != "" {
		token, err := secret(c.PasswordFile)
		if err != nil {
			return "", err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(req)
	if err != nil {
		return "", withoutURL(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusNotModified && etag != "" {
		return etag, errUnchanged
	}
	if err := acceptable(answer); err != nil {
		return "", err
	}
	body := io.Reader(answer.Body)
	if answer.Header.Get("Content-Encoding") == "gzip" {
		packed, err := gzip.NewReader(bufio.NewReader(body))
		if err != nil {
			return "", fmt.Errorf("its answer is no gzip: %w", err)
		}
		body = packed
	}
	content, err := unpack(body)
	if err == nil {
		_, err = io.Copy(out, content)
	}
	if err != nil {
		return "", withoutURL(err)
	}
	return answer.Header.Get("ETag"), nil
}

// acceptable returns why an answer is no file, or may not be a whole one.
func acceptable(answer *http.Response) error {
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	encoding := answer.Header.Get("Content-Encoding")
	switch {
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("it answers %s, expected 200", answer.Status)
	case kind == "text/html" || kind == "application/xhtml+xml":
		return fmt.Errorf("it answers a page (%s), expected a file", kind)
	case encoding != "" && encoding != "gzip" && encoding != "identity":
		return fmt.Errorf("it answers with Content-Encoding %s, expected gzip or none", encoding)
	case answer.ContentLength < 0 && len(answer.TransferEncoding) == 0 && answer.ProtoMajor < 2:
		return errors.New("its answer has neither Content-Length nor chunks, so half of it would look like all")
	}
	return nil
}

func (c *Config) httpClient() (*http.Client, error) {
	roots, err := authorities(c.CAFile)
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: headerTimeout, DisableCompression: true,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(to *http.Request, via []*http.Request) error {
			first := via[0].URL
			switch {
			case len(via) > maxRedirects:
				return fmt.Errorf("it redirects more than %d times", maxRedirects)
			case to.URL.Host != first.Host || first.Scheme == "https" && to.URL.Scheme != "https":
				return fmt.Errorf("it redirects to %s://%s, expected the host of its url", to.URL.Scheme, to.URL.Host)
			}
			return nil
		},
	}, nil
}

// authorities returns nil, which stands for the system's, without a file.
func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("ca_file %s holds no certificate in PEM", file)
	}
	return pool, nil
}

// secret reads a file with a token or a password.
func secret(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("password_file: %w", err)
	}
	text := string(bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\ufeff"))))
	if text == "" || strings.ContainsAny(text, "\r\n") {
		return "", fmt.Errorf("password_file %s has no single line", file)
	}
	return text, nil
}

// withoutURL leaves out the address of an HTTP error: it may hold a secret.
func withoutURL(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}
