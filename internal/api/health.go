package api

import "net/http"

// Check is one condition of readiness. It must answer at once from memory. A probe that asked Redis
// would make every replica unready whenever Redis is slow, and so the whole system unreachable.
type Check struct {
	Name string
	// Ready reports whether the condition holds; if not, detail tells why. A detail beside true is
	// shown too.
	Ready func() (ok bool, detail string)
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Ready  bool          `json:"ready"`
	Checks []CheckResult `json:"checks"`
}

// CheckResult is one line of a Readiness.
type CheckResult struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

func (s *Server) health(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
}

// healthz reports that the process serves requests. It checks nothing else: a restart of a replica
// repairs neither Redis nor the network.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "alive", "replica": s.cfg.Replica, "version": s.cfg.Version})
}

// readyz reports whether new work should be sent here.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	readiness := s.Readiness()
	status := http.StatusOK
	if !readiness.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, readiness)
}

// Readiness runs all checks.
func (s *Server) Readiness() Readiness {
	out := Readiness{Ready: true, Checks: make([]CheckResult, 0, len(s.deps.Checks)+1)}
	add := func(name string, ok bool, detail string) {
		out.Ready = out.Ready && ok
		out.Checks = append(out.Checks, CheckResult{Name: name, OK: ok, Detail: detail})
	}
	if s.isDraining() {
		add("serving", false, "the replica is stopping")
	} else {
		add("serving", true, "")
	}
	for _, c := range s.deps.Checks {
		ok, detail := c.Ready()
		add(c.Name, ok, detail)
	}
	return out
}
