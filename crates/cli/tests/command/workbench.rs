//! Subcommands of the second command, which lies beside this one or does not.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::common::Said;
use crate::program;
use tempfile::TempDir;

/// A folder with nothing but the command in it.
fn alone() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let everleaf = folder.path().join("everleaf");
    std::fs::copy(program(), &everleaf).unwrap();
    (folder, everleaf)
}

#[test]
fn the_second_command_is_called_if_it_lies_beside() {
    let (folder, everleaf) = alone();
    let workbench = folder.path().join("everleaf-workbench");
    std::fs::write(&workbench, "#!/bin/sh\necho \"$@\"\nexit 7\n").unwrap();
    std::fs::set_permissions(&workbench, Permissions::from_mode(0o755)).unwrap();
    for arguments in [
        &["bench", "--medium", "ram"][..],
        &["--json", "crash", "--help"],
        &["torture", "a.pool", "--", "--x"],
        &["lab", "bztree"],
    ] {
        let output = Command::new(&everleaf).args(arguments).output().unwrap();
        let said = Said::of(output).expect(7);
        assert_eq!(said.text().trim_end(), arguments.join(" "));
    }
    // The other subcommands are this command's own.
    let output = Command::new(&everleaf).arg("engines").output().unwrap();
    Said::of(output).expect(0);
}

#[test]
fn without_the_second_command_the_error_says_how_to_get_it() {
    let (_folder, everleaf) = alone();
    let output = Command::new(&everleaf)
        .args(["bench", "--json"])
        .output()
        .unwrap();
    let said = Said::of(output).expect(3);
    let error = said.json();
    assert_eq!(error["kind"], "refused");
    for part in ["everleaf-workbench", "cargo build --release -p"] {
        assert!(said.errors.contains(part), "{said:?}");
    }
}
