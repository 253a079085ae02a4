//! Turns files into a signed release with a key that is thrown away, and holds what was changed since against it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::{Folder, err};

const SIGN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/targets/packages/sign");

fn shell(folder: &Folder, script: &str) -> Output {
    Command::new("sh").args(["-ec", script]).current_dir(&folder.0).output().expect("a shell")
}

/// As `targets/README.md` says.
const VERIFY: &str =
    "ssh-keygen -Y verify -f allowed_signers -I releases -n nodepulse-release -s SHA256SUMS.sig <SHA256SUMS &&
    sha256sum --check --ignore-missing SHA256SUMS";

#[test]
fn a_release_is_signed_and_whoever_changes_it_is_found_out() {
    let folder = Folder::new();
    if !shell(&folder, "command -v ssh-keygen").status.success() {
        eprintln!("ssh-keygen is missing (openssh-client): nobody can sign here");
        return;
    }
    folder.write("nodepulse-1.tar.gz", "a program");
    let made = "ssh-keygen -q -t ed25519 -N '' -f key && ssh-keygen -q -t ed25519 -N '' -f other &&
        printf 'releases %s\\n' \"$(cat key.pub)\" >allowed_signers && sha256sum nodepulse* >SHA256SUMS";
    assert!(shell(&folder, made).status.success());
    let sign = |key: &str| Command::new(SIGN).args([&folder.path(key), &folder.path("")]).output().expect("a script");
    let signed = sign("key");
    assert!(signed.status.success(), "{}", err(&signed));
    let whole = shell(&folder, VERIFY);
    assert!(whole.status.success(), "{}", err(&whole));
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("targets/README.md")).expect("a page");
    assert!(page.contains("-n nodepulse-release -s SHA256SUMS.sig <SHA256SUMS"), "the page says how");

    folder.write("nodepulse-1.tar.gz", "another program");
    assert!(!shell(&folder, VERIFY).status.success(), "a file was changed");
    assert!(!sign("key").status.success(), "what is signed is what lies there");
    assert!(shell(&folder, "sha256sum nodepulse* >SHA256SUMS").status.success());
    assert!(!shell(&folder, VERIFY).status.success(), "the sums were changed, too");
    assert!(sign("other").status.success() && !shell(&folder, VERIFY).status.success(), "somebody else signed");
}
