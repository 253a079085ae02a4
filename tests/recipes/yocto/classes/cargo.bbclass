# Stands in for OpenEmbedded's cargo.bbclass: crates from one folder, built outside the sources, for this machine's processor.
export CARGO_HOME = "${WORKDIR}/cargo_home"
CARGO_VENDORING_DIRECTORY ?= "${CARGO_HOME}/bitbake"
CARGO_BUILD_FLAGS = "--frozen --target ${TRIPLE} --release --manifest-path=${S}/Cargo.toml"
CARGO_TARGET_SUBDIR = "${TRIPLE}/release"

do_configure() {
    mkdir -p "${CARGO_HOME}"
    cat >"${CARGO_HOME}/config.toml" <<EOF
[source.bitbake]
directory = "${CARGO_VENDORING_DIRECTORY}"
[source.crates-io]
replace-with = "bitbake"
[build]
target-dir = "${B}/target"
EOF
}

do_compile() {
    cargo build ${CARGO_BUILD_FLAGS}
}
