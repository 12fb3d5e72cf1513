package registry

import (
	"context"
	"fmt"
	"strconv"
)

// query runs query.lua, which returns a page of the instances that a filter selects. It suits
// one-off questions; for repeated ones a consumer's list is better. cursor is "0" at first; the
// page's cursor is "0" at the end. A page can be empty before the end, and two pages can have the
// same instance.
func (c *conn) query(ctx context.Context, service string, filter *Filter, cursor string) (page, error) {
	raw, err := filter.forScript()
	if err != nil {
		return page{}, fmt.Errorf("query service %s: %w", service, err)
	}
	runner, k := c.of(service)
	values, err := runner.Call(ctx, scripts["query"],
		[]string{k.record(service), k.heartbeats(service), k.overrides(service)},
		[]string{cursor, strconv.Itoa(pageSize), k.instance(service, ""), string(raw)}).ToArray()
	if err != nil {
		return page{}, fmt.Errorf("query service %s: %w", service, err)
	}
	p, err := readLoad(values)
	if err != nil {
		return page{}, fmt.Errorf("query service %s: answer of redis: %w", service, err)
	}
	return p, nil
}
