package cell

import (
	"context"
	"slices"
	"strings"
)

// resourcesPage is how many nodes one call of Resources reads.
const resourcesPage = 500

// Resources calls see with what the agent of each registered node said last of its machine, as in
// NodeState.Resources. It leaves out nodes that said nothing yet. Errors: from Redis.
func (c *Cell) Resources(ctx context.Context, see func(node, resources string)) (err error) {
	defer wrap(&err, "read what agents said of their machines")
	all := c.client.B().Zrange().Key(c.layout.Revisions()).Min("0").Max("-1").Build()
	ids, err := c.runner.Do(ctx, "resources", all).AsStrSlice()
	if err != nil {
		return err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return strings.HasPrefix(id, "-") }) // nodes that are gone
	for page := range slices.Chunk(ids, resourcesPage) {
		keys := make([]string, len(page))
		for i, id := range page {
			keys[i] = c.layout.Metrics(id)
		}
		said, err := c.runner.Do(ctx, "resources", c.client.B().Mget().Key(keys...).Build()).ToArray()
		if err != nil {
			return err
		}
		for i := range said {
			if text, err := said[i].ToString(); err == nil && i < len(page) {
				see(page[i], text)
			}
		}
	}
	return nil
}
