//! Copies that are made while the pool is written: between any two operations of a copy the writer
//! does any step.

use parking_lot::Mutex;

use super::*;
use crate::file::backup::{CopyOutcome, CopyTarget, copy};

/// The steps that a writer does during a copy.
struct Life {
    rig: Rig,
    random: SmallRng,
    steps: &'static [Step],
    /// The writer acts at one in this many of the copy's reads and writes.
    every: u32,
    /// The number of steps that the writer does each time.
    burst: u32,
    /// How many steps are left in all. Without an end, a copy of a log that changes at every read
    /// would never end.
    left: u32,
}

impl Life {
    fn go_on(&mut self) {
        if self.left > 0 && self.random.random_ratio(1, self.every) {
            for _ in 0..self.burst {
                self.left -= 1;
                let step = self.steps[self.random.random_range(0..self.steps.len())];
                run(&mut self.rig, step, &mut self.random, 60);
            }
        }
    }
}

/// Makes a copy beside such a writer.
fn copy_beside(seed: u64, steps: &'static [Step], every: u32, burst: u32) -> CopyOutcome {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut rig = Rig::new();
    churn(&mut rig, &mut random, 10);
    // Some logs grow meanwhile.
    rig.options.log_bytes_max = rig.options.log_bytes << (seed % 3);
    rig.kill();
    let least = rig.history.len() - 1;
    let machine = Arc::clone(&rig.machine);
    let life = Arc::new(Mutex::new(Life {
        rig,
        random,
        steps,
        every,
        burst,
        left: 240,
    }));
    // Each read or write of a file is held up while the writer acts.
    let held_up = |io: Arc<dyn Io>| -> Arc<dyn Io> {
        let life = Arc::clone(&life);
        let hook = move |call| {
            if matches!(call, FileCall::Read | FileCall::Write) {
                life.lock().go_on();
            }
        };
        Arc::new(Hooked::new(io, hook).reading_parts())
    };
    let [pool, log] = [Which::Pool, Which::Log].map(|which| held_up(machine.io(which)));
    let made = Machine::new(&Image::default());
    let target = CopyTarget {
        copy: made.io(Which::Pool),
        spool: held_up(made.io(Which::Log)),
    };
    let copied = copy(&*pool, &log, &target, MARK, SIZES).unwrap();
    if matches!(copied, CopyOutcome::Whole(_)) {
        open::write_mark(&*target.copy, MARK, layout::LogMark(None)).unwrap();
        let image = Image {
            files: [made.shown().files[0].clone(), Vec::new()],
        };
        let found = reopened(&image).unwrap().1;
        let history = &life.lock().rig.history;
        let index = history.iter().rposition(|(content, _)| *content == found);
        assert!(
            index.is_some_and(|index| index >= least),
            "seed {seed}: no moment since the copy began"
        );
    }
    copied
}

#[test]
fn a_copy_is_one_moment_whatever_goes_on_meanwhile() {
    use Step::{Checkpoint, Close, Kill, Settle, Write};
    let mut whole = 0;
    let mut overrun = 0;
    let mut closed = 0;
    for seed in 0..120 {
        let (steps, every, burst): (&[Step], _, _) = match seed % 4 {
            0 => (&[Write, Settle, Checkpoint], 2, 1),
            1 => (&[Write, Settle, Settle, Checkpoint, Kill], 8, 1),
            2 => (&[Write, Write, Settle, Checkpoint, Kill, Close], 24, 1),
            _ => (&[Write, Write, Write, Settle, Checkpoint], 4, 60),
        };
        match copy_beside(seed, steps, every, burst) {
            CopyOutcome::Whole(_) => whole += 1,
            CopyOutcome::Overrun => overrun += 1,
            CopyOutcome::Closed => closed += 1,
        }
    }
    assert!(
        whole > 40 && overrun > 5 && closed > 5,
        "{whole} whole, {overrun} overrun, {closed} closed"
    );
}

#[test]
fn a_backup_beside_writers_is_one_moment() {
    let machine = Machine::new(&Image::default());
    // The log is so small that it wraps around faster than it is copied.
    let options = FileOptions {
        background: true,
        ..options()
    };
    let file = File::open(machine.io(Which::Pool), machine.io(Which::Log), options).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Of two lines the second is always one behind, or equal.
            let mut round = 0;
            while !stop.load(Ordering::Relaxed) {
                round += 1;
                for line in 0..2 {
                    let guard = MediumGuard::new(&file);
                    guard.words(HERE + 4096 * line, 1).unwrap()[0].publish(&guard, round);
                    guard.drain().unwrap();
                }
            }
        });
        for _ in 0..20 {
            let copy = Machine::new(&Image::default());
            let target = CopyTarget {
                copy: copy.io(Which::Pool),
                spool: copy.io(Which::Log),
            };
            file.backup(&target).unwrap();
            let image = Image {
                files: [copy.shown().files[0].clone(), Vec::new()],
            };
            let found = reopened(&image).unwrap().1;
            let first = found[0];
            let second = found[512];
            assert!(
                first == second || first == second + 1,
                "{first} and {second}"
            );
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn damage_in_the_middle_of_the_log_is_not_its_end() {
    let machine = Machine::new(&killed().0);
    let pool = machine.io(Which::Pool);
    let log = machine.io(Which::Log);
    let header = newest_header(&*log).header;
    let first = Log::new(Arc::clone(&log), header.clone(), LogSizes::default(), SIZES)
        .physical(header.start)
        + 20;
    let mut byte = [0];
    assert_eq!(log.read(&mut byte, first).unwrap(), 1);
    assert_eq!(log.write(&[byte[0] ^ 1], first).unwrap(), 1);
    let made = Machine::new(&Image::default());
    let target = CopyTarget {
        copy: made.io(Which::Pool),
        spool: made.io(Which::Log),
    };
    let copied = copy(&*pool, &log, &target, MARK, SIZES);
    assert!(
        matches!(copied, Err(LogError::Damaged { .. })),
        "{copied:?}"
    );
}

/// The image of a pool that was killed while one copy of its log's header was written.
fn killed_at_its_header() -> Image {
    let mut image = killed().0;
    let log = Machine::new(&image).io(Which::Log);
    let newest = newest_header(&*log).header;
    let other = layout::HEADERS
        .into_iter()
        .find(|place| *place != newest.place())
        .unwrap();
    image.files[1][other as usize + 20] ^= 1;
    image
}

fn copied_beside(machine: &Arc<Machine>, log: &Arc<dyn Io>) -> Result<CopyOutcome, LogError> {
    let made = Machine::new(&Image::default());
    let target = CopyTarget {
        copy: made.io(Which::Pool),
        spool: made.io(Which::Log),
    };
    copy(&*machine.io(Which::Pool), log, &target, MARK, SIZES)
}

/// Nothing is damaged: the process that opens such a pool writes both copies of the header, but
/// only after it has read the log.
#[test]
fn a_header_that_is_about_to_be_written_again_is_no_damage() {
    let machine = Machine::new(&killed_at_its_header());
    let copied = copied_beside(&machine, &machine.io(Which::Log));
    assert!(matches!(copied, Err(LogError::Unsettled)), "{copied:?}");
}

#[test]
fn a_copy_waits_for_the_process_that_recovers_the_pool() {
    let machine = Machine::new(&killed_at_its_header());
    let recovered = Arc::clone(&machine);
    let reads = std::sync::atomic::AtomicU32::new(0);
    let hook = move |call| {
        if call == FileCall::Read && reads.fetch_add(1, Ordering::Relaxed) == 210 {
            open(&recovered).unwrap();
        }
    };
    let log: Arc<dyn Io> = Arc::new(Hooked::new(machine.io(Which::Log), hook));
    let copied = copied_beside(&machine, &log);
    assert!(matches!(copied, Ok(CopyOutcome::Whole(_))), "{copied:?}");
}
