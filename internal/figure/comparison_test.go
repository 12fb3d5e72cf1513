package figure

import (
	"encoding/json"
	"testing"
)

// A collector's figure may be a bool, which compares as the texts true and false.
func TestFlags(t *testing.T) {
	t.Parallel()
	figures := Flatten(json.RawMessage(`{"model":{"loaded":true,"warm":false,"at":null,"tags":["a"]}}`))
	for text, want := range map[string]bool{
		"model.loaded == true": true, "model.loaded != true": false, "model.loaded == false": false,
		"model.warm == false": true, "model.warm == true": false, "model.loaded >= 1": false,
		"model.at != true": true, "model.tags != true": true, "model.none != true": true,
	} {
		c, err := Parse("figure", text)
		if err != nil || c.Holds(figures) != want {
			t.Errorf("%s: expected %v, %v", text, want, err)
		}
	}
}
