use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::{
    Chooser, Decision, Event, Mark, Mutation, OpenLine, Sim, SimOptions, SiteKind,
    StepLimitExceeded, Trace, VOLATILE_LEFT, Worlds,
};
use crate::{Line, LineForm, LineValue, Medium, MediumGuard, VolatileWord};

fn sim() -> Sim {
    let sim = Sim::new(SimOptions::default()).unwrap();
    sim.grow(4096).unwrap();
    sim
}

fn word(sim: &Sim, offset: u64) -> u64 {
    let guard = MediumGuard::new(sim);
    guard.words(offset, 1).unwrap()[0].load(&guard)
}

fn store(sim: &Sim, offset: u64, value: u64) {
    let guard = MediumGuard::new(sim);
    guard.words(offset, 1).unwrap()[0].store(&guard, value);
}

/// Line, word and values of each decision.
type Asked = Arc<Mutex<Vec<(u32, usize, Vec<u64>)>>>;

/// Takes the values at these indices, then the newest; keeps what it was asked.
struct Script {
    choices: Vec<usize>,
    asked: Asked,
}

impl Chooser for Script {
    fn choose(&mut self, decision: &Decision<'_>) -> usize {
        let mut asked = self.asked.lock().unwrap();
        asked.push((decision.line, decision.word, decision.values.to_vec()));
        self.choices
            .get(asked.len() - 1)
            .copied()
            .unwrap_or(decision.newest)
    }
}

#[test]
fn everything_is_recorded_with_its_place() {
    let sim = sim();
    store(&sim, 64, 1);
    sim.set_recording(true);
    let guard = MediumGuard::new(&sim);
    sim.mark(Mark::Invoke(7));
    let words = guard.words(120, 2).unwrap();
    let here = line!() + 1;
    words[0].publish(&guard, 5);
    assert_eq!(words[1].compare_exchange(&guard, 9, 6), Err(0));
    guard.flush_words(words);
    guard.fence();
    let line: &Line = guard.node(256).unwrap();
    line.publish(&guard, &LineValue::ZERO, &LineValue([4; 8]))
        .unwrap();
    sim.grow(8192).unwrap();
    let mut trace = Trace::default();
    sim.swap_trace(&mut trace);
    let site = trace.events[1].site().unwrap().1;
    assert_eq!(
        (site.file.ends_with("sim/tests.rs"), site.line),
        (true, here)
    );
    assert_eq!(trace.events[2].site().unwrap(), (SiteKind::Flush, site));
    assert!(matches!(trace.events[0], Event::Mark(Mark::Invoke(7))));
    assert!(matches!(
        trace.events[1],
        Event::Store {
            word: 15,
            value: 5,
            ..
        }
    ));
    assert!(matches!(
        trace.events[3],
        Event::Flush {
            line: 1,
            count: 2,
            ..
        }
    ));
    assert!(matches!(trace.events[4], Event::Fence { .. }));
    assert!(matches!(
        trace.events[5],
        Event::StoreLine {
            line: 4,
            value: 0,
            ..
        }
    ));
    assert!(matches!(
        trace.events[6],
        Event::Flush {
            line: 4,
            count: 1,
            ..
        }
    ));
    assert!(matches!(trace.events[7], Event::Grow { length: 8192 }));
    assert_eq!((trace.events.len(), trace.line_values.len()), (8, 1));
}

#[test]
fn flushes_belong_to_their_guard() {
    let sim = sim();
    sim.set_recording(true);
    for _ in 0..2 {
        let guard = MediumGuard::new(&sim);
        guard.words(64, 1).unwrap()[0].publish(&guard, 1);
        guard.fence();
    }
    let mut trace = Trace::default();
    sim.swap_trace(&mut trace);
    let notes: Vec<u64> = trace
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Flush { notes, .. } | Event::Fence { notes, .. } => Some(*notes),
            _ => None,
        })
        .collect();
    assert!(notes[0] == notes[1] && notes[2] == notes[3] && notes[0] != notes[2]);
}

#[test]
fn levels_are_taken_back_one_by_one() {
    let sim = sim();
    store(&sim, 64, 1);
    sim.push_level();
    store(&sim, 64, 2);
    sim.push_level();
    store(&sim, 64, 3);
    store(&sim, 128, 3);
    sim.grow(1 << 16).unwrap();
    sim.rollback();
    assert_eq!(
        [word(&sim, 64), word(&sim, 128), sim.extent().length()],
        [2, 0, 4096]
    );
    store(&sim, 64, 4);
    sim.poke(2, &LineValue([5; 8]));
    assert_eq!([word(&sim, 64), word(&sim, 128)], [4, 5]);
    sim.pop_level();
    assert_eq!([word(&sim, 64), word(&sim, 128)], [2, 0]);
    sim.pop_level();
    assert_eq!(word(&sim, 64), 1);
}

/// Line 2 holds one of four contents, in two words: (0, 0), (1, 0), (1, 1), (0, 2).
fn install(sim: &Sim, choices: Vec<usize>) -> Asked {
    let content = |first, second| LineValue([first, second, 9, 9, 9, 9, 9, 9]);
    let candidates = vec![content(0, 0), content(1, 0), content(1, 1), content(0, 2)];
    sim.install(vec![OpenLine {
        line: 2,
        candidates,
        newest: 3,
        worlds: Vec::new(),
    }]);
    let asked = Arc::new(Mutex::new(Vec::new()));
    sim.set_chooser(Some(Box::new(Script {
        choices,
        asked: Arc::clone(&asked),
    })));
    asked
}

#[test]
fn loads_of_open_lines_decide_and_narrow() {
    let sim = sim();
    sim.push_level();
    let asked = install(&sim, vec![1]);
    assert_eq!(word(&sim, 144), 9);
    assert!(asked.lock().unwrap().is_empty());
    assert_eq!(
        [word(&sim, 128), word(&sim, 136), word(&sim, 128)],
        [1, 1, 1]
    );
    assert_eq!(
        *asked.lock().unwrap(),
        [(2, 0, vec![0, 1]), (2, 1, vec![0, 1])]
    );
    assert_eq!(
        sim.peek(2).unwrap().0[..3],
        [1, 1, 9],
        "memory holds what was decided"
    );
    sim.rollback();
    asked.lock().unwrap().clear();
    // The newest content has the value that the oldest one has, too.
    let asked = install(&sim, vec![0, 1]);
    assert_eq!([word(&sim, 128), word(&sim, 136)], [0, 2]);
    assert_eq!(
        *asked.lock().unwrap(),
        [(2, 0, vec![0, 1]), (2, 1, vec![0, 2])]
    );
    assert_eq!(sim.uninstall().len(), 1);
    sim.pop_level();
    assert_eq!([word(&sim, 128), word(&sim, 144)], [0, 0]);
}

#[test]
fn a_stored_word_of_an_open_line_needs_no_decision() {
    let sim = sim();
    sim.push_level();
    let asked = install(&sim, vec![]);
    sim.set_recording(true);
    store(&sim, 128, 77);
    assert_eq!(word(&sim, 128), 77);
    assert!(asked.lock().unwrap().is_empty());
    let guard = MediumGuard::new(&sim);
    // The comparison reads; the newest content has 2.
    assert_eq!(
        guard.words(136, 1).unwrap()[0].compare_exchange(&guard, 2, 8),
        Ok(2)
    );
    assert_eq!(asked.lock().unwrap().len(), 1);
    let mut trace = Trace::default();
    sim.swap_trace(&mut trace);
    assert!(matches!(
        trace.events[1],
        Event::Narrow {
            line: 2,
            word: 1,
            value: 2
        }
    ));
    sim.rollback();
    assert_eq!(word(&sim, 128), 0);
}

#[test]
fn mutations_drop_what_is_called_from_their_site() {
    let sim = sim();
    sim.start_census();
    sim.set_recording(true);
    let run = || {
        let guard = MediumGuard::new(&sim);
        guard.words(64, 1).unwrap()[0].publish(&guard, 1);
        guard.fence();
        let mut trace = Trace::default();
        sim.swap_trace(&mut trace);
        trace
            .events
            .iter()
            .map(|event| event.site().unwrap().0)
            .collect::<Vec<_>>()
    };
    assert_eq!(run(), [SiteKind::Store, SiteKind::Flush, SiteKind::Fence]);
    let census = sim.census();
    let site = |wanted| census.keys().find(|(kind, _)| *kind == wanted).unwrap().1;
    sim.set_mutations(vec![Mutation::DropFlush(site(SiteKind::Flush))]);
    assert_eq!(run(), [SiteKind::Store, SiteKind::Fence]);
    sim.set_mutations(vec![
        Mutation::DropFence(site(SiteKind::Fence)),
        Mutation::DropStore(site(SiteKind::Store)),
    ]);
    assert_eq!(run(), [SiteKind::Flush]);
    assert_eq!(word(&sim, 64), 1);
}

#[test]
fn a_loop_runs_into_the_step_limit() {
    let sim = sim();
    sim.set_step_limit(1000);
    let ended = catch_unwind(AssertUnwindSafe(|| while word(&sim, 64) == 0 {}));
    assert!(ended.unwrap_err().is::<StepLimitExceeded>());
    sim.set_step_limit(u64::MAX);
    assert_eq!(word(&sim, 64), 0);
}

#[test]
fn twin_lines_are_stored_as_words() {
    let options = SimOptions {
        line_form: LineForm::Twin,
        ..SimOptions::default()
    };
    let sim = Sim::new(options).unwrap();
    sim.grow(4096).unwrap();
    let guard = MediumGuard::new(&sim);
    let line: &Line = guard.node(128).unwrap();
    let first = line.init(&guard, &LineValue::ZERO);
    sim.set_recording(true);
    line.publish(&guard, &first, &LineValue([1; 8])).unwrap();
    let mut trace = Trace::default();
    sim.swap_trace(&mut trace);
    assert_eq!(
        trace
            .events
            .iter()
            .filter(|event| matches!(event, Event::Store { .. }))
            .count(),
        8
    );
}

#[test]
fn a_late_one_is_durable_when_somebody_has_waited() {
    let sim = Sim::new(SimOptions {
        late: true,
        ..SimOptions::default()
    })
    .unwrap();
    sim.grow(4096).unwrap();
    sim.set_recording(true);
    let guard = MediumGuard::new(&sim);
    guard.words(64, 1).unwrap()[0].publish(&guard, 1);
    let first = guard.fence();
    let second = guard.fence();
    assert!(first < second && sim.durable() < first);
    guard.wait(first).unwrap();
    guard.wait(first).unwrap();
    assert_eq!(sim.durable(), first);
    let waits = |sim: &Sim| {
        let mut trace = Trace::default();
        sim.swap_trace(&mut trace);
        trace
            .events
            .iter()
            .filter(|event| matches!(event, Event::Wait { .. }))
            .count()
    };
    assert_eq!(waits(&sim), 1);
    assert!(guard.wait(crate::Lsn(second.0 + 1)).is_err());
    // A medium that is not late makes writes durable at the fence, and waits for nothing.
    let sim = self::sim();
    sim.set_recording(true);
    MediumGuard::new(&sim).drain().unwrap();
    assert_eq!((waits(&sim), sim.durable()), (0, crate::Lsn::DURABLE));
}

#[test]
fn what_one_line_holds_excludes_worlds_of_another() {
    let sim = sim();
    sim.push_level();
    let content = |value: u64| LineValue([value; 8]);
    // Worlds 0, 1, 2: a log of two groups that was cut before the first, between them, or not at
    // all.
    let line = |line: u32, cut: usize| OpenLine {
        line,
        candidates: vec![content(0), content(1)],
        newest: 1,
        worlds: vec![Worlds::range(0, cut), Worlds::range(cut, 3)],
    };
    for (choices, found) in [(vec![0], [0, 0]), (vec![1], [1, 1]), (vec![1, 0], [1, 0])] {
        // If the later line is loaded first and is new, the earlier line must be new, too, and no
        // decision is left.
        let later_first = choices.len() == 1;
        sim.install(vec![line(2, 1), line(3, 2)]);
        let asked = Arc::new(Mutex::new(Vec::new()));
        sim.set_chooser(Some(Box::new(Script {
            choices: choices.clone(),
            asked: Arc::clone(&asked),
        })));
        if later_first && choices[0] == 1 {
            assert_eq!([word(&sim, 192), word(&sim, 128)], found);
        } else {
            assert_eq!([word(&sim, 128), word(&sim, 192)], found);
        }
        assert_eq!(asked.lock().unwrap().len(), choices.len());
        sim.rollback();
    }
    sim.uninstall();
    sim.pop_level();
}

#[test]
fn fresh_memory_may_hold_rubbish() {
    let sim = Sim::new(SimOptions {
        rubbish_from: Some(128),
        ..SimOptions::default()
    })
    .unwrap();
    assert_eq!(sim.extent().length(), 0);
    for length in [4096, 8192] {
        sim.push_level();
        sim.grow(length).unwrap();
        assert_eq!([word(&sim, 0), word(&sim, 120)], [0; 2]);
        let last = length - 8;
        assert!(
            word(&sim, 128) != 0
                && word(&sim, last) != 0
                && word(&sim, last) != word(&sim, last - 8)
        );
        let before = word(&sim, last);
        store(&sim, last, 1);
        sim.pop_level();
        sim.grow(length).unwrap();
        assert_eq!(word(&sim, last), before);
    }
}

/// The word of one image may be a node's lock in another.
#[test]
fn what_is_volatile_is_taken_back_from_its_start_on_and_means_nothing_in_an_image() {
    let sim = sim();
    store(&sim, 72, 7);
    sim.push_level();
    sim.set_recording(true);
    let guard = MediumGuard::new(&sim);
    let lock: &VolatileWord = guard.node(72).unwrap();
    let work = |value| {
        lock.start(&guard, 0);
        lock.store(&guard, value, Ordering::Relaxed);
        store(&sim, 64, 3);
    };
    work(5);
    sim.rollback();
    assert_eq!((word(&sim, 64), word(&sim, 72)), (0, 7));
    let mut trace = Trace::default();
    sim.swap_trace(&mut trace);
    assert!(matches!(
        trace.events[0],
        Event::Store {
            word: 9,
            value: VOLATILE_LEFT,
            ..
        }
    ));
    // This also holds if a fault leaves the start out.
    sim.set_mutations(vec![Mutation::DropStore(trace.events[0].site().unwrap().1)]);
    work(6);
    sim.pop_level();
    assert_eq!((word(&sim, 64), word(&sim, 72)), (0, 7));
}
