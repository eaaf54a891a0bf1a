//! The end of writing, when a file of the pool has lost its name.

use super::*;
use crate::Grown;
use crate::folder::{DisplacedFile, Displacement};

fn end_writing(rig: &mut Rig) {
    let displaced = DisplacedFile {
        file: Grown::Log,
        path: "log".into(),
        how: Displacement::Moved,
    };
    let core = &rig.file().core;
    core.commit
        .lead_if_free(&|| core.end_writing(displaced.clone()).unwrap());
    assert!(core.commit.is_displaced());
    rig.acknowledged
        .push((rig.machine.now(), rig.history.len() - 1));
}

#[test]
fn every_cut_while_writing_ends_is_survived() {
    for seed in 0..8 {
        let mut random = SmallRng::seed_from_u64(seed);
        let piece_bytes = [64, 512][seed as usize % 2];
        let mut rig = Rig::new();
        churn(&mut rig, &mut random, 6);
        let from = rig.machine.now();
        // No thread waits for these groups.
        rig.write(3, 4);
        rig.write(9, 2);
        end_writing(&mut rig);
        let length = rig.file().extent().length();
        let refused = rig.file().grow(2 * length).unwrap_err();
        assert!(matches!(refused, MediumError::Displaced(_)), "{refused}");
        // The pool alone is enough.
        let [pool, _log] = rig.machine.shown().files;
        let alone = Machine::new(&Image {
            files: [pool, Vec::new()],
        });
        let file = open_with(&alone, rig.options).unwrap();
        assert!(content(&file) == rig.history.last().unwrap().0, "{seed}");
        drop(file);
        rig.verify(from, piece_bytes, 4, &mut random, &("the end", seed));
        let from = rig.machine.now();
        rig.kill();
        rig.write(5, 3);
        rig.settle();
        rig.close();
        rig.verify(from, piece_bytes, 4, &mut random, &("the next", seed));
    }
}
