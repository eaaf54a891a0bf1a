//! A machine for tests, with two files on a disk that fails, tears and forgets.
//!
//! It records what the file medium does to its files, and tells what a loss of power may leave at
//! any moment. Writes that were synced are there. Each *piece* (a sector, or less) that was written
//! since then is as it was after any of the writes to it, independently of all others. A length
//! that was not synced may be an older one. Writes and syncs can be made to fail, and writes to be
//! short.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::io::Io;

/// The two files of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// The base image.
    Pool = 0,
    /// The line log.
    Log = 1,
}

/// The faults to come. Counts begin now and include both files; 0 is the next operation of its
/// kind.
#[derive(Clone, Copy, Default, Debug)]
pub struct Faults {
    /// The write that finds the disk full, and with it all that follow.
    pub full_from: Option<u64>,
    /// Whether files find no room to grow.
    pub no_room: bool,
    /// The write that fails, once.
    pub write: Option<u64>,
    /// The write that panics, once.
    pub panic: Option<u64>,
    /// The sync that fails, once: the system forgets the data that it would have made durable, and
    /// takes its pages for clean.
    pub sync: Option<u64>,
    /// The most bytes that one write takes.
    pub short: Option<usize>,
    /// The call before which the process ends, counted over all calls that change a file or make it
    /// durable. From there on no call has an effect.
    pub dies: Option<u64>,
    /// Which syncs report success without syncing: a missing sync in the program, not a fault of
    /// the disk.
    pub lost: Option<Lost>,
}

/// Whether a sync is lost, by its file and by what was done to that since its last sync.
pub type Lost = fn(Which, &[Unsynced]) -> bool;

/// Something that is not durable yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsynced {
    /// A write at this offset.
    Write(u64),
    /// The file's length.
    Length(u64),
}

#[derive(Clone, Debug)]
enum FileEvent {
    Write {
        file: usize,
        offset: u64,
        bytes: Vec<u8>,
    },
    Length {
        file: usize,
        length: u64,
    },
    Sync {
        file: usize,
    },
    /// A sync that failed: the writes before it are not durable and never will be; a length may
    /// still become so.
    Forget {
        file: usize,
    },
}

#[derive(Debug, Default)]
struct MachineState {
    events: Vec<FileEvent>,
    faults: Faults,
    calls: u64,
    writes: u64,
    syncs: u64,
}

/// The content of the two files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Image {
    /// Pool and log.
    pub files: [Vec<u8>; 2],
}

/// The machine. See the [module](self).
#[derive(Debug)]
pub struct Machine {
    before: Image,
    files: [File; 2],
    state: Mutex<MachineState>,
}

/// One of its files.
#[derive(Debug)]
struct Faulty {
    machine: Arc<Machine>,
    which: usize,
}

/// A place of a file that a crash leaves in one of several versions, oldest first.
#[derive(Debug)]
struct Piece {
    file: usize,
    offset: u64,
    versions: Vec<Vec<u8>>,
}

/// The contents that a crash at some moment may leave.
#[derive(Debug)]
pub struct CrashContents {
    durable: Image,
    pieces: Vec<Piece>,
    lengths: [Vec<u64>; 2],
}

impl Machine {
    /// A machine whose files hold `image`, durably.
    ///
    /// # Panics
    /// If the system gives no memory.
    pub fn new(image: &Image) -> Arc<Self> {
        let file = |bytes: &Vec<u8>| {
            let file = File::from(
                memfd_create("everleaf", MemfdFlags::CLOEXEC).expect("a file in memory"),
            );
            file.write_all_at(bytes, 0).expect("memory");
            file
        };
        Arc::new(Self {
            before: image.clone(),
            files: image.files.each_ref().map(file),
            state: Mutex::default(),
        })
    }

    /// One of its files.
    pub fn io(self: &Arc<Self>, which: Which) -> Arc<dyn Io> {
        Arc::new(Faulty {
            machine: Arc::clone(self),
            which: which as usize,
        })
    }

    /// The faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        let mut state = self.state.lock();
        state.faults = faults;
        state.calls = 0;
        state.writes = 0;
        state.syncs = 0;
    }

    /// How many writes and how many syncs came since the faults were set.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.writes, state.syncs)
    }

    /// How many calls came since the faults were set, reads aside.
    pub fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// How many events happened so far. It names a moment for [`Machine::crash`].
    pub fn now(&self) -> usize {
        self.state.lock().events.len()
    }

    /// The content that the files show, durable or not. It stays if only the process ends.
    ///
    /// # Panics
    /// If the system takes its memory back.
    pub fn shown(&self) -> Image {
        let read = |file: &File| {
            let mut bytes = vec![0; file.metadata().expect("a file").len() as usize];
            file.read_exact_at(&mut bytes, 0).expect("a file in memory");
            bytes
        };
        Image {
            files: self.files.each_ref().map(read),
        }
    }

    /// The contents that a loss of power at `moment` may leave, on a disk that writes pieces of `piece_bytes`
    /// whole.
    pub fn crash(&self, moment: usize, piece_bytes: usize) -> CrashContents {
        let mut durable = self.before.clone();
        let mut pending: [Vec<FileEvent>; 2] = [Vec::new(), Vec::new()];
        for event in &self.state.lock().events[..moment] {
            match event {
                FileEvent::Write { file, .. } | FileEvent::Length { file, .. } => {
                    pending[*file].push(event.clone());
                }
                FileEvent::Sync { file } => {
                    pending[*file]
                        .drain(..)
                        .for_each(|event| apply(&mut durable.files[*file], &event));
                }
                // A file's length is not data: it goes through the file system's journal.
                FileEvent::Forget { file } => {
                    pending[*file].retain(|event| matches!(event, FileEvent::Length { .. }));
                }
            }
        }
        let lengths = [0, 1].map(|file: usize| {
            let mut lengths = vec![durable.files[file].len() as u64];
            let mut content = durable.files[file].clone();
            for event in &pending[file] {
                apply(&mut content, event);
                lengths.push(content.len() as u64);
            }
            lengths.dedup();
            lengths
        });
        let mut pieces = Vec::new();
        for (file, events) in pending.iter().enumerate() {
            add_pieces(&mut pieces, file, &durable.files[file], events, piece_bytes);
        }
        CrashContents {
            durable,
            pieces,
            lengths,
        }
    }
}

fn apply(content: &mut Vec<u8>, event: &FileEvent) {
    match event {
        FileEvent::Write { offset, bytes, .. } => {
            let end = *offset as usize + bytes.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[*offset as usize..end].copy_from_slice(bytes);
        }
        FileEvent::Length { length, .. } => content.resize(*length as usize, 0),
        FileEvent::Sync { .. } | FileEvent::Forget { .. } => {}
    }
}

fn add_pieces(
    pieces: &mut Vec<Piece>,
    file: usize,
    durable: &[u8],
    events: &[FileEvent],
    piece_bytes: usize,
) {
    let mut content = durable.to_vec();
    let first = pieces.len();
    for event in events {
        let FileEvent::Write { offset, bytes, .. } = event else {
            apply(&mut content, event);
            continue;
        };
        let begin = *offset as usize;
        let end = *offset as usize + bytes.len();
        for number in begin / piece_bytes..end.div_ceil(piece_bytes) {
            let place = number * piece_bytes;
            let piece = |content: &[u8]| {
                let mut piece = vec![0; piece_bytes];
                let there = content.get(place..).unwrap_or_default();
                let there = &there[..there.len().min(piece_bytes)];
                piece[..there.len()].copy_from_slice(there);
                piece
            };
            let before = piece(&content);
            // Zeros are written piece by piece, so a crash may leave any of the pieces.
            let mut after = before.clone();
            let from = begin.max(place);
            let to = end.min(place + piece_bytes);
            after[from - place..to - place].copy_from_slice(&bytes[from - begin..to - begin]);
            let known = pieces[first..]
                .iter()
                .position(|piece| piece.offset == place as u64);
            match known {
                Some(index) => {
                    let versions = &mut pieces[first + index].versions;
                    if versions.last() != Some(&after) {
                        versions.push(after);
                    }
                }
                None if before != after => {
                    pieces.push(Piece {
                        file,
                        offset: place as u64,
                        versions: vec![before, after],
                    });
                }
                None => {}
            }
        }
        apply(&mut content, event);
    }
}

impl CrashContents {
    /// For each choice that a crash makes, the number of its options: pieces first, then the
    /// lengths of both files.
    pub fn choices(&self) -> Vec<usize> {
        let pieces = self.pieces.iter().map(|piece| piece.versions.len());
        pieces.chain(self.lengths.iter().map(Vec::len)).collect()
    }

    /// The files if each choice falls as given; `choice` has as many entries as
    /// [`CrashContents::choices`].
    pub fn image(&self, choice: &[usize]) -> Image {
        let mut image = self.durable.clone();
        let (pieces, lengths) = choice.split_at(self.pieces.len());
        for (file, (lengths, chosen)) in self.lengths.iter().zip(lengths).enumerate() {
            image.files[file].resize(lengths[*chosen] as usize, 0);
        }
        for (piece, chosen) in self.pieces.iter().zip(pieces) {
            let content = &mut image.files[piece.file];
            let begin = (piece.offset as usize).min(content.len());
            let end = (begin + piece.versions[*chosen].len()).min(content.len());
            content[begin..end].copy_from_slice(&piece.versions[*chosen][..end - begin]);
        }
        image
    }

    /// Choices, each for one [`CrashContents::image`]: all of them if there are at most `limit`; else
    /// everything old, everything new, each piece alone new, each alone old, and as many at
    /// `random` (numbers below the one given) as remain.
    pub fn samples(&self, limit: usize, mut random: impl FnMut(usize) -> usize) -> Vec<Vec<usize>> {
        let choices = self.choices();
        let all = choices
            .iter()
            .try_fold(1_usize, |all, count| all.checked_mul(*count));
        if let Some(all) = all.filter(|all| *all <= limit) {
            return (0..all).map(|number| choice_of(number, &choices)).collect();
        }
        let old = vec![0; choices.len()];
        let new: Vec<usize> = choices.iter().map(|count| count - 1).collect();
        let mut chosen = vec![old.clone(), new.clone()];
        for index in (0..choices.len()).filter(|index| choices[*index] > 1) {
            for (base, other) in [(&old, &new), (&new, &old)] {
                let mut choice = base.clone();
                choice[index] = other[index];
                chosen.push(choice);
            }
        }
        // If even these are too many, some of them at random.
        while chosen.len() > limit {
            let index = 2 + random(chosen.len() - 2);
            chosen.swap_remove(index);
        }
        while chosen.len() < limit {
            chosen.push(choices.iter().map(|count| random(*count)).collect());
        }
        chosen
    }
}

/// The choices of the image with this number: its digits, the first one last, each to the base
/// that its choice has.
fn choice_of(number: usize, choices: &[usize]) -> Vec<usize> {
    let mut rest = number;
    let mut choice = Vec::with_capacity(choices.len());
    for count in choices {
        choice.push(rest % count);
        rest /= count;
    }
    choice
}

impl Faulty {
    fn file_of(&self) -> &File {
        &self.machine.files[self.which]
    }
}

impl MachineState {
    /// A call is about to do something, unless the process is dead.
    fn call(&mut self) -> io::Result<()> {
        let number = self.calls;
        self.calls += 1;
        if self.faults.dies.is_some_and(|from| number >= from) {
            Err(broken())
        } else {
            Ok(())
        }
    }

    /// The writes and lengths of a file that are not durable, the newest first.
    fn unsynced(&self, which: usize) -> Vec<Unsynced> {
        let mut unsynced = Vec::new();
        for event in self.events.iter().rev() {
            match *event {
                FileEvent::Write { file, offset, .. } if file == which => {
                    unsynced.push(Unsynced::Write(offset));
                }
                FileEvent::Length { file, length } if file == which => {
                    unsynced.push(Unsynced::Length(length));
                }
                FileEvent::Sync { file } | FileEvent::Forget { file } if file == which => break,
                _ => {}
            }
        }
        unsynced
    }
}

fn disk_full() -> io::Error {
    rustix::io::Errno::NOSPC.into()
}

fn broken() -> io::Error {
    rustix::io::Errno::IO.into()
}

impl Io for Faulty {
    fn file(&self) -> &File {
        self.file_of()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file_of().metadata()?.len())
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file_of().read_at(buffer, offset)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut state = self.machine.state.lock();
        state.call()?;
        let number = state.writes;
        state.writes += 1;
        if state.faults.full_from.is_some_and(|from| number >= from) {
            return Err(disk_full());
        }
        if state.faults.write == Some(number) {
            return Err(broken());
        }
        if state.faults.panic == Some(number) {
            drop(state);
            panic!("a fault on purpose");
        }
        let bytes = &bytes[..bytes.len().min(state.faults.short.unwrap_or(usize::MAX))];
        let written = self.file_of().write_at(bytes, offset)?;
        state.events.push(FileEvent::Write {
            file: self.which,
            offset,
            bytes: bytes[..written].to_vec(),
        });
        Ok(written)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.machine.state.lock();
        state.call()?;
        let number = state.syncs;
        state.syncs += 1;
        let file = self.which;
        if state.faults.sync == Some(number) {
            state.events.push(FileEvent::Forget { file });
            return Err(broken());
        }
        let which = if file == Which::Pool as usize {
            Which::Pool
        } else {
            Which::Log
        };
        if state
            .faults
            .lost
            .is_some_and(|lost| lost(which, &state.unsynced(file)))
        {
            return Ok(());
        }
        state.events.push(FileEvent::Sync { file });
        Ok(())
    }

    fn allocate(&self, start: u64, end: u64) -> io::Result<()> {
        let mut state = self.machine.state.lock();
        state.call()?;
        let number = state.writes;
        state.writes += 1;
        if state.faults.no_room || state.faults.full_from.is_some_and(|from| number >= from) {
            // The file has got the room that there was.
            let length = self.length()?.max(end - (end - start) / 2);
            self.file_of().set_len(length)?;
            state.events.push(FileEvent::Length {
                file: self.which,
                length,
            });
            return Err(disk_full());
        }
        let length = self.length()?.max(end);
        self.file_of().set_len(length)?;
        state.events.push(FileEvent::Length {
            file: self.which,
            length,
        });
        Ok(())
    }

    fn punch(&self, start: u64, end: u64) -> io::Result<()> {
        // A punched range counts as zeros that are written: until the next sync a loss of power may
        // take them back.
        let mut state = self.machine.state.lock();
        state.call()?;
        let bytes = vec![0; (end - start) as usize];
        self.file_of().write_all_at(&bytes, start)?;
        state.events.push(FileEvent::Write {
            file: self.which,
            offset: start,
            bytes,
        });
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut state = self.machine.state.lock();
        state.call()?;
        self.file_of().set_len(length)?;
        state.events.push(FileEvent::Length {
            file: self.which,
            length,
        });
        Ok(())
    }
}
