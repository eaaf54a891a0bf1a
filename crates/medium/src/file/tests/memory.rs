//! Written pages that are given back to the system.

use super::pages::PAGE_BYTES;
use super::*;
use crate::testing::mutant::{Mutant, plant};
use crate::{VolatileWord, Word};

/// Options with the least limit, so that pages are given back from the first one on.
fn limited() -> FileOptions {
    FileOptions {
        private_bytes_max: PAGE_BYTES,
        ..options()
    }
}

fn word<'g>(guard: &'g MediumGuard<'_, File>, index: u64) -> &'g Word {
    guard.node(HERE + index * 8).unwrap()
}

fn publish(file: &File, index: u64, value: u64) -> Lsn {
    let guard = MediumGuard::new(file);
    word(&guard, index).publish(&guard, value);
    guard.fence()
}

fn load(file: &File, index: u64) -> u64 {
    let guard = MediumGuard::new(file);
    word(&guard, index).load(&guard)
}

/// The pages of the pool that the system keeps for this process alone, by its page map.
fn private_pages(file: &File) -> u64 {
    const PRESENT: u64 = 1 << 63;
    const OF_A_FILE: u64 = 1 << 61;
    let map = std::fs::File::open("/proc/self/pagemap").unwrap();
    let base = file.extent().base().addr() as u64;
    let pages = file.extent().length() / PAGE_BYTES;
    let mut bytes = vec![0; pages as usize * 8];
    std::os::unix::fs::FileExt::read_exact_at(&map, &mut bytes, base / PAGE_BYTES * 8).unwrap();
    let entries = bytes
        .as_chunks()
        .0
        .iter()
        .map(|entry| u64::from_le_bytes(*entry));
    entries
        .filter(|entry| entry & PRESENT != 0 && entry & OF_A_FILE == 0)
        .count() as u64
}

#[test]
fn a_pool_that_gives_pages_back_loses_nothing() {
    for seed in 0..12 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut rig = Rig::new();
        rig.options.private_bytes_max = PAGE_BYTES;
        rig.kill();
        let from = rig.machine.now();
        for _ in 0..8 {
            churn(&mut rig, &mut random, 5);
            if random.random() {
                rig.file().core.give_back().unwrap();
                assert_eq!(rig.file().stat().private_bytes, 0, "seed {seed}");
            } else {
                rig.file().core.give_back_pages();
            }
            assert!(
                content(rig.file()) == rig.history.last().unwrap().0,
                "seed {seed}"
            );
        }
        rig.verify(
            from.max(rig.machine.now() - 40),
            [64, 512][seed as usize % 2],
            4,
            &mut random,
            &seed,
        );
    }
}

/// A count by the page map of the system, and what a writer beyond the limit does without a thread
/// in the background.
#[test]
fn the_pages_that_are_counted_are_those_that_are_private() {
    let machine = Machine::new(&Image::default());
    let options = FileOptions {
        private_bytes_max: 32 * PAGE_BYTES,
        ..options()
    };
    let file = open_with(&machine, options).unwrap();
    file.grow(64 * PAGE_BYTES).unwrap();
    let first = 16 * PAGE_BYTES;
    for page in 0..40 {
        publish(&file, (first + page * PAGE_BYTES - HERE) / 8, page + 1);
    }
    let pages = private_pages(&file);
    assert_eq!(file.stat().private_bytes, pages * PAGE_BYTES);
    file.await_memory().unwrap();
    assert_eq!(
        (file.stat().private_bytes, private_pages(&file)),
        (0, 0),
        "of {pages}"
    );
    assert!((0..40).all(|page| load(&file, (first + page * PAGE_BYTES - HERE) / 8) == page + 1));
}

/// Memory that the pool had before it was large enough to give pages back is not mapped from the
/// file.
#[test]
fn what_was_there_before_the_pool_was_large_stays() {
    let machine = Machine::new(&Image::default());
    let options = FileOptions {
        private_bytes_max: 64 * PAGE_BYTES,
        ..options()
    };
    let file = open_with(&machine, options).unwrap();
    file.grow(32 * PAGE_BYTES).unwrap();
    let last = (32 * PAGE_BYTES - HERE) / 8 - 1;
    publish(&file, last, 7);
    file.grow(96 * PAGE_BYTES).unwrap();
    publish(&file, last + 1, 8);
    file.core.give_back().unwrap();
    assert_eq!((load(&file, last), load(&file, last + 1)), (7, 8));
    assert_eq!(
        (file.stat().private_bytes, file.stat().given_back_bytes),
        (PAGE_BYTES, PAGE_BYTES)
    );
}

#[test]
fn what_nobody_flushed_stays() {
    let machine = Machine::new(&Image::default());
    let file = open_with(&machine, limited()).unwrap();
    {
        let guard = MediumGuard::new(&file);
        word(&guard, 3).store(&guard, 5);
        let lock: &VolatileWord = guard.node(HERE + 8 * 600).unwrap();
        lock.start(&guard, 1);
        lock.store(&guard, 2, Ordering::Relaxed);
        lock.compare_exchange(&guard, 2, 6, Ordering::Relaxed)
            .unwrap();
    }
    file.core.give_back_pages();
    assert_eq!((load(&file, 3), load(&file, 600)), (5, 6));
    file.core.give_back().unwrap();
    assert_eq!(
        (load(&file, 3), load(&file, 600), file.stat().private_bytes),
        (5, 6, 0)
    );
}

/// The lines of a log may take more memory than there is, so an open writes them to the file.
#[test]
fn an_open_of_a_large_pool_writes_its_log_back() {
    let mut rig = Rig::new();
    for round in 0..6 {
        rig.write(round, 60);
    }
    rig.settle();
    rig.options.private_bytes_max = PAGE_BYTES;
    rig.kill();
    let stat = rig.file().stat();
    assert!(
        stat.replay.lines >= 360 && stat.log_used_bytes == 0 && stat.private_bytes == 0,
        "{stat:?}"
    );
}

/// Lets two threads store and load while a third one gives `pages` pages back, or until a store is
/// lost. Returns whether one was.
fn loses_a_store(planted: Option<Mutant>, pages: u64) -> bool {
    let machine = Machine::new(&Image::default());
    let file = open_with(&machine, limited()).unwrap();
    let is_over = AtomicBool::new(false);
    let is_lost = AtomicBool::new(false);
    let writer = |first: u64| {
        let guard = MediumGuard::new(&file);
        for index in (first..first + 16).cycle() {
            // Two values, so that the page often equals the file.
            let value = word(&guard, index).load(&guard);
            word(&guard, index).store(&guard, 1 - value);
            (0..100).for_each(|_| std::hint::spin_loop());
            if word(&guard, index).load(&guard) != 1 - value {
                is_lost.store(true, Ordering::Relaxed);
            }
            if is_over.load(Ordering::Relaxed) {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for index in [0, 300] {
            let writer = &writer;
            scope.spawn(move || writer(index));
        }
        plant(planted);
        while file.stat().given_back_bytes < pages * PAGE_BYTES && !is_lost.load(Ordering::Relaxed)
        {
            file.core.give_back().unwrap();
        }
        plant(None);
        is_over.store(true, Ordering::Relaxed);
    });
    is_lost.into_inner()
}

#[test]
fn stores_beside_a_thread_that_gives_pages_back_are_kept() {
    assert!(!loses_a_store(None, 40));
    // The loss is usually noticed after a few pages, but later if other tests take the processors.
    assert!(
        loses_a_store(Some(Mutant::StoresGoOn), 4000),
        "nobody needs the locks of lines"
    );
}

type Hook = Box<dyn Fn(&File) + Send>;

/// A pool whose hook is called once when its file is read, after the test has set it.
fn with_hook() -> (Arc<File>, impl Fn(Hook)) {
    let machine = Machine::new(&Image::default());
    let hook = Arc::new(Mutex::new(None::<(Arc<File>, Hook)>));
    let call = {
        let hook = Arc::clone(&hook);
        move |call| {
            let hook = if call == FileCall::Read {
                hook.lock().take()
            } else {
                None
            };
            if let Some((file, run)) = hook {
                run(&file);
            }
        }
    };
    let pool = Arc::new(Hooked::new(machine.io(Which::Pool), call));
    let file = Arc::new(File::open(pool, machine.io(Which::Log), limited()).unwrap());
    let own = Arc::clone(&file);
    (file, move |run| {
        *hook.lock() = Some((Arc::clone(&own), run));
    })
}

fn with_planted(mutant: Mutant, is_planted: bool, call: impl FnOnce()) {
    plant(is_planted.then_some(mutant));
    call();
    plant(None);
}

/// The pool holds 1, also in its file. Then 2 and 1 are appended, and 2 is checkpointed after the
/// page was perhaps given back.
fn shows_an_older_value(mutant: Mutant, is_planted: bool, when: When) -> bool {
    let (file, set_hook) = with_hook();
    file.settle(publish(&file, 0, 1)).unwrap();
    file.checkpoint().unwrap();
    let change = |file: &File| {
        file.wait(publish(file, 0, 2)).unwrap();
        publish(file, 0, 1);
    };
    match when {
        When::Before => change(&file),
        When::FileWasRead => set_hook(Box::new(change)),
    }
    with_planted(mutant, is_planted, || drop(file.core.give_back_pages()));
    file.checkpoint().unwrap();
    load(&file, 0) != 1
}

/// A moment in a thread that gives pages back.
#[derive(Clone, Copy)]
enum When {
    Before,
    FileWasRead,
}

#[test]
fn a_page_whose_lines_are_not_checkpointed_stays() {
    for (mutant, when) in [
        (Mutant::EqualIsEnough, When::Before),
        (Mutant::LookedAtOnce, When::FileWasRead),
    ] {
        assert!(!shows_an_older_value(mutant, false, when));
        assert!(
            shows_an_older_value(mutant, true, when),
            "{mutant:?} harms nobody"
        );
    }
}

/// A unit is released. While its page is given back, a checkpoint punches it; it is taken into use
/// again, and gets the content that it had in the file when that was read.
fn loses_what_was_punched(is_planted: bool) -> bool {
    const UNIT: u64 = 2 * crate::RELEASE_BYTES;
    const INDEX: u64 = (UNIT - HERE) / 8;
    let (file, set_hook) = with_hook();
    file.grow(4 * crate::RELEASE_BYTES).unwrap();
    file.settle(publish(&file, INDEX, 7)).unwrap();
    file.checkpoint().unwrap();
    file.release(UNIT, crate::RELEASE_BYTES);
    set_hook(Box::new(|file| {
        if file.core.checkpointing.try_lock().is_none() {
            return;
        }
        file.checkpoint().unwrap();
        assert!(file.is_hole(UNIT));
        file.reserve(UNIT, crate::RELEASE_BYTES).unwrap();
        let guard = MediumGuard::new(file);
        word(&guard, INDEX).store(&guard, 7);
    }));
    with_planted(Mutant::GivenBackAnytime, is_planted, || {
        drop(file.core.give_back_pages());
    });
    load(&file, INDEX) != 7
}

#[test]
fn the_file_does_not_change_while_a_page_is_given_back() {
    assert!(!loses_what_was_punched(false));
    assert!(loses_what_was_punched(true), "checkpoints may go on");
}

/// The content of a released unit is not needed, so its pages are given back without a line in the
/// log.
#[test]
fn a_unit_that_is_punched_takes_no_memory() {
    let machine = Machine::new(&Image::default());
    let file = open_with(&machine, limited()).unwrap();
    file.grow(4 * crate::RELEASE_BYTES).unwrap();
    let first = (2 * crate::RELEASE_BYTES - HERE) / 8;
    publish(&file, first, 1);
    let guard = MediumGuard::new(&file);
    word(&guard, first + 1024).store(&guard, 5);
    file.release(2 * crate::RELEASE_BYTES, crate::RELEASE_BYTES);
    file.settle(Lsn(file.core.end())).unwrap();
    file.checkpoint().unwrap();
    assert!(file.is_hole(2 * crate::RELEASE_BYTES));
    assert_eq!((file.stat().private_bytes, private_pages(&file)), (0, 0));
    // Stores to the unit after it was taken into use again stay.
    file.reserve(2 * crate::RELEASE_BYTES, crate::RELEASE_BYTES)
        .unwrap();
    word(&guard, first + 1024).store(&guard, 6);
    file.core.give_back().unwrap();
    assert_eq!(load(&file, first + 1024), 6);
}
