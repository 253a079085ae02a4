# Stands in for OpenWrt's package.mk: from the tarball to the package's files, with what the Makefile before it said.
PKG_BUILD_DIR := $(BUILD_DIR)/$(PKG_NAME)-$(PKG_VERSION)
PKG_INSTALL_DIR := $(PKG_BUILD_DIR)/ipkg-install

define BuildPackage
$(eval $(call Package/$(1)))
compile:
	@test -n "$(TITLE)" -a -n "$(SECTION)" -a -n "$(CATEGORY)" -a "$(USERID)" = nodepulse:nodepulse
	@echo "$(PKG_HASH)  $(DL_DIR)/$(PKG_SOURCE)" | sha256sum -c --quiet
	@mkdir -p $(PKG_BUILD_DIR) && tar -xf $(DL_DIR)/$(PKG_SOURCE) --strip-components=1 -C $(PKG_BUILD_DIR)
	@test -f $(PKG_BUILD_DIR)/$(PKG_LICENSE_FILES)
$(call Build/Compile)
$(call Package/$(1)/install,$(WORK)/ipkg)
	@test -d $(WORK)/ipkg$(strip $(Package/$(1)/conffiles))
endef
