//! Turns sources into the programs to be measured, as they would be shipped.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::cluster::Result;

pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// nodepulse and how it was built: for musl as it is shipped, where rustc has that target, else for this system.
/// `NODEPULSE=/path` measures another one.
pub fn nodepulse() -> Result<(PathBuf, String)> {
    if let Some(path) = std::env::var_os("NODEPULSE") {
        let path = PathBuf::from(path);
        let built = path.display().to_string();
        return Ok((path, built));
    }
    let musl = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let folder = folder();
    if !libraries_for(&musl).is_dir() {
        eprintln!(
            "bench: rustc cannot build for {musl} (rustup target add {musl}); measuring the build for this system"
        );
        let mut build = cargo(&["build", "--release", "--locked", "--no-default-features", "--bin", "nodepulse"]);
        build.current_dir(ROOT);
        finish(build, "nodepulse")?;
        return Ok((folder.join("release/nodepulse"), format!("{}, this system's C library", std::env::consts::ARCH)));
    }
    let mut build = Command::new("make");
    build.args(["--silent", "static"]).current_dir(ROOT).stdin(Stdio::null());
    finish(build, "nodepulse")?;
    Ok((folder.join(&musl).join("release/nodepulse"), musl))
}

/// Where the programs that ship are, each below its triple.
pub fn folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from(ROOT).join("target"), PathBuf::from)
}

/// The client of forty lines; its dependencies take some minutes the first time.
pub fn kube_rs() -> Result<PathBuf> {
    let folder = PathBuf::from(ROOT).join("target/bench");
    let mut build = cargo(&["build", "--release", "--locked"]);
    build.current_dir(PathBuf::from(ROOT).join("benches/kube-rs")).env("CARGO_TARGET_DIR", &folder);
    finish(build, "the kube-rs client")?;
    Ok(folder.join("release/kube-rs"))
}

/// A kubelet's own controller of Leases, for many Nodes at once; needs Go.
pub fn renewer() -> Result<PathBuf> {
    let program = PathBuf::from(ROOT).join("target/bench/renewer");
    let mut build = Command::new("go");
    build.args(["build", "-ldflags", "-s -w", "-o"]).arg(&program).arg(".").stdin(Stdio::null());
    build.current_dir(PathBuf::from(ROOT).join("benches/renewer")).env("CGO_ENABLED", "0").env("GOWORK", "off");
    let status = build.status().map_err(|e| format!("no Go to build a kubelet's controller of Leases with: {e}"))?;
    if status.success() { Ok(program) } else { Err(format!("benches/renewer did not build ({status})")) }
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).stdin(Stdio::null());
    // What cargo told this benchmark about its own build is not about the next.
    command.env_remove("CARGO_MANIFEST_DIR").env_remove("CARGO_PKG_NAME");
    command
}

fn finish(mut build: Command, what: &str) -> Result<()> {
    let status = build.status().map_err(|e| format!("cannot run cargo for {what}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{what} did not build ({status}); cargo said why above")) }
}

fn libraries_for(triple: &str) -> PathBuf {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "target-libdir", "--target", triple]).output();
    output.map_or_else(|_| PathBuf::new(), |output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}
