# Stands in for rust-package.mk of OpenWrt's feed `packages`: the same command, for this machine's processor. OpenWrt runs it
# in the package's own folder, where no setting of the tarball is seen.
RUST_ARCH_DEPENDS := @x86_64
CARGO_PKG_ARGS = --locked

define Build/Compile/Cargo
	+cargo install --profile release --root $(PKG_INSTALL_DIR) --path "$(PKG_BUILD_DIR)/$(strip $(1))" \
		$(CARGO_PKG_ARGS) $(2)
endef

Build/Compile = $(call Build/Compile/Cargo)
