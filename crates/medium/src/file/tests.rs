//! The file medium on a machine whose power fails: append, group commit, checkpoint, recycling,
//! replay.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::log::{FoundHeader, LogSizes, NewestHeader};
use super::*;
use crate::testing::faulty::{Faults, Image, Machine, Which};
use crate::testing::{FileCall, Hooked, stride};
use crate::{Dax, LINE_BYTES, MediumGuard};

mod backup;
mod damage;
mod deaths;
mod faults;
mod memory;
mod mutants;
mod places;
mod released;
mod syncs;
mod views;

const MARK: u64 = 0x2040;
/// Where the tests write: in lines behind the mark's line.
const HERE: u64 = 0x4000;
const WORDS: usize = 2048;

/// The newer whole header of a log that has one.
fn newest_header(log: &dyn Io) -> NewestHeader {
    match Log::read_header(log).unwrap() {
        FoundHeader::Newest(newest) => newest,
        FoundHeader::None(reason) => panic!("no header: {reason:?}"),
    }
}

impl File {
    /// Where everything appended so far ends.
    fn end(&self) -> Lsn {
        Lsn(self.core.end())
    }

    fn checkpoint(&self) -> Result<(), MediumError> {
        self.core.checkpoint()
    }

    /// Makes all appended groups durable, and records in the log that they are: damage to them is
    /// then told from a torn tail.
    fn seal(&self) -> Result<(), MediumError> {
        self.core.settle(self.core.end())?;
        self.core.settle(self.core.seal())
    }
}

/// Sizes as small as the logs of these tests.
const SIZES: Sizes = Sizes {
    window_bytes: 8 << 10,
    fill_ahead_bytes: 512 << 10,
    look_bytes: 128 << 10,
    part_bytes: 4096,
    header_patience: Duration::from_secs(1),
};

fn options() -> FileOptions {
    FileOptions {
        log_bytes: 64 << 10,
        log_bytes_max: 64 << 10,
        mark_offset: MARK,
        background: false,
        sizes: SIZES,
        ..FileOptions::default()
    }
}

fn open(machine: &Arc<Machine>) -> Result<File, MediumError> {
    open_with(machine, options())
}

fn open_with(machine: &Arc<Machine>, options: FileOptions) -> Result<File, MediumError> {
    let is_new = machine.now() == 0 && machine.shown() == Image::default();
    let open = if is_new {
        File::open_with_fresh_log
    } else {
        File::open
    };
    open(machine.io(Which::Pool), machine.io(Which::Log), options)
}

type Content = Vec<u64>;

fn content(file: &File) -> Content {
    content_of(file).unwrap()
}

fn content_of(medium: &impl Medium) -> Option<Content> {
    let guard = MediumGuard::new(medium);
    Some(
        guard
            .words(HERE, WORDS)
            .ok()?
            .iter()
            .map(|word| word.load(&guard))
            .collect(),
    )
}

/// The image that an open for reading finds.
fn image_of(machine: &Arc<Machine>, options: FileOptions) -> Result<Dax, MediumError> {
    File::image_on(
        &*machine.io(Which::Pool),
        Some(machine.io(Which::Log)),
        options,
        false,
    )
}

/// A medium, and the contents that it may have after a crash.
struct Rig {
    machine: Arc<Machine>,
    options: FileOptions,
    file: Option<File>,
    /// The content after each fence, the first being zeros; and its LSN in the file that is open
    /// now.
    history: Vec<(Content, Lsn)>,
    /// Pairs of a moment and the entry of the history that is acknowledged from this moment on.
    acknowledged: Vec<(usize, usize)>,
    next: u64,
    /// Whether to write also to the end of the pool, wherever that is: the next open must find the
    /// pool this long.
    far: bool,
}

impl Rig {
    fn new() -> Self {
        Self::on(Machine::new(&Image::default()))
    }

    fn on(machine: Arc<Machine>) -> Self {
        let file = Some(open(&machine).unwrap());
        let history = vec![(vec![0; WORDS], Lsn::DURABLE)];
        Self {
            machine,
            options: options(),
            file,
            history,
            acknowledged: vec![(0, 0)],
            next: 1,
            far: false,
        }
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("open")
    }

    /// Writes one word into each of `lines` lines from line `first` on, as one group.
    fn write(&mut self, first: usize, lines: usize) {
        let mut content = self.history.last().unwrap().0.clone();
        let file = self.file();
        let guard = MediumGuard::new(file);
        let words = guard.words(HERE, WORDS).unwrap();
        for line in first..first + lines {
            let index = line * 8 % WORDS + (self.next % 8) as usize;
            words[index].publish(&guard, self.next);
            content[index] = self.next;
        }
        if self.far {
            let last = file.extent().length() - LINE_BYTES as u64;
            guard.words(last, 1).unwrap()[0].publish(&guard, self.next);
        }
        let lsn = guard.fence();
        drop(guard);
        self.history.push((content, lsn));
        self.next += 1;
    }

    fn settle(&mut self) {
        let lsn = self.history.last().unwrap().1;
        self.file().settle(lsn).unwrap();
        self.acknowledged
            .push((self.machine.now(), self.history.len() - 1));
    }

    /// The process ends without a close, and another one opens the files. It finds everything that
    /// was written.
    fn kill(&mut self) {
        self.file = None;
        let file = open_with(&self.machine, self.options).unwrap();
        self.found(&content(&file));
        self.file = Some(file);
        // Everything that an open shows is durable.
        self.acknowledged
            .push((self.machine.now(), self.history.len() - 1));
    }

    /// From now on the log may grow to twice its size, that of the pool.
    fn let_the_log_grow(&mut self) {
        self.options.log_bytes_max = 4 * self.options.log_bytes;
        self.kill();
        self.file().grow(2 * self.options.log_bytes).unwrap();
    }

    /// The content that a crash left must be one of the allowed states. The history then ends with
    /// this state.
    fn found(&mut self, found: &Content) {
        let least = self.acknowledged.last().unwrap().1;
        let index = self
            .history
            .iter()
            .rposition(|(content, _)| content == found);
        let index = index
            .filter(|index| *index >= least)
            .expect("a state that was acknowledged, or later");
        self.history.truncate(index + 1);
        for (_, lsn) in &mut self.history {
            *lsn = Lsn::DURABLE;
        }
    }

    fn close(&mut self) {
        let file = self.file.take().unwrap();
        file.finish().unwrap();
        drop(file);
        self.acknowledged
            .push((self.machine.now(), self.history.len() - 1));
        self.kill();
    }

    /// Cuts the power at every moment from `from` on, in up to `limit` ways each. Nothing must be
    /// lost or torn.
    fn verify(
        &self,
        from: usize,
        piece_bytes: usize,
        limit: usize,
        random: &mut SmallRng,
        what: &dyn std::fmt::Debug,
    ) {
        if let Some(violation) = self.find_violation(from, piece_bytes, limit, random) {
            panic!("{what:?}: {violation}");
        }
    }

    /// Does the same as [`Rig::verify`], and returns the first cut that loses or tears something.
    fn find_violation(
        &self,
        from: usize,
        piece_bytes: usize,
        limit: usize,
        random: &mut SmallRng,
    ) -> Option<String> {
        for moment in from..=self.machine.now() {
            let least = self
                .acknowledged
                .iter()
                .filter(|(when, _)| *when <= moment)
                .map(|(_, index)| *index);
            let least = least.max().unwrap();
            let crash = self.machine.crash(moment, piece_bytes);
            let mut pick = SmallRng::seed_from_u64(random.random());
            for choice in crash.samples(limit, |below| pick.random_range(0..below)) {
                let image = crash.image(&choice);
                if let Err(what) = self.judge(&image, least, piece_bytes, random) {
                    let cut = format!("cut at {moment}, {piece_bytes}-byte pieces {choice:?}");
                    return Some(format!("{what}; {cut}"));
                }
            }
        }
        None
    }

    /// Opens the image that a cut left, and cuts the power again in recovery, which must find the
    /// same.
    fn judge(
        &self,
        image: &Image,
        least: usize,
        piece_bytes: usize,
        random: &mut SmallRng,
    ) -> Result<(), String> {
        let machine = Machine::new(image);
        let read = image_of(&machine, self.options);
        if machine.shown() != *image || machine.now() > 0 {
            return Err("a reader changed a file".to_owned());
        }
        let file = open_with(&machine, self.options).map_err(|error| error.to_string())?;
        let found = content(&file);
        drop(file);
        match read {
            // An open for writing makes a short file longer.
            Ok(read) if content_of(&read).is_none_or(|read| read == found) => {}
            read => return Err(format!("a reader finds another state, {read:?}")),
        }
        let may_be = |found: &Content| {
            self.history[least..]
                .iter()
                .any(|(content, _)| content == found)
        };
        if !may_be(&found) {
            return Err(format!(
                "lost or torn, at least {least} of {}",
                self.history.len()
            ));
        }
        let twice = machine.crash(random.random_range(0..=machine.now()), piece_bytes);
        for choice in twice.samples(2, |below| random.random_range(0..below)) {
            let machine = Machine::new(&twice.image(&choice));
            let file = open_with(&machine, self.options)
                .map_err(|error| format!("{error}, the second time"))?;
            let second = content(&file);
            if second != found && !may_be(&second) {
                return Err("lost or torn, the second time".to_owned());
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write,
    Settle,
    Checkpoint,
    Kill,
    Close,
    Grow,
}

const STEPS: [Step; 6] = [
    Step::Write,
    Step::Settle,
    Step::Checkpoint,
    Step::Kill,
    Step::Close,
    Step::Grow,
];

fn run(rig: &mut Rig, step: Step, random: &mut SmallRng, lines: usize) {
    match step {
        Step::Write => rig.write(random.random_range(0..64), random.random_range(1..=lines)),
        Step::Settle => rig.settle(),
        Step::Checkpoint => rig.file().checkpoint().unwrap(),
        Step::Kill => rig.kill(),
        Step::Close => rig.close(),
        Step::Grow => rig
            .file()
            .grow(rig.file().extent().length() + (1 << 16))
            .unwrap(),
    }
}

/// Every cut of every short trace, on a disk that writes pieces of `piece_bytes` whole.
fn every_cut_of_every_short_trace(piece_bytes: usize) {
    const LENGTH: u32 = 4;
    let first = 2 * usize::from(piece_bytes == 64);
    for number in (first..STEPS.len().pow(LENGTH)).step_by(stride(17)) {
        let mut random = SmallRng::seed_from_u64(number as u64);
        let steps: Vec<Step> = (0..LENGTH)
            .map(|place| STEPS[number / STEPS.len().pow(place) % STEPS.len()])
            .collect();
        let mut rig = Rig::new();
        rig.far = true;
        // The log gets groups that a cut could lose.
        rig.write(0, 3);
        rig.settle();
        let from = rig.machine.now();
        for step in &steps {
            run(&mut rig, *step, &mut random, 9);
        }
        rig.verify(from, piece_bytes, 6, &mut random, &steps);
    }
}

#[test]
fn every_cut_of_every_short_trace_is_survived_by_sectors() {
    every_cut_of_every_short_trace(512);
}

#[test]
fn every_cut_of_every_short_trace_is_survived_by_lines() {
    every_cut_of_every_short_trace(64);
}

#[test]
fn making_a_log_may_be_cut_off() {
    let mut random = SmallRng::seed_from_u64(7);
    let mut rig = Rig::new();
    rig.write(0, 1);
    rig.settle();
    rig.verify(0, 512, 64, &mut random, &"a new pool");
    rig.verify(0, 64, 64, &mut random, &"a new pool");
}

/// Groups of all sizes, of which six of the largest fill the log; now and then a sync, a
/// checkpoint, a kill.
fn churn(rig: &mut Rig, random: &mut SmallRng, steps: u32) {
    for _ in 0..steps {
        let step = if random.random_range(0..12) == 0 {
            Step::Kill
        } else {
            Step::Write
        };
        run(rig, step, random, 150);
        if random.random_range(0..3) == 0 {
            rig.settle();
        }
        if random.random_range(0..8) == 0 {
            run(rig, Step::Checkpoint, random, 1);
        }
    }
    rig.settle();
}

#[test]
fn a_log_that_is_recycled_many_times_loses_nothing() {
    for seed in 0..12 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut rig = Rig::new();
        churn(&mut rig, &mut random, 40);
        assert!(rig.history.len() > 10);
        let now = rig.machine.now();
        rig.verify(
            now.saturating_sub(40),
            [64, 512][seed as usize % 2],
            4,
            &mut random,
            &seed,
        );
    }
}

#[test]
fn a_log_that_grows_loses_nothing() {
    let mut grown = 0;
    for seed in 0..16 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut rig = Rig::new();
        // In some it grows in its first lap, in some later.
        churn(&mut rig, &mut random, 5 * seed as u32);
        rig.let_the_log_grow();
        let from = rig.machine.now();
        churn(&mut rig, &mut random, 12);
        rig.verify(from, [64, 512][seed as usize % 2], 4, &mut random, &seed);
        // The larger ring is recycled as well.
        churn(&mut rig, &mut random, 60);
        rig.kill();
        grown += u32::from(rig.file().stat().log_capacity_bytes == 2 * rig.options.log_bytes);
    }
    assert!(
        grown > 8,
        "only {grown} of 16 grew; the size of the pool is as far as they go"
    );
}

/// A burst fills the log before any checkpoint is due. The log is then empty after the checkpoint
/// that the burst waits for, and begins anew, twice as large.
#[test]
fn a_log_that_a_burst_fills_grows_and_loses_nothing() {
    for seed in 0..8 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut rig = Rig::new();
        churn(&mut rig, &mut random, 6 * seed as u32);
        rig.let_the_log_grow();
        let from = rig.machine.now();
        for round in 0..20 {
            rig.write(random.random_range(0..64), 100 + round);
        }
        rig.settle();
        assert!(rig.file().stat().log_capacity_bytes >= 2 * rig.options.log_bytes);
        rig.write(1, 1);
        rig.settle();
        rig.verify(from, [64, 512][seed as usize % 2], 4, &mut random, &seed);
        churn(&mut rig, &mut random, 20);
        rig.kill();
    }
}

#[test]
fn a_log_that_shrinks_loses_nothing() {
    for seed in 0..8 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut rig = Rig::new();
        rig.let_the_log_grow();
        while rig.file().stat().log_capacity_bytes < 2 * rig.options.log_bytes {
            churn(&mut rig, &mut random, 20);
        }
        let from = rig.machine.now();
        rig.file().core.shrink_log();
        assert_eq!(
            rig.file().stat().log_capacity_bytes,
            rig.options.log_bytes,
            "seed {seed}"
        );
        assert!(rig.machine.shown().files[1].len() as u64 <= rig.options.log_bytes + layout::RING);
        rig.write(0, 40);
        rig.settle();
        rig.verify(from, [64, 512][seed as usize % 2], 4, &mut random, &seed);
        // It is recycled, and grows again.
        churn(&mut rig, &mut random, 60);
        rig.kill();
    }
}

/// A background thread shrinks it when nothing was appended for a second.
#[test]
fn an_idle_log_shrinks() {
    let mut rig = Rig::new();
    rig.let_the_log_grow();
    churn(&mut rig, &mut SmallRng::seed_from_u64(1), 60);
    rig.options.background = true;
    rig.kill();
    assert_eq!(
        rig.file().stat().log_capacity_bytes,
        2 * rig.options.log_bytes
    );
    rig.write(0, 40);
    rig.settle();
    syncs::wait_until("the log stays large", || {
        rig.file().stat().log_capacity_bytes == rig.options.log_bytes
    });
    rig.write(0, 40);
    rig.settle();
    rig.kill();
}

/// Frames that a checkpoint has begun to read stay in place, and the checkpoint goes on to read
/// them.
#[test]
fn a_log_that_grows_beside_a_checkpoint_loses_nothing() {
    for seed in 0..8 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut rig = Rig::new();
        churn(&mut rig, &mut random, 6 * seed as u32);
        rig.let_the_log_grow();
        rig.file().checkpoint().unwrap();
        let from = rig.machine.now();
        let capacity = rig.file().stat().log_capacity_bytes;
        // This thread holds off checkpoints, as a copy of the pool does.
        let core = Arc::clone(&rig.file().core);
        let still = core.checkpointing.lock();
        while rig.file().end().0 - core.log.start() < 3 * capacity / 4 {
            rig.write(random.random_range(0..64), 40);
            rig.settle();
        }
        drop(still);
        rig.settle();
        rig.write(1, 1);
        rig.settle();
        rig.file().checkpoint().unwrap();
        rig.verify(from, [64, 512][seed as usize % 2], 4, &mut random, &seed);
        churn(&mut rig, &mut random, 20);
        rig.kill();
    }
}

#[test]
fn a_log_that_finds_no_room_to_grow_stays_as_it_is() {
    let mut rig = Rig::new();
    rig.let_the_log_grow();
    let length = rig.machine.shown().files[1].len();
    for round in 0..40 {
        rig.write(round, 100);
        // The disk has no room for new blocks, but takes writes to existing ones.
        rig.machine.set_faults(Faults {
            no_room: true,
            ..Faults::default()
        });
        rig.settle();
    }
    assert_eq!(rig.file().stat().log_capacity_bytes, 64 << 10);
    assert_eq!(
        rig.machine.shown().files[1].len(),
        length,
        "what it found of room it keeps"
    );
    rig.kill();
    assert_eq!(rig.history.len(), 41);
}

#[test]
fn a_large_group_is_several_frames_and_goes_through_a_small_log() {
    let mut rig = Rig::new();
    for _ in 0..30 {
        rig.write(0, 1200);
    }
    rig.settle();
    rig.kill();
    assert_eq!(rig.history.len(), 31);
    let stat = rig.file().stat();
    assert!(stat.replay.groups > 1 && stat.private_bytes > 0, "{stat:?}");
}

#[test]
fn short_writes_are_continued() {
    let mut rig = Rig::new();
    rig.machine.set_faults(Faults {
        short: Some(100),
        ..Faults::default()
    });
    for _ in 0..20 {
        rig.write(5, 120);
        rig.settle();
    }
    rig.kill();
    assert_eq!(rig.history.len(), 21);
    rig.close();
    assert_eq!(rig.history.len(), 21);
}

#[test]
fn growth_finds_a_full_disk_and_goes_on() {
    let mut rig = Rig::new();
    rig.machine.set_faults(Faults {
        full_from: Some(0),
        ..Faults::default()
    });
    let error = rig.file().grow(1 << 20).unwrap_err();
    assert!(
        matches!(
            error,
            MediumError::Full {
                wanted: 0x10_0000,
                ..
            }
        ),
        "{error}"
    );
    rig.machine.set_faults(Faults::default());
    rig.write(0, 1);
    rig.settle();
    rig.file().grow(1 << 20).unwrap();
    rig.write(1, 1);
    rig.settle();
    rig.verify(
        rig.machine.now(),
        512,
        8,
        &mut SmallRng::seed_from_u64(1),
        &"grown",
    );
    // The new length of the file was never synced, but the log has it.
    let crash = rig.machine.crash(rig.machine.now(), 512);
    let old = vec![0; crash.choices().len()];
    let file = open(&Machine::new(&crash.image(&old))).unwrap();
    assert_eq!(file.extent().length(), 1 << 20);
}

/// An image of a pool that was killed: some groups are checkpointed, some are in the log; all of
/// them are acknowledged and sealed.
fn killed() -> (Image, Content) {
    let mut rig = Rig::new();
    rig.write(0, 40);
    rig.settle();
    rig.file().checkpoint().unwrap();
    rig.write(7, 5);
    rig.settle();
    rig.write(9, 3);
    rig.settle();
    rig.file().seal().unwrap();
    (rig.machine.shown(), rig.history.last().unwrap().0.clone())
}

fn reopened(image: &Image) -> Result<(File, Content), LogError> {
    match open(&Machine::new(image)) {
        Ok(file) => {
            let content = content(&file);
            Ok((file, content))
        }
        Err(MediumError::Log(error)) => Err(error),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_torn_tail_and_a_stale_frame_are_no_damage() {
    let (mut image, content) = killed();
    // A frame of an earlier lap behind the end: valid, and of another position.
    let end = reopened(&image).unwrap().0.end().0 as usize + layout::RING as usize;
    let stale: Vec<u8> =
        image.files[1][layout::RING as usize..layout::RING as usize + 600].to_vec();
    image.files[1][end..end + 600].copy_from_slice(&stale);
    let (file, found) = reopened(&image).unwrap();
    assert_eq!((found, file.stat().replay.end), (content, LogEnd::Clean));
    // A new group of which half reached the disk.
    let mut rig = Rig::new();
    rig.write(0, 40);
    rig.settle();
    rig.write(0, 40);
    let lsn = rig.history.last().unwrap().1;
    rig.file().settle(lsn).unwrap();
    let mut image = rig.machine.shown();
    let torn = layout::RING as usize + lsn.0 as usize - 600;
    image.files[1][torn..].fill(0);
    let (file, found) = reopened(&image).unwrap();
    assert_eq!(
        (found, file.stat().replay.end),
        (rig.history[1].0.clone(), LogEnd::Torn)
    );
}

/// This holds however much was appended between two syncs.
#[test]
fn damage_far_before_the_frame_that_tells_of_it_is_found() {
    let mut rig = Rig::new();
    rig.options.log_bytes = 8 * SIZES.look_bytes;
    rig.options.log_bytes_max = rig.options.log_bytes;
    rig.close();
    rig.write(0, 1);
    rig.settle();
    let durable = rig.file().end().0;
    while rig.file().end().0 < durable + 2 * SIZES.look_bytes {
        rig.write(0, 200);
    }
    rig.settle();
    rig.write(0, 1);
    rig.settle();
    let mut image = rig.machine.shown();
    let place = layout::RING + durable;
    image.files[1][place as usize + 40] ^= 1;
    let error = reopened(&image).unwrap_err();
    assert!(
        matches!(error, LogError::Damaged { position, .. } if position == place),
        "{error}"
    );
}

#[test]
fn what_lies_behind_a_tear_never_comes_back() {
    let mut rig = Rig::new();
    // The second open of a log: the third one must not take the same incarnation again.
    rig.write(0, 1);
    rig.settle();
    rig.kill();
    // The rest of a block is written with zeros, so only frames that begin a block can reappear.
    let (durable, lines) = loop {
        rig.write(0, 1);
        rig.settle();
        let durable = rig.history.last().unwrap().1.0;
        let end = |lines: usize| {
            durable + (layout::FRAME_HEADER_BYTES + lines * layout::FRAME_LINE_BYTES) as u64
        };
        if let Some(lines) = (1..200).find(|lines| end(*lines).is_multiple_of(layout::BLOCK_BYTES))
        {
            break (durable as usize, lines);
        }
    };
    let acknowledged = rig.history.len() - 1;
    // Two groups under one sync, of which the disk writes only the second.
    rig.write(0, lines);
    rig.write(2, 1);
    rig.settle();
    let mut image = rig.machine.shown();
    let torn = layout::RING as usize + durable;
    image.files[1][torn..torn + 512].fill(0);
    // Another group takes the place of the first one, and is of its size.
    rig.machine = Machine::new(&image);
    rig.acknowledged = vec![(0, acknowledged)];
    rig.kill();
    assert_eq!(
        (rig.history.len() - 1, rig.file().stat().replay.end),
        (acknowledged, LogEnd::Torn)
    );
    rig.write(0, lines);
    rig.settle();
    assert!(rig.file().end().0.is_multiple_of(layout::BLOCK_BYTES));
    rig.kill();
}

#[test]
fn the_line_that_names_the_log_is_left_alone() {
    let mut rig = Rig::new();
    {
        let guard = MediumGuard::new(rig.file());
        guard.words(MARK, 8).unwrap()[0].publish(&guard, 0);
        guard.drain().unwrap();
    }
    rig.write(0, 1);
    rig.settle();
    rig.file().checkpoint().unwrap();
    rig.kill();
    assert_eq!(rig.history.len(), 2);
}

#[test]
fn pool_and_log_that_do_not_fit_are_told_apart() {
    let (image, content) = killed();
    let (other, _) = killed();
    let with_log = |log: &[u8]| Image {
        files: [image.files[0].clone(), log.to_vec()],
    };
    assert!(matches!(
        reopened(&with_log(&other.files[1])),
        Err(LogError::Foreign { .. })
    ));
    assert!(matches!(
        reopened(&with_log(&[])),
        Err(LogError::Missing { .. })
    ));
    assert!(matches!(
        reopened(&with_log(&vec![1; 20000])),
        Err(LogError::NotALog)
    ));
    let cut = &image.files[1][..image.files[1].len() - 1];
    assert!(matches!(
        reopened(&with_log(cut)),
        Err(LogError::Damaged { .. })
    ));
    // A pool that needs no log, beside a log that holds data, and beside a file of another program.
    let fresh = |log: &[u8]| Image {
        files: [Vec::new(), log.to_vec()],
    };
    assert!(matches!(
        reopened(&fresh(&image.files[1])),
        Err(LogError::Unasked { .. })
    ));
    assert!(matches!(
        reopened(&fresh(b"2026-11-21 started")),
        Err(LogError::NotALog)
    ));
    let mut short = image.clone();
    short.files[0].truncate(32 << 10);
    assert!(matches!(
        reopened(&short),
        Err(LogError::PoolTruncated { .. })
    ));
    let mut unmarked = image.clone();
    unmarked.files[0][MARK as usize + 3] ^= 1;
    // The other half of the line is intact.
    assert!(reopened(&unmarked).is_ok());
    unmarked.files[0][MARK as usize + 35] ^= 1;
    assert!(matches!(
        reopened(&unmarked),
        Err(LogError::Mark { offset: MARK })
    ));
    let mut newer = image.clone();
    for copy in layout::HEADERS {
        let copy = copy as usize..copy as usize + layout::HEADER_BYTES;
        // The version is the second word.
        newer.files[1][copy.start + 8] = 9;
        let check = crc32c::crc32c(&newer.files[1][copy.start..copy.end - 8]);
        newer.files[1][copy.end - 8..copy.end - 4].copy_from_slice(&check.to_le_bytes());
    }
    assert!(matches!(
        reopened(&newer),
        Err(LogError::Version { found: 9, .. })
    ));
    assert_eq!(reopened(&image).unwrap().1, content);
}

#[test]
fn a_clean_close_leaves_a_pool_that_needs_no_log() {
    let mut rig = Rig::new();
    rig.write(0, 10);
    let file = rig.file.take().unwrap();
    file.finish().unwrap();
    drop(file);
    let mut image = rig.machine.shown();
    image.files[1].clear();
    assert_eq!(reopened(&image).unwrap().1, rig.history[1].0);
}

#[test]
fn a_log_tells_of_its_last_checkpoint_and_of_its_syncs_to_the_next_open() {
    let mut rig = Rig::new();
    for _ in 0..3 {
        rig.write(0, 5);
        rig.write(5, 5);
        rig.settle();
    }
    rig.kill();
    let stat = rig.file().stat();
    assert_eq!(
        (stat.replay.groups, stat.replay.syncs, stat.last_checkpoint),
        (6, 3, None)
    );
    rig.file().checkpoint().unwrap();
    rig.kill();
    let stat = rig.file().stat();
    assert_eq!((stat.replay.groups, stat.replay.syncs), (0, 0));
    let ago = stat
        .last_checkpoint
        .expect("a checkpoint")
        .elapsed()
        .unwrap();
    assert!(ago < Duration::from_secs(60), "{ago:?}");
}
