package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

// Bounds of messages that come by HTTP beside the sessions.
const (
	maxBulkBytes = 16<<20 + 64<<10
	maxBulk      = 64 // requests under way, with up to maxBulkBytes each
	nodeBulk     = 4  // of them for one node: an agent sends two at a time, and repeats some on another connection
	bulkTimeout  = 15 * time.Second
	bulkPace     = 64 << 10 // bytes a second that an agent's line carries at least
)

// serveBulk takes results and gives specs that are too large for a frame, so that no heartbeat
// waits behind them. Behind a load balancer the request may be about a session of another replica.
func (h *Handler) serveBulk(w http.ResponseWriter, r *http.Request) {
	// net/http reads the rest of a body before it answers. So an answer that comes before the whole
	// body ends the connection.
	w.Header().Set("Connection", "close")
	line := http.NewResponseController(w)
	// The writer of httptest has no deadlines; the server's has.
	_ = line.SetReadDeadline(time.Now().Add(bulkDeadline(min(r.ContentLength, maxBulkBytes))))
	answer, token, err := h.bulk(w, r)
	if err != nil {
		h.refuse(w, r, token, err)
		return
	}
	text, appendErr := frame.Append(nil, answer)
	if appendErr != nil {
		h.refuse(w, r, token, &freeslot.Error{Code: freeslot.CodeInternal, Message: "the answer has no JSON"})
		return
	}
	_ = line.SetWriteDeadline(time.Now().Add(bulkDeadline(int64(len(text)))))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // the agent may be gone
}

// bulkDeadline returns how long a body of this many bytes may take. An unknown length, -1, gets the
// longest time.
func bulkDeadline(bytes int64) time.Duration {
	if bytes < 0 {
		bytes = maxBulkBytes
	}
	return bulkTimeout + time.Duration(bytes/bulkPace)*time.Second
}

func (h *Handler) bulk(w http.ResponseWriter, r *http.Request) (_ *frame.Answer, token string, _ *freeslot.Error) {
	_, by, err := h.authenticate(r)
	if err != nil {
		return nil, by.Name, err
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, by.Name, freeslot.Invalid("method", "is %.20q, expected POST", r.Method)
	}
	node := r.Header.Get(frame.NodeHeader)
	epoch, err := h.bulkEpoch(r.Context(), node, r.Header.Get(frame.SessionHeader), &by)
	if err != nil {
		return nil, by.Name, err
	}
	owner := h.use(by.Name)
	defer h.leave(owner)
	if err := h.takeBulk(node, owner); err != nil {
		return nil, by.Name, err
	}
	defer h.leaveBulk(node, owner)
	req, err := readBulk(w, r)
	if err != nil {
		return nil, by.Name, err
	}
	answer, err := h.answerBulk(r, node, epoch, req)
	return answer, by.Name, err
}

// takeBulk takes one of the places for requests by HTTP. Neither one node nor one owner can take
// them all.
func (h *Handler) takeBulk(node string, o *owner) *freeslot.Error {
	h.mu.Lock()
	defer h.mu.Unlock()
	most, whose := maxBulk, "the replica"
	switch {
	case h.bulks[node] >= nodeBulk:
		most, whose = nodeBulk, "the node"
	case o.bulking >= bulkOfOwner:
		most, whose = bulkOfOwner, "the token "+o.name
	case h.bulking < maxBulk:
		h.bulking++
		o.bulking++
		h.bulks[node]++
		return nil
	}
	return &freeslot.Error{
		Code: freeslot.CodeOverloaded, RetryAfter: refusedRetryAfter,
		Message: fmt.Sprintf("%d large results and specs are under way, which is the limit of %s", most, whose),
	}
}

func (h *Handler) leaveBulk(node string, o *owner) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bulking--
	o.bulking--
	if h.bulks[node]--; h.bulks[node] == 0 {
		delete(h.bulks, node)
	}
}

// bulkEpoch returns the epoch of the session that the request belongs to. The token must be the one
// with which the session's agent connected.
func (h *Handler) bulkEpoch(ctx context.Context, node, session string, token *Token) (cell.Epoch, *freeslot.Error) {
	if err := freeslot.ValidateName(frame.NodeHeader, node); err != nil {
		return "", h.asError("bulk", node, err)
	}
	if !token.Names(node) {
		return "", &freeslot.Error{
			Code: freeslot.CodePermissionDenied, Field: frame.NodeHeader,
			Message: fmt.Sprintf("token %s is not for node %s", token.Name, node),
		}
	}
	if epoch, holder, ok := h.held(node, session); ok && holder.Name == token.Name {
		return epoch, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	known, err := h.cfg.Cells(node).Link(ctx, node)
	switch {
	case err != nil:
		return "", h.asError("bulk", node, err)
	case session == "" || known.Link.Session != session || known.Link.Token != token.Name:
		// The agent has another session by now, or its session has not had a heartbeat yet.
		return "", &freeslot.Error{
			Code: frame.CodeStaleConnection, Field: frame.SessionHeader,
			Message: "the node has no such session of this token, or not yet: repeat the request with the session of the " +
				"last welcome",
		}
	}
	return known.Epoch, nil
}

// readBulk reads the body's one message.
func readBulk(w http.ResponseWriter, r *http.Request) (*frame.Request, *freeslot.Error) {
	var data []byte
	var err error
	if r.ContentLength <= maxBulkBytes {
		data, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBulkBytes))
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge || r.ContentLength > maxBulkBytes {
		return nil, &freeslot.Error{
			Code: freeslot.CodePayloadTooLarge, Message: fmt.Sprintf("the body is larger than %d bytes", maxBulkBytes),
		}
	}
	if err != nil {
		return nil, &freeslot.Error{
			Code: freeslot.CodeUnavailable, Message: "the body of the request could not be read in time",
		}
	}
	// The deadline would end the request while Redis is asked.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	w.Header().Del("Connection")
	want := frame.TypeComplete
	if r.URL.Path == frame.SpecPath {
		want = frame.TypeSpec
	}
	var req *frame.Request
	err = frame.DecodeRequests(data, func(one *frame.Request) error {
		if req != nil || one.Type != want {
			return freeslot.Invalid("type", "is %.40q, expected one message, which is a %s", one.Type, want)
		}
		req = one
		return nil
	})
	if bad, ok := errors.AsType[*freeslot.Error](err); ok {
		return nil, bad
	}
	if req == nil {
		return nil, freeslot.Invalid("body", "has no message, expected a %s", want)
	}
	return req, nil
}

func (h *Handler) answerBulk(
	r *http.Request, node string, epoch cell.Epoch, req *frame.Request,
) (*frame.Answer, *freeslot.Error) {
	c := h.cfg.Cells(node)
	var answer *frame.Answer
	var err error
	if req.Type == frame.TypeSpec {
		ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
		defer cancel()
		answer, err = h.spec(ctx, c, node, epoch, req.JobID)
	} else {
		answer, err = h.completeBulk(c, node, epoch, req)
	}
	outcome := "ok"
	if err != nil {
		refusal := h.asError(string(req.Type), node, err)
		outcome = string(refusal.Code)
		h.metrics.requests.WithLabelValues(string(req.Type), outcome).Inc()
		return nil, refusal
	}
	answer.ID = req.ID
	h.metrics.requests.WithLabelValues(string(req.Type), outcome).Inc()
	return answer, nil
}

func (h *Handler) completeBulk(c Cell, node string, epoch cell.Epoch, req *frame.Request) (*frame.Answer, error) {
	comp, err := completion(node, epoch, req)
	if err != nil {
		return nil, err
	}
	var begun []cell.Dispatch
	comp.Begun = func(found []cell.Dispatch) { begun = append(begun, found...) }
	outcome, err := c.Complete(h.calls, comp)
	if err != nil {
		return nil, err
	}
	return h.completed(outcome, begun), nil
}
