//! One small program for each rule of the models. Each test names exactly the outcomes that the
//! rule allows, so it fails if the rule is missing and if it goes too far.

use std::collections::BTreeSet;

use everleaf_sim::{Complaint, ExplorationOptions, Explorer, Model, Rules, Subject, images};
use medium::sim::{Event, Sim, SimOptions, Trace};
use medium::{Line, LineForm, LineValue, Medium, MediumGuard};

/// Words of two lines.
const A: u64 = 64;
const A2: u64 = 72;
const B: u64 = 128;

fn memory(line_form: LineForm, late: bool) -> Sim {
    let sim = Sim::new(SimOptions {
        line_form,
        limit_bytes: 1 << 16,
        late,
        rubbish_from: None,
    })
    .unwrap();
    sim.grow(4096).unwrap();
    sim
}

fn set(guard: &MediumGuard<'_, Sim>, offset: u64, value: u64) {
    guard.words(offset, 1).unwrap()[0].store(guard, value);
}

fn flush(guard: &MediumGuard<'_, Sim>, offset: u64) {
    guard.flush_words(guard.words(offset, 1).unwrap());
}

fn record(sim: &Sim, program: impl FnOnce(&MediumGuard<'_, Sim>)) -> Trace {
    let mut trace = Trace::default();
    sim.set_recording(true);
    sim.push_level();
    program(&MediumGuard::new(sim));
    sim.pop_level();
    sim.set_recording(false);
    sim.swap_trace(&mut trace);
    trace
}

fn contents(sim: &Sim, model: &mut Model, words: &[u64]) -> BTreeSet<Vec<u64>> {
    let (open, _) = model.open_lines(sim);
    let read = |image: Vec<(u32, LineValue)>| {
        let word = |offset: &u64| {
            let line = (offset / 64) as u32;
            let content = image
                .iter()
                .find(|(open, _)| *open == line)
                .map(|(_, content)| *content);
            content.or_else(|| sim.peek(line)).unwrap().0[(offset % 64 / 8) as usize]
        };
        words.iter().map(word).collect()
    };
    images(&open).map(read).collect()
}

/// What words may hold after a crash at the end of a program.
fn at_end(words: &[u64], program: impl FnOnce(&MediumGuard<'_, Sim>)) -> BTreeSet<Vec<u64>> {
    at_end_by(Rules::Lines, words, program)
}

fn at_end_by(
    rules: Rules,
    words: &[u64],
    program: impl FnOnce(&MediumGuard<'_, Sim>),
) -> BTreeSet<Vec<u64>> {
    let sim = memory(LineForm::Single, rules == Rules::Log);
    let trace = record(&sim, program);
    let mut model = Model::new(rules, &[], 0);
    trace
        .events
        .iter()
        .for_each(|event| model.apply(&sim, &trace, event));
    contents(&sim, &mut model, words)
}

/// What words may hold after a crash at any moment.
fn at_any_time(
    rules: Rules,
    line_form: LineForm,
    words: &[u64],
    program: impl FnOnce(&MediumGuard<'_, Sim>),
) -> BTreeSet<Vec<u64>> {
    let sim = memory(line_form, rules == Rules::Log);
    let trace = record(&sim, program);
    let mut model = Model::new(rules, &[], 0);
    let mut outcomes = contents(&sim, &mut model, words);
    for event in &trace.events {
        model.apply(&sim, &trace, event);
        outcomes.extend(contents(&sim, &mut model, words));
    }
    outcomes
}

fn outcomes<const WORDS: usize, const COUNT: usize>(
    list: [[u64; WORDS]; COUNT],
) -> BTreeSet<Vec<u64>> {
    list.iter().map(|outcome| outcome.to_vec()).collect()
}

#[test]
fn stores_to_one_line_arrive_in_program_order() {
    let found = at_end(&[A, A2], |guard| {
        set(guard, A, 1);
        set(guard, A2, 1);
    });
    assert_eq!(found, outcomes([[0, 0], [1, 0], [1, 1]]));
}

#[test]
fn stores_to_two_lines_arrive_in_any_order() {
    let found = at_end(&[A, B], |guard| {
        set(guard, A, 1);
        set(guard, B, 1);
    });
    assert_eq!(found, outcomes([[0, 0], [0, 1], [1, 0], [1, 1]]));
}

#[test]
fn a_value_may_come_back() {
    let found = at_end(&[A, A2], |guard| {
        set(guard, A, 1);
        set(guard, A2, 1);
        set(guard, A, 0);
    });
    assert_eq!(found, outcomes([[0, 0], [1, 0], [1, 1], [0, 1]]));
}

/// A lock, or an undo log's flag: set and taken back. All lines new means that it is not set.
#[test]
fn what_was_stored_last_is_newest_even_if_it_was_there_before() {
    for rules in [Rules::Lines, Rules::Log] {
        let sim = memory(LineForm::Single, rules == Rules::Log);
        let trace = record(&sim, |guard| {
            for (offset, value) in [(A, 1), (A, 0), (B, 1)] {
                set(guard, offset, value);
                flush(guard, offset);
                if rules == Rules::Log {
                    guard.fence();
                }
            }
        });
        let mut model = Model::new(rules, &[], 0);
        trace
            .events
            .iter()
            .for_each(|event| model.apply(&sim, &trace, event));
        sim.install(model.open_lines(&sim).0);
        // No chooser is set, so a load finds the newest content.
        let guard = MediumGuard::new(&sim);
        let found = [A, B].map(|offset| guard.words(offset, 1).unwrap()[0].load(&guard));
        assert_eq!(found, [0, 1], "{rules:?}");
    }
}

#[test]
fn a_flush_alone_makes_nothing_durable() {
    let found = at_end(&[A, B], |guard| {
        set(guard, A, 1);
        flush(guard, A);
        set(guard, B, 1);
        flush(guard, B);
    });
    assert_eq!(found, outcomes([[0, 0], [0, 1], [1, 0], [1, 1]]));
}

#[test]
fn a_fence_alone_makes_nothing_durable() {
    let found = at_end(&[A], |guard| {
        set(guard, A, 1);
        guard.fence();
    });
    assert_eq!(found, outcomes([[0], [1]]));
}

#[test]
fn a_flush_and_a_fence_do() {
    let found = at_end(&[A, B], |guard| {
        set(guard, A, 1);
        flush(guard, A);
        guard.fence();
        set(guard, B, 1);
    });
    assert_eq!(found, outcomes([[1, 0], [1, 1]]));
}

#[test]
fn a_fence_makes_durable_what_its_own_guard_flushed() {
    let sim = memory(LineForm::Single, false);
    let trace = record(&sim, |guard| {
        let other = MediumGuard::new(&sim);
        set(guard, A, 1);
        flush(guard, A);
        set(&other, B, 1);
        flush(&other, B);
        other.fence();
    });
    let mut model = Model::new(Rules::Lines, &[], 0);
    trace
        .events
        .iter()
        .for_each(|event| model.apply(&sim, &trace, event));
    assert_eq!(
        contents(&sim, &mut model, &[A, B]),
        outcomes([[0, 1], [1, 1]])
    );
}

#[test]
fn a_flush_covers_what_others_stored_to_the_line() {
    let found = at_end(&[A], |guard| {
        let other = MediumGuard::new(guard.medium());
        set(&other, A, 1);
        flush(guard, A);
        guard.fence();
    });
    assert_eq!(found, outcomes([[1]]));
}

#[test]
fn a_flush_does_not_cover_what_is_stored_after_it() {
    let found = at_end(&[A], |guard| {
        set(guard, A, 1);
        flush(guard, A);
        set(guard, A, 2);
        guard.fence();
    });
    assert_eq!(found, outcomes([[1], [2]]));
}

#[test]
fn a_second_fence_needs_a_second_flush() {
    let found = at_end(&[A], |guard| {
        set(guard, A, 1);
        flush(guard, A);
        guard.fence();
        set(guard, A, 2);
        guard.fence();
    });
    assert_eq!(found, outcomes([[1], [2]]));
}

#[test]
fn an_old_flush_of_another_guard_covers_nothing_new() {
    let found = at_end(&[A], |guard| {
        let other = MediumGuard::new(guard.medium());
        set(guard, A, 1);
        flush(&other, A);
        flush(guard, A);
        guard.fence();
        set(guard, A, 2);
        other.fence();
    });
    assert_eq!(found, outcomes([[1], [2]]));
}

#[test]
fn a_compare_exchange_is_no_fence() {
    let found = at_end(&[A, B], |guard| {
        set(guard, A, 1);
        flush(guard, A);
        guard.words(B, 1).unwrap()[0]
            .compare_exchange(guard, 0, 1)
            .unwrap();
    });
    assert_eq!(found, outcomes([[0, 0], [0, 1], [1, 0], [1, 1]]));
}

#[test]
fn a_flush_of_a_range_covers_each_line_that_it_touches() {
    let found = at_end(&[A, B, 192], |guard| {
        for offset in [A, B, 192] {
            set(guard, offset, 1);
        }
        guard.flush_words(guard.words(120, 2).unwrap());
        guard.fence();
    });
    assert_eq!(found, outcomes([[1, 1, 0], [1, 1, 1]]));
}

fn publish(guard: &MediumGuard<'_, Sim>, value: u64) {
    let line: &Line = guard.node(256).unwrap();
    line.publish(guard, &LineValue::ZERO, &LineValue([value; 8]))
        .unwrap();
}

#[test]
fn a_line_store_arrives_whole() {
    let words: Vec<u64> = (0..8).map(|word| 256 + 8 * word).collect();
    let found = at_end(&words, |guard| publish(guard, 1));
    assert_eq!(found, outcomes([[0; 8], [1; 8]]));
}

#[test]
fn a_line_store_is_flushed_but_not_fenced() {
    let found = at_end(&[256], |guard| {
        publish(guard, 1);
        guard.fence();
        publish(guard, 2);
    });
    assert_eq!(found, outcomes([[1], [2]]));
}

/// Whether a line that was found torn in every way was stored from its last word on; or else from
/// its first.
fn torn_from_one_end(found: &BTreeSet<Vec<u64>>, value: u64) -> bool {
    let torn = |count| {
        (0..8)
            .map(|word| if word < count { value } else { 0 })
            .collect::<Vec<u64>>()
    };
    let backward = |count| torn(count).into_iter().rev().collect::<Vec<u64>>();
    let is_backward = *found != (0..=8).map(torn).collect();
    assert!(
        !is_backward || *found == (0..=8).map(backward).collect(),
        "{found:?}"
    );
    is_backward
}

#[test]
fn a_portable_line_store_tears_into_words() {
    // The value after the first (tag 0) goes to the second copy, with tag 1.
    let words: Vec<u64> = (0..8).map(|word| 192 + 8 * word).collect();
    let mut ends = BTreeSet::new();
    for value in 1..9 {
        let found = at_any_time(Rules::Lines, LineForm::Twin, &words, |guard| {
            publish(guard, value);
        });
        ends.insert(torn_from_one_end(&found, value | 1 << 62));
    }
    // Some values arrive from one end, some from the other.
    assert_eq!(ends, [false, true].into());
}

#[test]
fn with_persistent_caches_stores_arrive_at_once_and_in_order() {
    let program = |guard: &MediumGuard<'_, Sim>| {
        set(guard, B, 1);
        set(guard, A, 1);
        set(guard, B, 2);
    };
    let found = at_any_time(Rules::PersistentCaches, LineForm::Single, &[A, B], program);
    assert_eq!(found, outcomes([[0, 0], [0, 1], [1, 1], [1, 2]]));
}

/// Neither a flush nor a fence makes anything more durable, or less.
#[test]
fn with_persistent_caches_flushes_and_fences_change_nothing() {
    let program = |guard: &MediumGuard<'_, Sim>, asks: bool| {
        set(guard, A, 1);
        if asks {
            flush(guard, A);
            guard.fence();
        }
        set(guard, B, 1);
        if asks {
            flush(guard, A);
            guard.fence();
        }
    };
    for asks in [false, true] {
        let found = at_any_time(
            Rules::PersistentCaches,
            LineForm::Single,
            &[A, B],
            |guard| program(guard, asks),
        );
        assert_eq!(found, outcomes([[0, 0], [1, 0], [1, 1]]));
        let found = at_end_by(Rules::PersistentCaches, &[A, B], |guard| {
            program(guard, asks);
        });
        assert_eq!(found, outcomes([[1, 1]]));
    }
}

#[test]
fn with_persistent_caches_a_line_is_one_atom_and_a_twin_eight() {
    let words: Vec<u64> = (0..8).map(|word| 256 + 8 * word).collect();
    let store = |guard: &MediumGuard<'_, Sim>| publish(guard, 5);
    let found = at_any_time(Rules::PersistentCaches, LineForm::Single, &words, store);
    assert_eq!(found, outcomes([[0; 8], [5; 8]]));
    // The value after the first goes to the second copy: see the portable line store below memory
    // without such caches.
    let words: Vec<u64> = (0..8).map(|word| 192 + 8 * word).collect();
    let found = at_any_time(Rules::PersistentCaches, LineForm::Twin, &words, store);
    torn_from_one_end(&found, 5 | 1 << 62);
}

/// The content after the first crash stays, and stores of the recovery follow it, in order.
#[test]
fn with_persistent_caches_a_second_crash_keeps_what_the_first_one_left() {
    let sim = memory(LineForm::Single, false);
    let mut model = Model::new(Rules::PersistentCaches, &[], 0);
    let trace = record(&sim, |guard| set(guard, A, 1));
    trace
        .events
        .iter()
        .for_each(|event| model.apply(&sim, &trace, event));
    let (open, _) = model.open_lines(&sim);
    assert!(open.is_empty());
    let mut second = Model::new(Rules::PersistentCaches, &open, 0);
    let trace = record(&sim, |guard| {
        set(guard, B, 2);
        set(guard, A, 3);
    });
    let mut found = contents(&sim, &mut second, &[A, B]);
    for event in &trace.events {
        second.apply(&sim, &trace, event);
        found.extend(contents(&sim, &mut second, &[A, B]));
    }
    assert_eq!(found, outcomes([[1, 0], [1, 2], [3, 2]]));
}

#[test]
fn without_them_they_do_not() {
    let program = |guard: &MediumGuard<'_, Sim>| {
        set(guard, B, 1);
        set(guard, A, 1);
    };
    let found = at_any_time(Rules::Lines, LineForm::Single, &[A, B], program);
    assert_eq!(found, outcomes([[0, 0], [0, 1], [1, 0], [1, 1]]));
}

#[test]
fn only_what_raises_a_bound_is_worth_a_crash_before_it() {
    let sim = memory(LineForm::Single, false);
    let trace = record(&sim, |guard| {
        guard.fence();
        set(guard, A, 1);
        guard.fence();
        flush(guard, A);
        guard.fence();
        guard.fence();
        sim.grow(8192).unwrap();
    });
    let mut model = Model::new(Rules::Lines, &[], 0);
    let mut raising = Vec::new();
    for event in &trace.events {
        raising.push(model.raises(event));
        model.apply(&sim, &trace, event);
    }
    assert_eq!(raising, [false, false, false, false, true, false, true]);
    assert!(matches!(trace.events[4], Event::Fence { .. }));
    assert_eq!(sim.extent().length(), 8192);
}

#[test]
fn what_recovery_read_stays_as_it_was() {
    // After a first crash A is 0 or 1; recovery has read 1, and stored 7 to the same line.
    let sim = memory(LineForm::Single, false);
    let mut model = Model::new(Rules::Lines, &[], 0);
    let trace = record(&sim, |guard| set(guard, A, 1));
    trace
        .events
        .iter()
        .for_each(|event| model.apply(&sim, &trace, event));
    let (open, _) = model.open_lines(&sim);
    for decided in [0, 1] {
        let mut second = Model::new(Rules::Lines, &open, 0);
        let mut trace = record(&sim, |guard| set(guard, A2, 7));
        trace.events.push(Event::Narrow {
            line: 1,
            word: 0,
            value: decided,
        });
        trace
            .events
            .iter()
            .for_each(|event| second.apply(&sim, &trace, event));
        assert_eq!(
            contents(&sim, &mut second, &[A, A2]),
            outcomes([[decided, 0], [decided, 7]])
        );
    }
}

/// A line with several possible contents after a crash is durable with the stores of the recovery,
/// whichever content it had.
#[test]
fn after_a_crash_a_flush_and_a_fence_make_durable_what_came_on_top_of_each_content() {
    let sim = memory(LineForm::Single, false);
    let mut model = Model::new(Rules::Lines, &[], 0);
    let trace = record(&sim, |guard| set(guard, A, 1));
    trace
        .events
        .iter()
        .for_each(|event| model.apply(&sim, &trace, event));
    let (open, _) = model.open_lines(&sim);
    let second = |is_flushed: bool| {
        let mut second = Model::new(Rules::Lines, &open, 0);
        let trace = record(&sim, |guard| {
            set(guard, A2, 7);
            if is_flushed {
                flush(guard, A);
            }
            guard.fence();
        });
        trace
            .events
            .iter()
            .for_each(|event| second.apply(&sim, &trace, event));
        contents(&sim, &mut second, &[A, A2])
    };
    assert_eq!(second(false), outcomes([[0, 0], [0, 7], [1, 0], [1, 7]]));
    assert_eq!(second(true), outcomes([[0, 7], [1, 7]]));
}

#[test]
fn in_a_log_after_a_crash_a_wait_makes_durable_what_came_on_top_of_each_content() {
    let sim = memory(LineForm::Single, true);
    let mut model = Model::new(Rules::Log, &[], 0);
    let trace = record(&sim, |guard| {
        set(guard, A, 1);
        flush(guard, A);
        guard.fence();
    });
    trace
        .events
        .iter()
        .for_each(|event| model.apply(&sim, &trace, event));
    let (open, _) = model.open_lines(&sim);
    let second = |is_awaited: bool| {
        let mut second = Model::new(Rules::Log, &open, 0);
        let trace = record(&sim, |guard| {
            set(guard, A2, 7);
            flush(guard, A);
            let lsn = guard.fence();
            if is_awaited {
                guard.wait(lsn).unwrap();
            }
        });
        trace
            .events
            .iter()
            .for_each(|event| second.apply(&sim, &trace, event));
        contents(&sim, &mut second, &[A, A2])
    };
    assert_eq!(second(false), outcomes([[0, 0], [0, 7], [1, 0], [1, 7]]));
    assert_eq!(second(true), outcomes([[0, 7], [1, 7]]));
}

/// A line is stored whole, and a word of it, with a fence between or none; by operations, or by the
/// opening of the memory.
struct TwoWays {
    fences: bool,
    while_opening: bool,
}

impl TwoWays {
    fn store(&self, sim: &Sim) -> Result<(), Complaint> {
        let guard = MediumGuard::new(sim);
        let line: &Line = guard.node(A).map_err(|bad| bad.to_string())?;
        line.publish(&guard, &LineValue::ZERO, &LineValue([1; 8]))
            .map_err(|error| error.to_string())?;
        if self.fences {
            guard.fence();
        }
        guard.words(A, 1).map_err(|bad| bad.to_string())?[0].publish(&guard, 2);
        guard.fence();
        Ok(())
    }
}

impl Subject for TwoWays {
    type Operation = ();
    type Outcome = ();
    type State = ();
    type Instance = Sim;

    fn initial(&self) {}

    fn step(&self, _state: &mut (), _operation: &()) {}

    fn open(&self, sim: &Sim) -> Result<Sim, Complaint> {
        sim.grow(4096).map_err(|error| error.to_string())?;
        let guard = MediumGuard::new(sim);
        let is_begun = guard.words(B, 1).map_err(|bad| bad.to_string())?[0].load(&guard) == 1;
        if is_begun && self.while_opening {
            self.store(sim)?;
        }
        Ok(sim.clone())
    }

    fn apply(&self, sim: &mut Sim, _operation: &()) -> Result<(), Complaint> {
        if !self.while_opening {
            self.store(sim)?;
        }
        let guard = MediumGuard::new(&*sim);
        guard.words(B, 1).map_err(|bad| bad.to_string())?[0].publish(&guard, 1);
        guard.fence();
        Ok(())
    }

    fn observe(&self, _sim: &mut Sim) -> Result<(), Complaint> {
        Ok(())
    }
}

#[test]
fn a_line_that_is_stored_in_two_ways_without_a_fence_between_is_a_violation() {
    for (fences, while_opening) in [(false, false), (false, true), (true, false), (true, true)] {
        let options = ExplorationOptions {
            limit_bytes: 4096,
            ..ExplorationOptions::default()
        };
        let verdict = Explorer::new(
            TwoWays {
                fences,
                while_opening,
            },
            options,
        )
        .unwrap()
        .explore(&[()]);
        assert_eq!(verdict.is_ok(), fences, "{fences}, {while_opening}");
        let Err(failure) = verdict else { continue };
        assert!(failure.what.contains("at least once whole"), "{failure}");
        let options = ExplorationOptions {
            limit_bytes: 4096,
            replay: Some(failure.replay()),
            ..ExplorationOptions::default()
        };
        let again = Explorer::new(
            TwoWays {
                fences,
                while_opening,
            },
            options,
        )
        .unwrap()
        .explore(&[()]);
        assert_eq!(again.unwrap_err().what, failure.what);
    }
}

#[test]
fn in_a_log_what_is_not_fenced_is_lost() {
    let found = at_end_by(Rules::Log, &[A, B], |guard| {
        set(guard, A, 1);
        flush(guard, A);
        set(guard, B, 1);
    });
    assert_eq!(found, outcomes([[0, 0]]));
}

#[test]
fn in_a_log_a_fence_makes_nothing_durable() {
    let found = at_end_by(Rules::Log, &[A], |guard| {
        set(guard, A, 1);
        flush(guard, A);
        guard.fence();
    });
    assert_eq!(found, outcomes([[0], [1]]));
}

#[test]
fn in_a_log_a_wait_makes_durable_what_was_fenced_up_to_then() {
    let found = at_end_by(Rules::Log, &[A, B, 192], |guard| {
        set(guard, A, 1);
        flush(guard, A);
        guard.fence();
        set(guard, B, 1);
        flush(guard, B);
        let lsn = guard.fence();
        set(guard, 192, 1);
        flush(guard, 192);
        guard.fence();
        guard.wait(lsn).unwrap();
    });
    assert_eq!(found, outcomes([[1, 1, 0], [1, 1, 1]]));
}

#[test]
fn in_a_log_a_wait_concerns_all_guards() {
    let found = at_end_by(Rules::Log, &[A, B], |guard| {
        let other = MediumGuard::new(guard.medium());
        set(&other, A, 1);
        flush(&other, A);
        other.fence();
        set(guard, B, 1);
        flush(guard, B);
        guard.drain().unwrap();
    });
    assert_eq!(found, outcomes([[1, 1]]));
}

#[test]
fn in_a_log_groups_arrive_in_order() {
    let found = at_end_by(Rules::Log, &[A, B], |guard| {
        set(guard, A, 1);
        flush(guard, A);
        guard.fence();
        set(guard, B, 1);
        flush(guard, B);
        guard.fence();
    });
    assert_eq!(found, outcomes([[0, 0], [1, 0], [1, 1]]));
}

#[test]
fn in_a_log_the_last_group_tears_between_lines_and_no_other_does() {
    let found = at_end_by(Rules::Log, &[A, A2, B, 192], |guard| {
        set(guard, A, 1);
        set(guard, A2, 1);
        set(guard, B, 1);
        flush(guard, A);
        flush(guard, B);
        guard.fence();
        set(guard, 192, 1);
        flush(guard, 192);
        guard.fence();
    });
    let torn = [
        [0, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 1, 0],
        [1, 1, 1, 0],
        [1, 1, 1, 1],
    ];
    assert_eq!(found, outcomes(torn));
}

#[test]
fn in_a_log_a_group_has_what_its_lines_held_at_the_fence() {
    let found = at_end_by(Rules::Log, &[A], |guard| {
        set(guard, A, 1);
        flush(guard, A);
        set(guard, A, 2);
        guard.fence();
        set(guard, A, 3);
    });
    assert_eq!(found, outcomes([[0], [2]]));
}

#[test]
fn in_a_log_a_value_may_come_back() {
    let found = at_end_by(Rules::Log, &[A, B], |guard| {
        for (a, b) in [(1, 1), (0, 2)] {
            set(guard, A, a);
            flush(guard, A);
            guard.fence();
            set(guard, B, b);
            flush(guard, B);
            guard.fence();
        }
    });
    assert_eq!(found, outcomes([[0, 0], [1, 0], [1, 1], [0, 1], [0, 2]]));
}

#[test]
fn in_a_log_only_a_wait_that_makes_something_durable_is_worth_a_crash_before_it() {
    let sim = memory(LineForm::Single, true);
    let trace = record(&sim, |guard| {
        guard.drain().unwrap();
        set(guard, A, 1);
        flush(guard, A);
        let lsn = guard.fence();
        guard.wait(lsn).unwrap();
    });
    let mut model = Model::new(Rules::Log, &[], 0);
    let mut raising = Vec::new();
    for event in &trace.events {
        raising.push(model.raises(event));
        model.apply(&sim, &trace, event);
    }
    assert_eq!(raising, [false, false, false, false, false, true]);
    assert_eq!(contents(&sim, &mut model, &[A]), outcomes([[1]]));
}

/// Whichever groups are lost, and without any wait.
#[test]
fn in_a_log_growth_is_durable_when_it_returns() {
    let sim = memory(LineForm::Single, true);
    let trace = record(&sim, |guard| {
        set(guard, A, 1);
        flush(guard, A);
        guard.fence();
        sim.grow(8192).unwrap();
    });
    assert_eq!(sim.extent().length(), 4096, "taken back with the level");
    let mut model = Model::new(Rules::Log, &[], 0);
    let lengths: Vec<u64> = trace
        .events
        .iter()
        .map(|event| {
            let raises = model.raises(event);
            model.apply(&sim, &trace, event);
            assert_eq!(raises, matches!(event, Event::Grow { .. }), "{event:?}");
            sim.extent().length()
        })
        .collect();
    assert_eq!(lengths.last(), Some(&8192));
    assert_eq!(contents(&sim, &mut model, &[A]), outcomes([[0], [1]]));
}

#[test]
fn in_a_log_a_second_crash_cuts_a_second_time() {
    // The first crash left two groups, of A and of B, wholly or in part; what recovery does then is
    // two groups more.
    let sim = memory(LineForm::Single, true);
    let mut model = Model::new(Rules::Log, &[], 0);
    let trace = record(&sim, |guard| {
        for offset in [A, B] {
            set(guard, offset, 1);
            flush(guard, offset);
            guard.fence();
        }
    });
    trace
        .events
        .iter()
        .for_each(|event| model.apply(&sim, &trace, event));
    let (open, _) = model.open_lines(&sim);
    let second = |narrowed: Option<(u32, u64)>| {
        let mut second = Model::new(Rules::Log, &open, 0);
        let mut trace = record(&sim, |guard| {
            for offset in [A2, 192] {
                set(guard, offset, 7);
                flush(guard, offset);
                guard.fence();
            }
        });
        if let Some((line, value)) = narrowed {
            trace.events.insert(
                0,
                Event::Narrow {
                    line,
                    word: 0,
                    value,
                },
            );
        }
        trace
            .events
            .iter()
            .for_each(|event| second.apply(&sim, &trace, event));
        contents(&sim, &mut second, &[A, B, A2, 192])
    };
    let all = |firsts: &[[u64; 2]]| -> BTreeSet<Vec<u64>> {
        let pair = |first: &[u64; 2]| [[0, 0], [7, 0], [7, 7]].map(|last| [*first, last].concat());
        firsts.iter().flat_map(pair).collect()
    };
    assert_eq!(second(None), all(&[[0, 0], [1, 0], [1, 1]]));
    assert_eq!(second(Some((1, 0))), all(&[[0, 0]]));
    assert_eq!(second(Some((1, 1))), all(&[[1, 0], [1, 1]]));
    assert_eq!(second(Some((2, 1))), all(&[[1, 1]]));
    assert_eq!(second(Some((2, 0))), all(&[[0, 0], [1, 0]]));
}
