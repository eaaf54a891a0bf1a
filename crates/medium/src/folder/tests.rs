use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;

use super::*;
use crate::testing::refusal::{Refusal, refuse};

/// A folder that is removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn make(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("everleaf-folder-{name}-{:x}", crate::random_id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn users_of_a_folder_share_one_descriptor() {
    let scratch = Scratch::make("shared");
    let other = scratch.0.join("other");
    symlink(&scratch.0, &other).unwrap();
    let one = Folder::open(&scratch.0).unwrap();
    let two = Folder::open(&other).unwrap();
    assert!(Arc::ptr_eq(&one.0, &two.0));
    let id = FileId::of(&one).unwrap();
    assert!(OPEN.lock().contains_key(&id));
    drop(one);
    drop(two);
    // The next open of any folder forgets it.
    let _root = Folder::open(Path::new("/")).unwrap();
    assert!(!OPEN.lock().contains_key(&id));
}

#[test]
fn a_name_is_removed_only_while_it_means_the_file() {
    let scratch = Scratch::make("names");
    let path = scratch.0.join("a");
    let place = FilePlace::find(&path).unwrap();
    assert!(!place.is_taken());
    let file = place.make(0o600).unwrap();
    assert_eq!(
        place.make(0o600).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(place.displacement(&file).unwrap(), None);
    // Renaming the folder changes nothing.
    let renamed = scratch.0.with_extension("renamed");
    fs::rename(&scratch.0, &renamed).unwrap();
    assert_eq!(place.displacement(&file).unwrap(), None);
    fs::rename(&renamed, &scratch.0).unwrap();
    fs::rename(&path, scratch.0.join("b")).unwrap();
    assert_eq!(
        place.displacement(&file).unwrap(),
        Some(Displacement::Moved)
    );
    fs::write(&path, "another file").unwrap();
    assert_eq!(
        place.displacement(&file).unwrap(),
        Some(Displacement::Moved)
    );
    assert!(!place.remove(&file).unwrap());
    fs::remove_file(scratch.0.join("b")).unwrap();
    assert_eq!(
        place.displacement(&file).unwrap(),
        Some(Displacement::Removed)
    );
    assert!(!place.remove(&file).unwrap());
    assert_eq!(fs::read_to_string(&path).unwrap(), "another file");
    let file = place.open(true).unwrap();
    assert!(place.remove(&file).unwrap());
    assert!(!place.is_taken());
}

#[test]
fn links_are_followed_to_a_file_that_need_not_exist() {
    let scratch = Scratch::make("links");
    let within = scratch.0.join("within");
    fs::create_dir(&within).unwrap();
    symlink("within/second", scratch.0.join("first")).unwrap();
    symlink("../target", within.join("second")).unwrap();
    let place = FilePlace::find(&scratch.0.join("first")).unwrap();
    let file = place.make(0o600).unwrap();
    let target = File::open(scratch.0.join("target")).unwrap();
    assert_eq!(FileId::of(&file).unwrap(), FileId::of(&target).unwrap());
    // A link that is not to be followed is not opened either.
    let link = FilePlace::of_name(&scratch.0.join("first")).unwrap();
    assert_eq!(
        link.open(false).unwrap_err().raw_os_error(),
        Some(Errno::LOOP.raw_os_error())
    );
    symlink("circle", scratch.0.join("circle")).unwrap();
    FilePlace::find(&scratch.0.join("circle")).unwrap_err();
    for path in ["", "/", "..", "a/"] {
        FilePlace::find(Path::new(path)).unwrap_err();
    }
}

#[test]
fn a_folder_that_cannot_be_synced_is_no_error_and_is_told() {
    let scratch = Scratch::make("sync");
    let folder = Folder::open(&scratch.0).unwrap();
    folder.sync().unwrap();
    assert!(folder.is_synced());
    let refusal = |errno| {
        refuse(Some(Refusal {
            call: Some(SystemCall::SyncFolder),
            after: 0,
            errno,
        }));
    };
    refusal(Errno::IO);
    folder.sync().unwrap_err();
    assert!(folder.is_synced());
    refusal(Errno::INVAL);
    folder.sync().unwrap();
    assert!(!folder.is_synced());
    refuse(None);
}
