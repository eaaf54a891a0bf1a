use std::fs::File;

use super::PoolMoment;
use crate::{LineStore, MediumChoice, Options};

/// A copy that was made without the lock counts only if no process has opened the pool meanwhile.
#[test]
fn each_open_for_writing_is_another_moment_of_the_pool() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pool");
    for medium in [MediumChoice::File, MediumChoice::Dax] {
        // Every processor can store lines of this form to mapped memory.
        let options = Options::new().medium(medium).line_store(LineStore::Twin);
        options.open(&path).unwrap().tree("t").unwrap();
        let file = File::open(&path).unwrap();
        let moment = PoolMoment::of(&file).unwrap();
        drop(options.clone().read_only(true).open(&path).unwrap());
        let is_same = PoolMoment::find(&file).unwrap() == moment;
        assert!(is_same, "{medium:?}: a reader changes nothing");
        drop(options.open(&path).unwrap());
        let is_same = PoolMoment::find(&file).unwrap() == moment;
        assert!(!is_same, "{medium:?}");
    }
}
