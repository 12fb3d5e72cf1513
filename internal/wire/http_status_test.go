package wire

import (
	"testing"

	"github.com/freeslot/freeslot"
)

// TestHTTPStatus pins the statuses, on which clients rely.
func TestHTTPStatus(t *testing.T) {
	t.Parallel()
	for code, want := range map[freeslot.Code][2]int{
		freeslot.CodeInvalidArgument:  {400, 400},
		freeslot.CodePayloadTooLarge:  {413, 413},
		freeslot.CodeNoMatchingNode:   {422, 422},
		freeslot.CodeOverloaded:       {429, 503},
		freeslot.CodeRateLimited:      {429, 503},
		freeslot.CodeUnavailable:      {503, 503},
		freeslot.CodeUnauthenticated:  {401, 401},
		freeslot.CodePermissionDenied: {403, 403},
		freeslot.CodeNotFound:         {404, 404},
		freeslot.CodeConflict:         {409, 409},
		freeslot.CodeInternal:         {500, 500},
		"of a later release":          {500, 500},
	} {
		if got := [2]int{HTTPStatus(code), HandshakeStatus(code)}; got != want {
			t.Errorf("%s is %d over HTTP and at a handshake, expected %d", code, got, want)
		}
	}
}
