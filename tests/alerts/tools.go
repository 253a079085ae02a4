//go:build tools

// Keeps promtool in go.mod.
package tools

import _ "github.com/prometheus/prometheus/cmd/promtool"
