################################################################################
#
# nodepulse
#
# Rust 1.95 or newer (package/rustc). In Buildroot's tree, after `make source`:
#
#   mkdir -p package/nodepulse dl/nodepulse
#   cp target/source/buildroot/* package/nodepulse/
#   cp target/source/nodepulse-0.1.0.tar.gz dl/nodepulse/
#
# and `source "package/nodepulse/Config.in"` in package/Config.in.
#
# How it was checked (make test-recipes): make runs it, with an infrastructure
# of our own that has the same commands as pkg-cargo.mk, down to a program that
# runs and the files of each init system. No image was built with it.
#
################################################################################

NODEPULSE_VERSION = 0.1.0
NODEPULSE_SOURCE = nodepulse-$(NODEPULSE_VERSION).tar.gz
NODEPULSE_SITE = $(call qstrip,$(BR2_PACKAGE_NODEPULSE_SITE))
NODEPULSE_LICENSE = Apache-2.0
NODEPULSE_LICENSE_FILES = LICENSE
NODEPULSE_CARGO_BUILD_OPTS = --bin nodepulse

# Instead of `cargo install`, which would compile everything again.
define NODEPULSE_INSTALL_TARGET_CMDS
	$(INSTALL) -D -m 0755 \
		$(@D)/target/$(RUSTC_TARGET_NAME)/$(if $(BR2_ENABLE_DEBUG),debug,release)/nodepulse \
		$(TARGET_DIR)/usr/bin/nodepulse
	$(INSTALL) -d -m 0750 $(TARGET_DIR)/etc/nodepulse
endef

define NODEPULSE_INSTALL_INIT_SYSTEMD
	$(INSTALL) -D -m 0644 $(@D)/targets/systemd/nodepulse.service \
		$(TARGET_DIR)/usr/lib/systemd/system/nodepulse.service
	$(INSTALL) -D -m 0644 $(@D)/targets/systemd/nodepulse.tmpfiles \
		$(TARGET_DIR)/usr/lib/tmpfiles.d/nodepulse.conf
endef

define NODEPULSE_INSTALL_INIT_OPENRC
	$(INSTALL) -D -m 0755 $(@D)/targets/openrc/nodepulse \
		$(TARGET_DIR)/etc/init.d/nodepulse
endef

define NODEPULSE_INSTALL_INIT_SYSV
	$(INSTALL) -D -m 0755 $(@D)/targets/sysv/nodepulse \
		$(TARGET_DIR)/etc/init.d/S95nodepulse
endef

define NODEPULSE_PERMISSIONS
	/etc/nodepulse d 750 root nodepulse - - - - -
endef

define NODEPULSE_USERS
	nodepulse -1 nodepulse -1 * /var/lib/nodepulse - - Kubernetes Node agent
endef

$(eval $(cargo-package))
