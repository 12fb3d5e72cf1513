package server

import (
	"github.com/freeslot/freeslot/internal/registry"
)

type (
	// InService names a service. It is exported because huma ignores unexported parts of requests.
	InService struct {
		Service string `path:"serviceName" doc:"The name of the service."`
	}
	// OfInstance names an instance.
	OfInstance struct {
		InService
		ID string `path:"instanceId" doc:"The id of the instance, escaped as a part of a path."`
	}
	// Waiting says how long a request waits for a change.
	Waiting struct {
		Revision int64 `query:"revision" minimum:"0" doc:"With wait_ms: the revision that the caller knows. The answer comes once there is another one."`
		WaitMS   int64 `query:"wait_ms" minimum:"0" maximum:"60000" doc:"How long to wait for another revision than revision. Absent means not at all."`
	}
	pageInput struct {
		After string `query:"after" maxLength:"256" doc:"The last name of the page before."`
		Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	}
	listInput struct {
		InService
		Waiting
		Cursor string   `query:"cursor" maxLength:"64" doc:"The cursor of the page before."`
		Label  []string `query:"label,explode" maxItems:"32" doc:"Only instances with this label, key=value; may be repeated."`
		Metric []string `query:"metric,explode" maxItems:"32" doc:"Only instances for whose figures this holds, such as cpu.usage<0.8; may be repeated."`
	}
	discoverInput struct {
		InService
		Version string `query:"version" maxLength:"64" doc:"With wait_ms: the version that the caller has. The answer comes once there is another one."`
		WaitMS  int64  `query:"wait_ms" minimum:"0" maximum:"60000" doc:"How long to wait for another version. Absent means not at all."`
	}
	removeInput struct {
		OfInstance
		Epoch string `query:"epoch" maxLength:"256" doc:"The epoch that the caller saw, which a restarted instance has no longer. Another one is a conflict. Absent means any."`
	}
	// SeenOverride names the override that a change is meant for.
	SeenOverride struct {
		Seen string `query:"seen" pattern:"^[0-9]{1,16}$" doc:"at_ms of the override that the caller saw, 0 if none was set. Another one is a conflict. Absent means any."`
	}
	resetInput struct {
		OfInstance
		SeenOverride
	}
	bodyInput struct {
		OfInstance
		SeenOverride
		RawBody []byte
	}
	serviceBodyInput struct {
		InService
		RawBody []byte
	}
	output[T any] struct{ Body T }
)

// ServicePage is one page of services.
type ServicePage struct {
	Services []RegistryService `json:"services"`
	// The tag documents After for readers of the API.
	After string `json:"after,omitempty" doc:"Continues the listing; absent at its end."`
}

// InstancePage is one page of the instances of a service.
type InstancePage struct {
	Service   string             `json:"service"`
	Revision  int64              `json:"revision"`
	Instances []RegistryInstance `json:"instances" doc:"Up to about 200, fewer of large ones, in no order. While instances come and go one can be there twice."`
	// The tag documents Cursor for readers of the API.
	Cursor string `json:"cursor,omitempty" doc:"Continues the listing, also after an empty page; absent at its end."`
}

// ServiceDetail is a service with what its instances have in common.
type ServiceDetail struct {
	RegistryService
	Statistics Statistics `json:"statistics"`
}

// RegistryHealth is the health of all services.
type RegistryHealth struct {
	Services []ServiceHealth `json:"services" doc:"Services with silent instances, a guard, or none at all; at most 1000."`
	// The tag documents Healthy for readers of the API.
	Healthy int `json:"healthy" doc:"How many services have nothing of that."`
}

// ServiceHealth is the health of one service.
type ServiceHealth struct {
	Service RegistryService `json:"service"`
	Failing int             `json:"failing,omitempty" doc:"Instances whose checks fail, where all services are shown."`
	// Statistics is left out if all services are shown.
	Statistics *Statistics `json:"statistics,omitempty"`
}

// OverrideRequest is the body of an override. Absent fields keep the provider's values.
type OverrideRequest struct {
	// The tags document Weight and the rest for readers of the API.
	Weight   *float64 `json:"weight,omitempty" doc:"More than 0, up to 10000. For none, set enabled to false."`
	Enabled  *bool    `json:"enabled,omitempty"`
	Draining *bool    `json:"draining,omitempty"`
	Author   string   `json:"author,omitempty" doc:"Who; the tenant of the token is put before it."`
	Note     string   `json:"note,omitempty" doc:"Why; at most 256 bytes."`
	ForMS    *int64   `json:"for_ms,omitempty" doc:"After this many milliseconds, 1 or more, it ends by itself. Absent means never."`
}

// CleanupRequest says how a service is cleaned up.
type CleanupRequest struct {
	// The tags document LimitMS and EveryMS for readers of the API.
	LimitMS *int64 `json:"limit_ms,omitempty" doc:"How long an instance may be silent before it is removed, 10000 to 86400000; at least three of the longest interval hold. 0 is the default, 2 minutes; absent leaves it as it is."`
	EveryMS *int64 `json:"every_ms,omitempty" doc:"The pause between cleanups; at most a quarter of the limit holds. 0 is the default, 30 s; absent leaves it as it is."`
}

// InstanceRequest is a persistent instance to register.
type InstanceRequest struct {
	// The tags document ID and the rest for readers of the API.
	ID       string            `json:"id,omitempty" doc:"Absent means host:port."`
	Host     string            `json:"host"`
	Port     int               `json:"port"`
	Protocol string            `json:"protocol,omitempty" doc:"Absent means TCP."`
	Weight   *float64          `json:"weight,omitempty" doc:"More than 0, up to 10000; absent means 1. For none, set enabled to false, by an override."`
	Metadata map[string]string `json:"metadata,omitempty"`
	Check    *registry.Check   `json:"check,omitempty" doc:"How replicas check it: a persistent instance sends no heartbeats."`
}

// Changed is the answer to a change.
type Changed struct {
	Revision int64 `json:"revision" doc:"The revision of the service that has the change."`
}

// Replica is a replica that advertises itself.
type Replica struct {
	ID  string `json:"id"`
	URL string `json:"url"`
}

// ReplicaList holds the replicas that advertise themselves.
type ReplicaList struct {
	Replicas []Replica `json:"replicas" doc:"Those that live, in the order of their ids. One without the key advertise is not among them."`
}
