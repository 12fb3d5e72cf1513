package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/namelist"
)

// needed holds what a call needs to be granted, beside the role. Other calls about a list need
// nothing: they change neither ids nor answers, or are an admin's.
var needed = map[string]namelist.May{
	"query-list": namelist.MayQuery, "count-list": namelist.MayQuery, "export-list": namelist.MayQuery,
	"sample-version": namelist.MayQuery, "diff-version": namelist.MayQuery, "list-rejects": namelist.MayQuery,
	"list-upload-rejects": namelist.MayQuery,
	"apply-list":          namelist.MayEdit, "accept-version": namelist.MayEdit, "open-upload": namelist.MayEdit,
	"put-chunk": namelist.MayEdit, "commit-upload": namelist.MayEdit, "drop-upload": namelist.MayEdit,
	"edit-list": namelist.MayEdit, "open-session": namelist.MayEdit, "stage-entries": namelist.MayEdit,
	"commit-session": namelist.MayEdit, "cancel-session": namelist.MayEdit, "cancel-operation": namelist.MayEdit,
	"set-list-source": namelist.MaySwitch, "unset-list-source": namelist.MaySwitch, "run-list-source": namelist.MaySwitch,
	"switch-list": namelist.MaySwitch, "delete-list": namelist.MaySwitch,
}

// mayCall returns why a caller whose role allows a call may not make it with this list, or nil.
func mayCall(who *identity.Principal, call string, h *namelist.Head) error {
	need, name := needed[call], who.Name
	if who.Role == identity.TenantOperator { // tenants name their tokens as they like
		name = who.Tenant + "/" + name
	}
	// An operator's signed token can be named like a tenant-operator of a tenant.
	nameless := who.Name == "" || who.Role == identity.Operator && strings.Contains(name, "/")
	granted := !nameless && (need == "" && len(h.Grants[name]) > 0 || slices.Contains(h.Grants[name], need))
	switch who.Role {
	case identity.TenantOperator:
		if granted || h.Owner.Application != "" && h.Owner.Tenant == who.Tenant {
			return nil
		}
		// A tenant does not learn which lists others have.
		return &freeslot.Error{Code: freeslot.CodeNotFound, Message: "there is no list " + h.Name}
	case identity.Operator:
		if need == "" || granted || h.Owner.Application == "" && len(h.Grants) == 0 {
			return nil
		}
		return &freeslot.Error{Code: freeslot.CodePermissionDenied, Message: fmt.Sprintf(
			"list %s is an application's or was granted to others, and the token %.64q may not %s it; an admin grants that: "+
				"`schedctl lists grant %s --to NAME --may %s`", h.Name, who.Name, need, h.Name, need)}
	}
	return nil
}

// guard refuses calls about a list that the caller may not make with this list.
func (r *routes) guard(ctx huma.Context, next func(huma.Context)) {
	who, list := api.Caller(ctx.Context()), ctx.Param("list")
	if id := ctx.Param("upload"); id != "" {
		if u, err := r.manager.Upload(id); err == nil { // else the handler says where it is
			list = u.List
		}
	}
	if list != "" && who.Role != identity.Admin {
		h, err := r.control.Head(ctx.Context(), list)
		if err == nil {
			err = mayCall(&who.Principal, ctx.Operation().OperationID, &h)
		} else if code := freeslot.CodeOf(err); code == freeslot.CodeNotFound || code == freeslot.CodeInvalidArgument {
			err = nil // the handler says so, or makes the list
		}
		if err != nil {
			refuse(ctx, r.Refuse("check the rights to the list", err))
			return
		}
	}
	next(ctx)
}
