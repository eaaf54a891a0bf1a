//! Mutants of the file medium: the cuts that find nothing in the correct program must notice if a
//! kind of sync is left out, or a rule about positions or durability is broken.
//!
//! Syncs are told apart by what they make durable, so none can hide behind another one. Without a
//! sync between them two writes may reach the disk in either order, so this also covers swapped
//! writes.

use super::*;
use crate::testing::faulty::{Lost, Unsynced};
use crate::testing::mutant::{Mutant, plant};

/// The kinds of syncs, each with what it is for.
const KINDS: [(&str, Lost); 6] = [
    ("groups, before they are acknowledged", |file, unsynced| {
        file == Which::Log && !unsynced.is_empty() && unsynced.iter().all(|what| is_in_ring(*what))
    }),
    (
        "the length of a log that grows, before its header says so",
        |file, unsynced| {
            file == Which::Log
                && is_length(unsynced)
                && !unsynced.iter().any(|what| is_header(*what))
        },
    ),
    (
        "the header, before space is used again or an incarnation begins",
        |file, unsynced| file == Which::Log && unsynced.iter().any(|what| is_header(*what)),
    ),
    (
        "lines that went home, before the header forgets them",
        |file, unsynced| file == Which::Pool && unsynced.iter().any(|what| is_home(*what)),
    ),
    (
        "the mark of a pool that needs its log, before anything is in that",
        |file, unsynced| {
            file == Which::Pool && unsynced.contains(&MARK_WRITTEN) && !is_length(unsynced)
        },
    ),
    (
        "the first mark, with the length of a new pool",
        |file, unsynced| {
            file == Which::Pool && unsynced.contains(&MARK_WRITTEN) && is_length(unsynced)
        },
    ),
];

const MARK_WRITTEN: Unsynced = Unsynced::Write(MARK);

fn is_in_ring(what: Unsynced) -> bool {
    matches!(what, Unsynced::Write(offset) if offset >= layout::ANNOUNCEMENT)
}

fn is_header(what: Unsynced) -> bool {
    matches!(what, Unsynced::Write(offset) if offset < layout::ANNOUNCEMENT)
}

fn is_home(what: Unsynced) -> bool {
    matches!(what, Unsynced::Write(offset) if offset != MARK)
}

fn is_length(unsynced: &[Unsynced]) -> bool {
    unsynced
        .iter()
        .any(|what| matches!(what, Unsynced::Length(_)))
}

/// Does everything that a log does, without syncs of one kind. Returns the first cut that loses
/// something.
fn live(lost: Option<Lost>, seed: u64) -> Option<String> {
    let mut random = SmallRng::seed_from_u64(seed);
    let machine = Machine::new(&Image::default());
    machine.set_faults(Faults {
        lost,
        ..Faults::default()
    });
    let mut rig = Rig::on(machine);
    let from = rig.machine.now();
    rig.write(0, 1);
    rig.settle();
    rig.let_the_log_grow();
    for step in [Step::Kill, Step::Write, Step::Close, Step::Write] {
        run(&mut rig, step, &mut random, 20);
        rig.settle();
    }
    churn(&mut rig, &mut random, 25);
    rig.find_violation(from, [64, 512][seed as usize % 2], 24, &mut random)
}

#[test]
fn every_kind_of_sync_is_needed() {
    const SEEDS: std::ops::Range<u64> = 0..6;
    for seed in SEEDS {
        assert_eq!(live(None, seed), None, "with all syncs, seed {seed}");
    }
    for (what, lost) in KINDS {
        let noticed = SEEDS.into_iter().find_map(|seed| live(Some(lost), seed));
        assert!(noticed.is_some(), "nobody notices a lost sync of {what}");
    }
}

/// Whether the run and its cuts notice the mutant: by a loss, or by an error or a panic that has no
/// other reason.
fn is_noticed(mutant: Mutant) -> bool {
    plant(Some(mutant));
    let noticed = (0..6).any(|seed| {
        let lived = std::panic::catch_unwind(|| live(None, seed));
        !matches!(lived, Ok(None))
    });
    let fills_the_log = || Rig::to_live(Machine::new(&Image::default())).try_live();
    let noticed = noticed || !matches!(std::panic::catch_unwind(fills_the_log), Ok(Ok(())));
    let noticed =
        noticed || std::panic::catch_unwind(what_lies_behind_a_tear_never_comes_back).is_err();
    plant(None);
    noticed
}

#[test]
#[ignore = "thorough: 16 s"]
fn every_rule_about_positions_is_needed() {
    for mutant in [
        Mutant::CheckpointUnbound,
        Mutant::NoRoomNeeded,
        Mutant::OldIncarnation,
        Mutant::AnyPosition,
    ] {
        assert!(is_noticed(mutant), "nobody notices {mutant:?}");
    }
}

/// The rules that the log records what is durable, and that an open relies on nothing else: each
/// mutant with the test that notices it.
const DURABLE: [(Mutant, fn()); 9] = [
    (
        Mutant::NoSeal,
        damage::every_flipped_byte_of_the_log_is_harmless_or_found,
    ),
    (
        Mutant::NothingSaidDurable,
        damage::every_flipped_byte_of_the_log_is_harmless_or_found,
    ),
    (
        Mutant::AllSaidDurable,
        a_log_that_is_recycled_many_times_loses_nothing,
    ),
    (Mutant::HeaderKept, || faults::fail_at(1)),
    (Mutant::EndKept, || faults::fail_at(1)),
    (Mutant::MarkKept, || deaths::die_before(1)),
    (
        Mutant::AnyHeader,
        damage::a_flip_in_the_newer_header_loses_nothing_silently,
    ),
    (
        Mutant::AnyHeader,
        damage::a_zeroed_header_loses_nothing_silently,
    ),
    (Mutant::EarlyAcknowledgement, || faults::fail_at(1)),
];

#[test]
#[ignore = "thorough: 15 s"]
fn every_rule_about_what_is_durable_is_needed() {
    for (mutant, explore) in DURABLE {
        plant(Some(mutant));
        let explored = std::panic::catch_unwind(explore);
        plant(None);
        assert!(explored.is_err(), "nobody notices {mutant:?}");
    }
}

/// Otherwise the older of two captures of a line might come later in the log.
#[test]
fn a_line_is_captured_under_the_lock_of_the_logs_end() {
    let rig = Rig::new();
    let core = &rig.file().core;
    core.append(1, |_| {
        assert!(
            core.tail.try_lock().is_none(),
            "a line is captured without the lock"
        );
        (HERE / LINE_BYTES as u64, LineValue::ZERO)
    });
}
