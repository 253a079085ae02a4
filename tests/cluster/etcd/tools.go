//go:build tools

// Package tools keeps the program that ../build builds in this module's go.mod.
package tools

import _ "go.etcd.io/etcd/server/v3"
