package wire

import (
	"maps"
	"net/http"
	"slices"

	"github.com/freeslot/freeslot"
)

// statuses holds, for each code, the status of an answer over HTTP, and of a request that gets no
// WebSocket. A handshake is refused with 503 for lack of room, because another replica may have it.
var statuses = map[freeslot.Code]struct{ answer, handshake int }{
	freeslot.CodeInvalidArgument:  {http.StatusBadRequest, http.StatusBadRequest},
	freeslot.CodePayloadTooLarge:  {http.StatusRequestEntityTooLarge, http.StatusRequestEntityTooLarge},
	freeslot.CodeNoMatchingNode:   {http.StatusUnprocessableEntity, http.StatusUnprocessableEntity},
	freeslot.CodeOverloaded:       {http.StatusTooManyRequests, http.StatusServiceUnavailable},
	freeslot.CodeRateLimited:      {http.StatusTooManyRequests, http.StatusServiceUnavailable},
	freeslot.CodeUnavailable:      {http.StatusServiceUnavailable, http.StatusServiceUnavailable},
	freeslot.CodeUnauthenticated:  {http.StatusUnauthorized, http.StatusUnauthorized},
	freeslot.CodePermissionDenied: {http.StatusForbidden, http.StatusForbidden},
	freeslot.CodeNotAdmitted:      {http.StatusForbidden, http.StatusForbidden},
	freeslot.CodeNotFound:         {http.StatusNotFound, http.StatusNotFound},
	freeslot.CodeConflict:         {http.StatusConflict, http.StatusConflict},
	freeslot.CodeInternal:         {http.StatusInternalServerError, http.StatusInternalServerError},
}

// HTTPStatus returns the status of an answer with an error code; 500 for a code that it does not
// know.
func HTTPStatus(code freeslot.Code) int {
	if s, ok := statuses[code]; ok {
		return s.answer
	}
	return http.StatusInternalServerError
}

// HandshakeStatus is HTTPStatus for a request that asked for a WebSocket.
func HandshakeStatus(code freeslot.Code) int {
	if s, ok := statuses[code]; ok {
		return s.handshake
	}
	return http.StatusInternalServerError
}

// CodeOf returns the code of an answer over HTTP with this status, or "" for a success. If several
// codes share the status, it returns the first by name, and permission_denied rather than
// not_admitted, which only submits get.
func CodeOf(status int) freeslot.Code {
	switch {
	case status < http.StatusBadRequest:
		return ""
	case status == http.StatusForbidden:
		return freeslot.CodePermissionDenied
	}
	for _, code := range slices.Sorted(maps.Keys(statuses)) {
		if statuses[code].answer == status {
			return code
		}
	}
	return freeslot.CodeInternal
}
