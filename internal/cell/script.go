package cell

import (
	"embed"

	"github.com/freeslot/freeslot/internal/script"
)

//go:embed script
var sources embed.FS

// scripts are read-only calls, too, by EVALSHA: miniredis takes TIME for a write, which EVALSHA_RO refuses.
var scripts = script.MustLoad(sources)

// Scripts are those of this package. The caller must not change the map.
func Scripts() script.Set { return scripts }
