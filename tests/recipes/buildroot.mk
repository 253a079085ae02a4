# Stands in for Buildroot: what its package/pkg-generic.mk and pkg-cargo.mk do with a recipe, on this machine's processor.
# RECIPE is the folder of the recipe, DL_DIR that of the tarball, WORK where everything goes.
MAKEFLAGS += --warn-undefined-variables
SHELL := /bin/sh
BR2_PACKAGE_NODEPULSE_SITE := "file:///nowhere"
BR2_ENABLE_DEBUG :=
RUSTC_TARGET_NAME := $(TRIPLE)
TARGET_DIR := $(WORK)/target
INSTALL := $(shell command -v install)
qstrip = $(strip $(subst ",,$(1)))

all: $(WORK)/.done

# Each step is a stamp in the folder of the sources, as Buildroot has it: $(@D) is that folder.
define cargo-package
NODEPULSE_DIR := $$(WORK)/build/nodepulse-$$(NODEPULSE_VERSION)

$$(NODEPULSE_DIR)/.stamp_extracted:
	@test "$$(NODEPULSE_SITE)" = file:///nowhere
	@cd $$(DL_DIR) && grep '$$(NODEPULSE_SOURCE)$$$$' $$(RECIPE)/nodepulse.hash | sed 's/^sha256  //' | sha256sum -c --quiet
	@mkdir -p $$(@D) && tar -xf $$(DL_DIR)/$$(NODEPULSE_SOURCE) --strip-components=1 -C $$(@D)
	@cd $$(@D) && grep '$$(NODEPULSE_LICENSE_FILES)$$$$' $$(RECIPE)/nodepulse.hash | sed 's/^sha256  //' | sha256sum -c --quiet
	@touch $$@

$$(NODEPULSE_DIR)/.stamp_built: $$(NODEPULSE_DIR)/.stamp_extracted
	cd $$(@D) && CARGO_BUILD_TARGET=$$(RUSTC_TARGET_NAME) cargo build --offline $$(if $$(BR2_ENABLE_DEBUG),,--release) \
	    --manifest-path Cargo.toml --locked $$(NODEPULSE_CARGO_BUILD_OPTS)
	@touch $$@

$$(NODEPULSE_DIR)/.stamp_target_installed: $$(NODEPULSE_DIR)/.stamp_built
	$$(NODEPULSE_INSTALL_TARGET_CMDS)
	$$(NODEPULSE_INSTALL_INIT_SYSTEMD)
	$$(NODEPULSE_INSTALL_INIT_OPENRC)
	$$(NODEPULSE_INSTALL_INIT_SYSV)
	@touch $$@

# Both are tables that Buildroot's own tools read, a line each: nine and ten columns.
$$(WORK)/.done: $$(NODEPULSE_DIR)/.stamp_target_installed
	@set -f; set -- $$(call qstrip,$$(NODEPULSE_USERS)); test $$$$# -ge 9 && test "$$$$6" = /var/lib/nodepulse
	@set -f; set -- $$(call qstrip,$$(NODEPULSE_PERMISSIONS)); test $$$$# -eq 10 && test -d $$(TARGET_DIR)$$$$1
	@touch $$@
endef

include $(RECIPE)/nodepulse.mk
