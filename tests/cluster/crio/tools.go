//go:build tools

// Package tools keeps the program that ../build builds in this module's go.mod.
package tools

import _ "github.com/cri-o/cri-o/cmd/crio"
