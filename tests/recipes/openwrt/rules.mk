# Stands in for OpenWrt's rules.mk: the folders and programs that a package's Makefile is written with.
SHELL := /bin/sh
INCLUDE_DIR := $(TOPDIR)/include
STAGING_DIR := $(WORK)/staging
BUILD_DIR := $(WORK)/build
INSTALL_DIR := install -d -m0755
INSTALL_BIN := install -m0755
