package gateway

import (
	"crypto/tls"
	"fmt"
	"slices"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/tokenfile"
)

// maxCertificateName bounds the key certificate of a line.
const maxCertificateName = 255

// certificateNames returns the names in the certificate that came with a connection: the subject's
// common name and the alternative names. It returns nil without a certificate that an authority of
// client_ca_file has signed.
func certificateNames(state *tls.ConnectionState) (names []string) {
	if state == nil || len(state.VerifiedChains) == 0 {
		return nil
	}
	leaf := state.PeerCertificates[0]
	if leaf.Subject.CommonName != "" {
		names = append(names, leaf.Subject.CommonName)
	}
	names = slices.Concat(names, leaf.DNSNames, leaf.EmailAddresses)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	for _, uri := range leaf.URIs {
		names = append(names, uri.String())
	}
	return names
}

// admits returns permission_denied unless the certificate with these names may come with the token.
func (t *Token) admits(names []string) *freeslot.Error {
	matches := func(name string) bool { return tokenfile.Matches(t.Certificate, name) }
	if t.Certificate == "" || slices.ContainsFunc(names, matches) {
		return nil
	}
	came := "none came that gateway.tls.client_ca_file (or tls.client_ca_file) has signed"
	if len(names) > 0 {
		came = fmt.Sprintf("the agent's is for %.80q", names[0])
	}
	return &freeslot.Error{
		Code: freeslot.CodePermissionDenied, Field: "certificate",
		Message: fmt.Sprintf("token %s needs the certificate of %s, and %s", t.Name, t.Certificate, came),
	}
}
