# nodepulse in a Yocto image, from the release tarball. Rust 1.95 or newer: a release that has an older one needs a layer with a
# newer. In your layer, after `make source`:
#
#   mkdir -p recipes-core/nodepulse/files
#   cp target/source/yocto/nodepulse_0.1.0.bb recipes-core/nodepulse/
#   cp target/source/nodepulse-0.1.0.tar.gz recipes-core/nodepulse/files/
#
# and IMAGE_INSTALL:append = " nodepulse". The board's kubeconfig goes to /etc/nodepulse/kubeconfig, by a .bbappend or on the board.
# How it was checked (make test-recipes): bitbake 2.19 runs it down to the package's files, with classes of our own in place of
# OpenEmbedded's. No image was built with it.
SUMMARY = "Makes this board a live Node of a Kubernetes cluster"
DESCRIPTION = "Reads the hardware, registers the Node, renews its Lease and keeps its status true. Runs no pods."
SECTION = "console/utils"
LICENSE = "Apache-2.0"
LIC_FILES_CHKSUM = "file://LICENSE;md5=3b83ef96387f14655fc854ddc3c6bd57"

SRC_URI = "file://${BP}.tar.gz"
# Asked for as soon as the tarball comes from a server.
SRC_URI[sha256sum] = "@SHA256@"

inherit cargo systemd update-rc.d useradd

# The tarball brings its crates.
CARGO_VENDORING_DIRECTORY = "${S}/VENDOR"
CARGO_BUILD_FLAGS += "--bin nodepulse"

do_install() {
    install -D -m 0755 ${B}/target/${CARGO_TARGET_SUBDIR}/nodepulse ${D}${bindir}/nodepulse
    install -d -m 0750 ${D}${sysconfdir}/nodepulse
    chgrp nodepulse ${D}${sysconfdir}/nodepulse
    if ${@bb.utils.contains('DISTRO_FEATURES', 'systemd', 'true', 'false', d)}; then
        install -D -m 0644 ${S}/targets/systemd/nodepulse.service ${D}${systemd_system_unitdir}/nodepulse.service
        install -D -m 0644 ${S}/targets/systemd/nodepulse.tmpfiles ${D}${nonarch_libdir}/tmpfiles.d/nodepulse.conf
    fi
    if ${@bb.utils.contains('DISTRO_FEATURES', 'sysvinit', 'true', 'false', d)}; then
        install -D -m 0755 ${S}/targets/sysv/nodepulse ${D}${sysconfdir}/init.d/nodepulse
    fi
}

FILES:${PN} += "${nonarch_libdir}/tmpfiles.d"

SYSTEMD_SERVICE:${PN} = "nodepulse.service"
INITSCRIPT_NAME = "nodepulse"
INITSCRIPT_PARAMS = "defaults 95 05"

USERADD_PACKAGES = "${PN}"
USERADD_PARAM:${PN} = "--system --user-group --home-dir ${localstatedir}/lib/nodepulse --no-create-home --shell /sbin/nologin nodepulse"
