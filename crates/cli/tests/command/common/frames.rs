//! The frames of a bar in a terminal.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// The frames of a run whose standard error is a terminal.
pub(crate) fn frames(command: &mut Command) -> Vec<String> {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let path = ptsname(&terminal, Vec::new()).unwrap();
    let other_end = File::options()
        .read(true)
        .write(true)
        .open(path.to_str().unwrap())
        .unwrap();
    rustix::termios::tcsetwinsize(
        &other_end,
        rustix::termios::Winsize {
            ws_row: 40,
            ws_col: 150,
            ws_xpixel: 0,
            ws_ypixel: 0,
        },
    )
    .unwrap();
    let command = command
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(other_end);
    let mut child = command.spawn().unwrap();
    // Its own copy of the terminal would keep the reader waiting.
    command.stderr(Stdio::null());
    let mut output = Vec::new();
    let mut part = [0; 4096];
    // At the end a terminal gives an error.
    while let Ok(length) = File::from(terminal.try_clone().unwrap()).read(&mut part) {
        output.extend_from_slice(&part[..length]);
        if length == 0 {
            break;
        }
    }
    assert!(child.wait().unwrap().success());
    let text = String::from_utf8_lossy(&output).into_owned();
    let frames = text
        .split(['\r', '\n'])
        .map(|frame| frame.replace("\u{1b}[2K", ""));
    frames
        .filter(|frame| frame.contains("entries") || frame.contains("done"))
        .collect()
}
