"""Turns a recipe and a folder of sources into the files of its package: BitBake's own parser and tasks, our own classes.

    build.py RECIPE FOLDER-OF-TARBALL WORK
"""

import os
import subprocess
import sys
import types

# The wheel leaves out the server of shared hashes, which parsing only names.
for module in ("hashserv", "hashserv.client"):
    sys.modules[module] = types.ModuleType(module)

import bb.build  # noqa: E402
import bb.data  # noqa: E402
import bb.fetch2  # noqa: E402
import bb.parse  # noqa: E402
import bb.siggen  # noqa: E402

recipe, source, work = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
name, version = os.path.basename(recipe).removesuffix(".bb").split("_")

d = bb.data.init()
bb.parse.siggen = bb.siggen.init(d)
# What bitbake.conf of OpenEmbedded says, as far as the recipe asks for it.
for key, value in {
    "BBPATH": here,
    "__bbclasstype": "recipe",
    "PN": name,
    "PV": version,
    "BP": f"{name}-{version}",
    "TOPDIR": work,
    "WORKDIR": f"{work}/work",
    "UNPACKDIR": f"{work}/work/sources",
    "S": "${UNPACKDIR}/${BP}",
    "B": "${WORKDIR}/build",
    "D": f"{work}/image",
    "T": f"{work}/temp",
    "DL_DIR": f"{work}/downloads",
    "FILESPATH": source,
    "PERSISTENT_DIR": f"{work}/persistent",
    "bindir": "/usr/bin",
    "sysconfdir": "/etc",
    "localstatedir": "/var",
    "nonarch_libdir": "/usr/lib",
    "systemd_system_unitdir": "/usr/lib/systemd/system",
    "DISTRO_FEATURES": "systemd sysvinit",
}.items():
    d.setVar(key, value)
for key in ("HOME", "PATH", "RUSTC", "TRIPLE", "CARGO_NET_OFFLINE"):
    d.setVar(key, os.environ[key])
    d.setVarFlag(key, "export", "1")
for key in [key for key in os.environ if key.startswith("CARGO_PROFILE_")]:
    d.setVar(key, os.environ[key])
    d.setVarFlag(key, "export", "1")
# The group of the recipe is in the image only, and pseudo stands between; here nobody has it.
shims = f"{work}/shims"
os.makedirs(shims)
with open(f"{shims}/chgrp", "w") as shim:
    shim.write('#!/bin/sh\n[ "$1" = nodepulse ] && test -e "$2"\n')
os.chmod(f"{shims}/chgrp", 0o755)
d.setVar("PATH", f"{shims}:{os.environ['PATH']}")

d = bb.parse.handle(recipe, d)[""]
for key in ("SUMMARY", "DESCRIPTION", "LICENSE", "USERADD_PARAM:nodepulse", "SYSTEMD_SERVICE:nodepulse", "INITSCRIPT_PARAMS"):
    assert d.getVar(key), f"{key} is not set"
for folder in ("WORKDIR", "UNPACKDIR", "B", "D", "T", "DL_DIR"):
    os.makedirs(d.getVar(folder), exist_ok=True)

fetch = bb.fetch2.Fetch(d.getVar("SRC_URI").split(), d)
fetch.download()
fetch.unpack(d.getVar("UNPACKDIR"))
tarball = f"{source}/{d.getVar('BP')}.tar.gz"
sums = subprocess.run(["sha256sum", tarball], check=True, capture_output=True, text=True)
assert sums.stdout.split()[0] == d.getVarFlag("SRC_URI", "sha256sum"), "the recipe has another tarball's hash"
file, md5 = d.getVar("LIC_FILES_CHKSUM").removeprefix("file://").split(";md5=")
assert bb.utils.md5_file(f"{d.getVar('S')}/{file}") == md5, f"{file} is not the one of the recipe"

for task in ("do_configure", "do_compile", "do_install"):
    bb.build.exec_func(task, d, dirs=[d.getVar("B")])
