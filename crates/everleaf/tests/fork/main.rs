//! Stores in the child of a fork: the child is refused, and the parent does not notice it.
//!
//! A child has one thread of its parent, and the harness has many. So each scene runs in a process
//! of its own: this program again, with the scene's name in a variable. A scene that hangs is ended
//! by a signal, and so are its children. `libtest-mimic` runs the scenes; it takes the usual options,
//! and one filter.

// No other crate uses a test crate: `pub` marks what a module offers to the other modules.
#![allow(unreachable_pub)]

mod handles;
mod refusals;
mod scenes;

use std::process::Command;

use everleaf::MediumChoice;
use handles::Site;
use libtest_mimic::{Arguments, Failed, Trial};
use medium::testing::forked::end_after;
use scenes::{SCENES, Scene};

/// The variable with the scene that a process runs.
const SCENE: &str = "EVERLEAF_FORK_SCENE";
/// How long a scene may take.
const SCENE_SECONDS_MAX: u32 = 300;

fn main() {
    if let Ok(name) = std::env::var(SCENE) {
        return run(&name);
    }
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for scene in SCENES {
        for medium in scene.media {
            let name = name_of(&scene, *medium);
            trials.push(Trial::test(name.clone(), move || run_apart(&name)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn name_of(scene: &Scene, medium: MediumChoice) -> String {
    format!("{medium:?}::{}", scene.name)
}

/// Runs a scene in a process of its own.
fn run_apart(name: &str) -> Result<(), Failed> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .env(SCENE, name)
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{SCENE}={name}: {}\n{errors}", output.status).into())
}

/// Runs a scene in this process.
fn run(name: &str) {
    end_after(SCENE_SECONDS_MAX);
    for scene in SCENES {
        for medium in scene.media {
            if name == name_of(&scene, *medium) {
                return (scene.run)(&Site::new(*medium));
            }
        }
    }
    panic!("no scene {name}");
}
