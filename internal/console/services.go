package console

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
)

const (
	// servicesPath lists the services of the registry, and locksPath the locks.
	servicesPath = "/admin/registry/services"
	locksPath    = "/v1/locks"
	// summaryCalls and stateCalls bound the calls to a cell for a page of services or of locks, and
	// pageCalls those for each page of instances, which has about pageInstances.
	summaryCalls  = 2
	stateCalls    = 2
	pageCalls     = 2
	pageInstances = 200
)

// serviceKinds are the topics of the service registry and of locks, by name.
var serviceKinds = map[string]*kind{
	"services": {
		needs: []string{"list-services"}, asks: true,
		compute: parts(part{"", servicesPath + "?limit=1000", summaryCalls, false}),
	},
	"service": {
		needs: []string{"get-service", "list-instances"}, argument: true, asks: true, every: listPeriod, compute: service,
	},
	"instance": {
		needs: []string{"get-instance"}, argument: true, asks: true,
		compute: parts(part{"", servicesPath + "/**/instances/*", 3, false}),
	},
	"locks": {
		needs: []string{"list-locks"}, asks: true, compute: parts(part{"", locksPath + "?limit=250", stateCalls, false}),
	},
	"lock": {needs: []string{"get-lock"}, argument: true, asks: true, compute: oneLock},
}

// service shows a service with the figures of all its instances, and its first instances.
func service(ctx context.Context, h *hub, t *topic) (any, int, error) {
	_, name, _ := strings.Cut(t.key.name, ":")
	target, calls := servicesPath+"/"+url.PathEscape(name), 2*summaryCalls+2*pageCalls
	found, err := h.answerOf(ctx, t, target)
	if err != nil {
		return nil, calls, err
	}
	var size struct {
		Instances int `json:"instances"`
	}
	if err := json.Unmarshal(found, &size); err != nil {
		return nil, calls, err
	}
	calls += size.Instances / pageInstances * pageCalls
	page, err := h.answerOf(ctx, t, target+"/instances")
	return map[string]json.RawMessage{"service": found, "page": page}, calls, err
}

func oneLock(ctx context.Context, h *hub, t *topic) (any, int, error) {
	_, key, _ := strings.Cut(t.key.name, ":")
	data, err := h.answerOf(ctx, t, locksPath+"/"+strings.ReplaceAll(url.PathEscape(key), ".", "%2E"))
	return data, 1, err
}
