//! Opening a pool with its log, which is replayed or made anew; and closing it cleanly.

use std::fs;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use super::access::{PRIVATE_MODE, share_access};
use super::append::Appender;
use super::capture::LineCapture;
use super::commit::GroupCommit;
use super::error::{LogError, refused};
use super::find::{LogAccess, LogFile, find, open_log, read_mark, read_mark_of};
use super::layout::{BLOCK_BYTES, CAPACITY_MIN, Header, LogMark, LogRange, RANGES_MAX, RING};
use super::log::{Log, LogSizes, NewestHeader};
use super::pages::PAGE_LINES;
use super::places::StorePlaces;
use super::private::Private;
use super::release::Released;
use super::replay::{Replay, Replayed, expect_nothing_later, replay};
use super::stat::Checkpoints;
use super::store::Stores;
use super::volatile::{is_volatile, survives};
use super::{BURST_BYTES_MAX, Core, File, FileOptions, Tail, checkpoint, worker};
use crate::error::address_space_limit;
use crate::folder::FilePlace;
use crate::io::{Disk, Io, Through, is_full, keep_room, sync_whole, write_all};
use crate::mapping::{Mapping, expect_random_loads};
use crate::presence::unless_mapped;
use crate::process::OwnFiles;
use crate::testing::Hooked;
use crate::testing::mutant::Mutant;
use crate::{Extent, Grown, LINE_BYTES, LimitedBy, MediumError, Survives, random_id};

/// An environment variable that takes all syncs out, and the only value that does so. A loss of
/// power loses the writes of such a process. A test of power cuts must notice that.
pub const UNSAFE_NO_SYNC: (&str, &str) = (
    "EVERLEAF_UNSAFE_NO_SYNC",
    "lose-my-data-when-the-power-fails",
);

/// A pool's file has at least this length.
const POOL_BYTES_MIN: u64 = 64 << 10;
/// The least memory for data that waits to be written to the log.
const BURST_BYTES_MIN: u64 = 1 << 20;

/// The room on the disk that a closed pool keeps for its next log.
const RESERVE_BYTES: u64 = 256 << 10;

/// The largest log on a file system in memory.
const VOLATILE_LOG_BYTES_MAX: u64 = 4 << 20;

/// A pool, and the file where its log belongs. The two fit together, and neither was changed yet.
#[derive(Debug)]
pub struct Beside {
    pool: fs::File,
    log: Option<fs::File>,
    there: LogFile,
    places: StorePlaces,
    options: FileOptions,
}

impl Beside {
    /// Finds the log of the pool in `pool` at `log_place`. The caller holds the pool's lock, and has
    /// checked that the file is a pool or empty. If it says where the pool lies, the medium notices
    /// when the pool is moved or removed.
    ///
    /// # Errors
    /// [`MediumError::Log`] if log and pool do not fit together.
    pub fn find(
        pool: fs::File,
        pool_place: Option<FilePlace>,
        log_place: FilePlace,
        options: FileOptions,
    ) -> Result<Self, MediumError> {
        let mark = read_mark_of(&pool, options.mark_offset)?;
        let (there, log) = match (open_log(&log_place, LogAccess::Write)?, mark) {
            (Some(log), _) => {
                let log = Disk(log);
                (find(&log, mark)?, Some(log.0))
            }
            (None, LogMark(None)) => (LogFile::Fresh, None),
            (None, LogMark(Some(uuid))) => return Err(LogError::Missing { uuid }.into()),
        };
        Ok(Self {
            pool,
            log,
            there,
            places: StorePlaces::new(pool_place, log_place),
            options,
        })
    }

    /// The pool's file.
    pub fn pool_file(&self) -> &fs::File {
        &self.pool
    }

    /// Opens the pool, and makes a log if it has none. The log gets the permissions of the pool.
    ///
    /// # Errors
    /// [`MediumError::Log`] if one of the two is damaged; [`MediumError::Full`] if the disk has no
    /// room for a log.
    pub fn open(self) -> Result<File, MediumError> {
        let Self {
            pool,
            log,
            there,
            places,
            options,
        } = self;
        let no_sync =
            std::env::var_os(UNSAFE_NO_SYNC.0).is_some_and(|value| value == UNSAFE_NO_SYNC.1);
        if no_sync {
            eprintln!(
                "everleaf: {} is set: nothing is synced, and a loss of power loses data",
                UNSAFE_NO_SYNC.0
            );
        }
        let unsynced: Option<Through> = no_sync.then_some(|io| Arc::new(Hooked::unsynced(io)));
        let through = unsynced
            .or(options.through)
            .unwrap_or(std::convert::identity);
        let is_new = log.is_none();
        let log = match log {
            Some(log) => log,
            None => places.log.make(PRIVATE_MODE).map_err(refused(
                "make the log beside the pool (its name with `.log`; the folder must be writable)",
            ))?,
        };
        let log_place = places.log.clone();
        let log = through(Arc::new(Disk(log)));
        let pool = through(Arc::new(Disk(pool)));
        let opened = Self::open_both(pool, Arc::clone(&log), there, places, options);
        if opened.is_err() && is_new {
            // The log is empty, and no pool names it. If this fails, the next open takes it.
            let _ = log_place.remove(log.file());
        }
        let mut file = opened?;
        if no_sync {
            file.survives = Survives::ProcessCrash;
        }
        Ok(file)
    }

    fn open_both(
        pool: Arc<dyn Io>,
        log: Arc<dyn Io>,
        there: LogFile,
        places: StorePlaces,
        options: FileOptions,
    ) -> Result<File, MediumError> {
        let access = pool
            .file()
            .metadata()
            .map_err(refused("examine the pool"))?;
        // On failure a new log keeps its narrow mode; an existing log belongs to another user.
        let _ = share_access(log.file(), &access);
        // The folder is synced when the log is used first.
        let syncable = places.log.folder().expect_syncable();
        syncable.map_err(refused("make the log durable in its folder"))?;
        File::open_found(pool, log, there, options, Some(places))
    }
}

impl File {
    /// Opens the pool in `pool` with the log at `log_path`: [`Beside::find`] and [`Beside::open`]
    /// in one.
    ///
    /// # Errors
    /// The errors of these two.
    pub fn beside(
        pool: fs::File,
        log_path: &Path,
        options: FileOptions,
    ) -> Result<Self, MediumError> {
        let log_place = FilePlace::of_name(log_path).map_err(refused("find the log"))?;
        Beside::find(pool, None, log_place, options)?.open()
    }

    /// Does the same as [`File::open`], with a log that has just been made.
    #[cfg(test)]
    pub(super) fn open_with_fresh_log(
        pool: Arc<dyn Io>,
        log: Arc<dyn Io>,
        options: FileOptions,
    ) -> Result<Self, MediumError> {
        Self::open_found(pool, log, LogFile::Fresh, options, None)
    }

    /// Does the same as [`File::beside`], with two files that are open already.
    ///
    /// # Errors
    /// The same as those of [`File::beside`].
    pub fn open(
        pool: Arc<dyn Io>,
        log: Arc<dyn Io>,
        options: FileOptions,
    ) -> Result<Self, MediumError> {
        let mark = read_mark(&*pool, options.mark_offset)?;
        let there = find(&*log, mark)?;
        Self::open_found(pool, log, there, options, None)
    }

    fn open_found(
        pool: Arc<dyn Io>,
        log: Arc<dyn Io>,
        there: LogFile,
        options: FileOptions,
        places: Option<StorePlaces>,
    ) -> Result<Self, MediumError> {
        let survives = survives(pool.file()).min(survives(log.file()));
        let options = for_files([pool.file(), log.file()], options);
        let length = pool.length().map_err(refused("measure the pool"))?;
        let begun = match there {
            LogFile::Log(newest) => {
                let expected = newest.header.pool_bytes;
                if length < expected {
                    return Err(LogError::PoolTruncated { length, expected }.into());
                }
                let mapping = Mapping::private(Arc::clone(&pool), options.limit_bytes)?;
                let private = private_pages(&mapping, &options);
                let log = reopen(log, &newest, &*pool, &options, &mapping, &private)?;
                Begun {
                    log,
                    mapping,
                    private,
                }
            }
            LogFile::Fresh | LogFile::Remains | LogFile::Unneeded => {
                if matches!(there, LogFile::Unneeded)
                    && length >= options.mark_offset + LINE_BYTES as u64
                {
                    // A process that was killed while it closed the pool may have left this mark in
                    // the page cache only.
                    write_mark(&*pool, options.mark_offset, LogMark(None))?;
                }
                let length = lengthen(&*pool, length, &options)?;
                let is_fresh = matches!(there, LogFile::Fresh);
                let log = create(log, is_fresh, &*pool, length, &options)?;
                let mapping = Mapping::private(Arc::clone(&pool), options.limit_bytes)?;
                let private = private_pages(&mapping, &options);
                Begun {
                    log,
                    mapping,
                    private,
                }
            }
        };
        let Begun {
            log: begun_log,
            mapping,
            private,
        } = begun;
        let BegunLog {
            log,
            tail,
            replayed,
        } = begun_log;
        let end = tail.appender.end();
        let base = mapping.extent().base();
        let checkpoints = Checkpoints {
            last_s: log.header().checkpointed_at,
            ..Checkpoints::default()
        };
        let core = Arc::new(Core {
            own: OwnFiles::of([pool.file(), log.io.file()]),
            pool,
            extent: core_extent(&mapping),
            lines: LineCapture::new(true, base.addr(), private),
            log,
            tail: CachePadded::new(Mutex::new(tail)),
            end: CachePadded::new(AtomicU64::new(end)),
            commit: GroupCommit::new(end, options.gather_max),
            released: Released::new(mapping.holes()),
            growing: Mutex::new(()),
            checkpointing: Mutex::new(()),
            checkpoints: Mutex::new(checkpoints),
            pool_bytes: AtomicU64::new(mapping.extent().length()),
            duties: OnceLock::new(),
            is_closing: AtomicBool::new(false),
            is_idle: AtomicBool::new(false),
            awaited: AtomicU64::new(0),
            burst_bytes_max: burst_bytes_max(&options),
            durability: options.durability,
            mark_offset: options.mark_offset,
            marked: AtomicBool::new(replayed.is_some()),
            rests_until: AtomicU64::new(end),
            places,
        });
        if options.background {
            worker::begin(&core).map_err(refused("start a thread"))?;
        }
        let file = Self {
            core,
            mapping,
            options,
            replay: replayed
                .as_ref()
                .map_or(Replay::NOTHING, |replayed| replayed.replay),
            survives,
        };
        let length = file.mapping.extent().length();
        if replayed.is_some_and(|replayed| length > replayed.length) {
            // A process that was killed while the pool grew left a file of this length, which may
            // not be durable.
            file.log_length(length);
        }
        Ok(file)
    }

    /// Whether the pool in `pool` names a log: it was last open on this medium, and not closed
    /// cleanly.
    ///
    /// # Errors
    /// [`LogError::Io`] if it cannot be read.
    pub fn needs_log(pool: &fs::File, mark_offset: u64) -> Result<bool, LogError> {
        // A damaged mark counts as none here; the open reports it.
        Ok(matches!(
            read_mark_of(pool, mark_offset),
            Ok(LogMark(Some(_)))
        ))
    }

    /// Prepares a pool that needs no log for another medium: removes an empty log, and clears the
    /// pool's mark durably. Such a log is left by a process that ended before it wrote to it;
    /// [`File::backup_beside`] would take it for the log of an open pool. A file that is no log of
    /// Everleaf stays.
    ///
    /// A damaged mark may have named a log that holds data. It is cleared only if the user `asked`
    /// for a medium without a log, and nothing but an empty log lies where the log belongs.
    ///
    /// # Errors
    /// [`LogError::Unasked`] and [`LogError::UnaskedDamaged`] if the pool needs no log, and the log
    /// holds something; [`LogError::Mark`] if the mark is damaged and not cleared;
    /// [`LogError::Link`] if a link lies where the log belongs; [`LogError::Io`] if a file cannot
    /// be read, written or removed.
    pub fn remove_unneeded_log(
        pool: &fs::File,
        log_place: &FilePlace,
        mark_offset: u64,
        asked: bool,
    ) -> Result<(), LogError> {
        let pool = Disk(pool.try_clone().map_err(refused("open the pool"))?);
        let is_damaged = match read_mark(&pool, mark_offset) {
            Ok(LogMark(None)) => false,
            Err(LogError::Mark { .. }) if asked => true,
            Ok(LogMark(Some(_))) => return Ok(()),
            Err(error) => return Err(error),
        };
        let log = match open_log(log_place, LogAccess::Read) {
            Ok(log) => log.map(Disk),
            Err(LogError::NotALog) if is_damaged => {
                return Err(LogError::Mark {
                    offset: mark_offset,
                });
            }
            Err(LogError::NotALog) => None,
            Err(error) => return Err(error),
        };
        let there = match &log {
            Some(log) => find(log, LogMark(None)),
            None => Ok(LogFile::Fresh),
        };
        let is_unneeded = match there {
            Ok(there) => matches!(there, LogFile::Unneeded),
            Err(LogError::NotALog | LogError::Unasked { .. } | LogError::UnaskedDamaged)
                if is_damaged =>
            {
                return Err(LogError::Mark {
                    offset: mark_offset,
                });
            }
            Err(LogError::NotALog) => false,
            Err(error) => return Err(error),
        };
        if is_damaged || is_unneeded {
            // A mark that a killed process cleared may be durable still.
            write_mark(&pool, mark_offset, LogMark(None))?;
        }
        if is_unneeded && let Some(Disk(log)) = &log {
            log_place.remove(log).map_err(refused("remove the log"))?;
        }
        Ok(())
    }

    /// Removes the log of a pool whose creation failed, and which the caller removes as well. A
    /// file that is not its log stays.
    pub fn remove_log_of_failed(pool: &fs::File, log_place: &FilePlace, mark_offset: u64) {
        let Ok(Some(log)) = open_log(log_place, LogAccess::Read) else {
            return;
        };
        let log = Disk(log);
        let found = read_mark_of(pool, mark_offset).and_then(|mark| find(&log, mark));
        if matches!(found, Ok(LogFile::Unneeded | LogFile::Log(_))) {
            // If that fails, the next open of the path reports the file.
            let _ = log_place.remove(&log.0);
        }
    }

    /// Sets the form of the pool's lines, which is known only after the log is replayed.
    pub fn set_line_form(&mut self, line_form: crate::LineForm) {
        self.options.line_form = line_form;
    }

    /// [`Medium::finish`]: writes all of the pool to its file, and removes the log. All of this goes
    /// by descriptor. If the pool's file has lost its name, it is whole nevertheless, and the result
    /// is an error.
    pub(super) fn finish_and_remove_log(&self) -> Result<(), MediumError> {
        self.core.end_duties();
        let finished = self.try_finish();
        if let Err(error) = &finished {
            // The work in the background has ended, and the log may be removed: nothing can be
            // written any more.
            let why = format!("closing the pool failed: {error}");
            self.core.commit.fail(why);
        }
        finished
    }

    fn try_finish(&self) -> Result<(), MediumError> {
        if self.core.is_at_rest(self.core.end()) {
            // The pool's file is as it was, and does not name the log.
            self.remove_finished_log()?;
        } else {
            self.write_back_and_finish()?;
        }
        let core = &*self.core;
        if let Some(displaced) = core.displaced_pool() {
            core.commit.fail_displaced(displaced);
            return core.commit.failure();
        }
        core.commit.fail("the pool is closed".to_owned());
        Ok(())
    }

    /// Each step is durable before the next one. Otherwise a crash could leave a pool that misses
    /// its log, or seems truncated.
    ///
    /// 1. All frames are durable in the log.
    /// 2. All lines are durable in the pool's file.
    /// 3. The log's header says that the log holds nothing.
    /// 4. The pool's mark says that it needs no log.
    /// 5. The log is removed. If a crash brings it back, the next open finds that it holds nothing.
    fn write_back_and_finish(&self) -> Result<(), MediumError> {
        let core = &*self.core;
        core.settle(core.end())?;
        let length = self.mapping.extent().length();
        core.commit.failure()?;
        let finished = core.checkpoint_and_end_log(Some(length));
        finished.map_err(refused("finish the log"))?;
        if core.pool.length().map_err(refused("measure the pool"))? > length {
            let cut = unless_mapped(core.pool.file(), || core.pool.truncate(length));
            cut.map_err(refused("cut the pool's free tail off"))?;
        }
        write_mark(&*core.pool, self.options.mark_offset, LogMark(None))?;
        self.remove_finished_log()
    }

    /// Removes a log that the pool does not name.
    fn remove_finished_log(&self) -> Result<(), MediumError> {
        let core = &*self.core;
        // The drop must not remove another log that is made at its place.
        core.marked.store(true, Ordering::Relaxed);
        let removed = core.remove_log().map_err(refused("remove the log"))?;
        if removed {
            self.keep_reserve();
        }
        Ok(())
    }

    /// Turns room of the log, which is removed, into the pool's reserve.
    fn keep_reserve(&self) {
        // The removed file is still open. If it keeps its room, the reserve needs other room.
        let _ = self.core.log.io.truncate(0);
        keep_room(&*self.core.pool, RESERVE_BYTES);
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.core.own.process.is_current() {
            // The work in the background and the files are those of the parent.
            return;
        }
        self.core.end_duties();
        let core = &*self.core;
        // Without a mark nothing was ever written to the log, and the pool does not name it. If
        // writing has ended because a file lost its name, the pool does not need the log any more.
        let is_unneeded = !core.marked.load(Ordering::Relaxed) || core.commit.is_displaced();
        if is_unneeded && matches!(core.remove_log(), Ok(true)) {
            self.keep_reserve();
        }
    }
}

fn no_room(
    error: std::io::Error,
    grown: Grown,
    [from, to]: [u64; 2],
    file: &fs::File,
) -> MediumError {
    match LimitedBy::of(&error, file) {
        Some(by) => MediumError::Full {
            wanted: to,
            limit: from,
            by,
            file: grown,
        },
        None => refused("make room on the disk")(error).into(),
    }
}

pub(super) fn write_mark(pool: &dyn Io, offset: u64, mark: LogMark) -> Result<(), LogError> {
    write_all(pool, &mark.encode(), offset)
        .and_then(|()| sync_whole(pool))
        .map_err(refused("say in the pool which log it needs"))
}

/// The options for these files: on a file system in memory the log is small, because room is scarce
/// there and checkpoints are cheap.
fn for_files(files: [&fs::File; 2], options: FileOptions) -> FileOptions {
    if !files.iter().any(|file| is_volatile(file) == Some(true)) {
        return options;
    }
    FileOptions {
        log_bytes: options.log_bytes.min(VOLATILE_LOG_BYTES_MAX),
        log_bytes_max: options.log_bytes_max.min(VOLATILE_LOG_BYTES_MAX),
        ..options
    }
}

/// Lengthens a pool to the least length of a pool, if it is shorter. Returns its length.
fn lengthen(pool: &dyn Io, length: u64, options: &FileOptions) -> Result<u64, MediumError> {
    let wanted = (options.mark_offset + LINE_BYTES as u64).next_multiple_of(POOL_BYTES_MIN);
    if length >= wanted {
        return Ok(length);
    }
    if wanted > options.limit_bytes {
        let limit = options.limit_bytes;
        let by = LimitedBy::Limit;
        return Err(MediumError::Full {
            wanted,
            limit,
            by,
            file: Grown::Pool,
        });
    }
    pool.allocate(length, wanted)
        .map_err(|error| no_room(error, Grown::Pool, [length, wanted], pool.file()))?;
    Ok(wanted)
}

/// Gives a new log room for its ring, as much as the disk has up to `wanted` bytes; returns that.
/// If it has not enough even for the smallest ring, the pool gives its reserve up.
fn allocate_ring(
    io: &dyn Io,
    pool: &dyn Io,
    pool_bytes: u64,
    wanted: u64,
) -> Result<u64, MediumError> {
    let mut capacity = wanted;
    let mut has_reserve = true;
    while let Err(error) = io.allocate(0, RING + capacity) {
        io.truncate(0).map_err(refused("empty the log"))?;
        let smaller = (capacity / 2).next_multiple_of(BLOCK_BYTES);
        let is_least = smaller < CAPACITY_MIN;
        if !is_full(&error) || is_least && !has_reserve {
            // The pool is not opened, and so not closed.
            keep_room(pool, RESERVE_BYTES);
            return Err(no_room(error, Grown::Log, [0, RING + capacity], io.file()));
        }
        if is_least {
            pool.truncate(pool_bytes)
                .map_err(refused("give up the reserve of the pool"))?;
            has_reserve = false;
        }
        capacity = if is_least {
            RESERVE_BYTES - RING
        } else {
            smaller
        };
    }
    Ok(capacity)
}

/// The pages of a pool. One that is large already gives pages back from the beginning.
fn private_pages(mapping: &Mapping, options: &FileOptions) -> Private {
    let private = Private::new(options.private_bytes_max);
    if private.is_large(mapping.extent().length()) {
        private.activate(0);
        mapping.map_growth();
        // This helps recovery, too: it reads the keys of records, which lie in no order.
        expect_random_loads(mapping.extent());
    }
    private
}

/// The memory of the medium, for its core, which the work in the background shares.
fn core_extent(mapping: &Mapping) -> Extent {
    let base = NonNull::new(mapping.extent().base()).expect("mapped");
    // SAFETY: mapped as long as the medium lives, and only used by duties that it ends before it
    // ends itself. If a turn of one of them ends it, by a waker, that turn does not use the memory
    // afterwards (`Core::wake_tasks`).
    unsafe { Extent::new(base, mapping.extent().length()) }
}

/// A quarter of the limit of memory, or a sixteenth of that of the address space: this much data may
/// wait to be written to the log, and as much to be written to the pool's file.
fn burst_bytes_max(options: &FileOptions) -> u64 {
    BURST_BYTES_MAX
        .min(options.private_bytes_max / 4)
        .min(address_space_limit().unwrap_or(u64::MAX) / 16)
        .max(BURST_BYTES_MIN)
}

fn log_sizes(options: &FileOptions) -> LogSizes {
    LogSizes {
        idle_bytes: options.log_bytes.min(options.log_bytes_max),
        follows_pool: options.log_follows_pool,
        bytes_max: options.log_bytes_max,
    }
}

/// A pool whose log and memory are ready.
struct Begun {
    log: BegunLog,
    mapping: Mapping,
    private: Private,
}

/// A log that is ready for the first write.
struct BegunLog {
    log: Log,
    tail: Tail,
    /// The result of the replay; `None` if the log is new.
    replayed: Option<Replayed>,
}

/// Makes a new log. The former content of the file is lost. It has none if the file is fresh. The
/// header becomes durable when the log is used.
fn create(
    io: Arc<dyn Io>,
    is_fresh: bool,
    pool: &dyn Io,
    pool_bytes: u64,
    options: &FileOptions,
) -> Result<BegunLog, MediumError> {
    io.truncate(0).map_err(refused("empty the log"))?;
    if !is_fresh {
        sync_whole(&*io).map_err(refused("empty the log"))?;
    }
    let sizes = log_sizes(options);
    let capacity = allocate_ring(&*io, pool, pool_bytes, sizes.idle(pool_bytes))?;
    let incarnation = random_id() as u32 / 2 + 1;
    let header = Header {
        uuid: random_id(),
        sequence: 0,
        capacity,
        base: 0,
        pool_bytes,
        start: 0,
        checkpointed_at: 0,
        incarnation_next: incarnation + 1,
        ranges: vec![LogRange {
            incarnation,
            begin: 0,
        }],
    };
    let log = Log::new(io, header, sizes, options.sizes);
    if !is_fresh {
        // Otherwise old content could come back beside a header that a crash tore: an earlier
        // process may have cut the file without a sync that succeeded.
        log.fill_first();
        log.sync().map_err(refused("empty the log"))?;
    }
    log.write_first_header()
        .map_err(refused("write the log's header"))?;
    let appender = Appender::new(incarnation, 0, &[], capacity);
    Ok(BegunLog {
        log,
        tail: Tail {
            appender,
            dozing: false,
        },
        replayed: None,
    })
}

/// Replays a log into the mapping, and begins a new incarnation behind the last frame.
fn reopen(
    io: Arc<dyn Io>,
    newest: &NewestHeader,
    pool: &dyn Io,
    options: &FileOptions,
    mapping: &Mapping,
    private: &Private,
) -> Result<BegunLog, MediumError> {
    let start = Instant::now();
    let log = Log::new(io, newest.header.clone(), log_sizes(options), options.sizes);
    log.set_filled();
    // The memory that the lines of a long log take may be more than there is, so they go to the
    // file at once.
    let writes_back = private.is_active();
    let note = |number: u64, position| private.note_append(number / PAGE_LINES, position);
    let mut replayed = replay_into(&log, newest, mapping, (!writes_back).then_some(&note))?;
    begin(&log, pool, options, &replayed, writes_back)
        .map_err(refused("begin a new incarnation of the log"))?;
    // Both copies of the header name this ring now. If the system refuses, the file is only longer
    // than it need be.
    let _ = log.cut();
    replayed.replay.duration = start.elapsed();
    let end = replayed.end;
    let mut block = vec![0; (end % BLOCK_BYTES) as usize];
    log.read_ring(end - end % BLOCK_BYTES, &mut block)
        .map_err(refused("read the log"))?;
    let incarnation = log
        .header()
        .ranges
        .last()
        .map_or(0, |range| range.incarnation);
    let appender = Appender::new(incarnation, end, &block, log.capacity());
    Ok(BegunLog {
        log,
        tail: Tail {
            appender,
            dozing: false,
        },
        replayed: Some(replayed),
    })
}

/// Checks a log. With `note` its lines are stored into the mapping, and `note` is called before
/// with the number of each and the position of its frame. No file is changed, unless the mapping
/// grows with one.
pub(super) fn replay_into(
    log: &Log,
    newest: &NewestHeader,
    mapping: &Mapping,
    note: Option<&dyn Fn(u64, u64)>,
) -> Result<Replayed, MediumError> {
    let replayed = thread::scope(|scope| {
        let extent = mapping.extent();
        let mut stores = Stores::new(scope, extent);
        let check_line = |number: u64, position| {
            if extent.line(number).is_none() {
                return Err(LogError::Damaged {
                    position: log.physical(position),
                    what: format!("a line of number {number} lies outside of the pool"),
                });
            }
            if let Some(note) = note {
                note(number, position);
            }
            // The content of the line is not in the file yet, so its unit must not count as a hole.
            mapping.holes().forget(number * LINE_BYTES as u64);
            Ok(())
        };
        let grow = |length| mapping.grow(length);
        let mut store = |window: &Arc<Vec<u8>>, range| {
            if note.is_some() {
                stores.frame(window, range);
            }
        };
        let replayed = replay(log, &newest.header, &mut store, check_line, grow);
        stores.finish();
        replayed
    })?;
    if let Some(copy) = newest.unreadable {
        expect_nothing_later(log, replayed.end, copy)?;
    }
    Ok(replayed)
}

/// Makes the replayed frames durable, and begins a new incarnation behind them. If `writes_back`,
/// the log is checkpointed.
fn begin(
    log: &Log,
    pool: &dyn Io,
    options: &FileOptions,
    replayed: &Replayed,
    writes_back: bool,
) -> std::io::Result<()> {
    let mark_offset = options.mark_offset;
    let durable = replayed.durable;
    let end = replayed.end;
    // The frames that replay read may be in the page cache only, and after a failed sync the system
    // may take pages for clean that never reached the disk. So everything that is not known to be
    // durable is written again: first the header that was read, because the next header overwrites
    // the other copy.
    if !Mutant::HeaderKept.is_planted() {
        log.rewrite_header()?;
    }
    if durable < end && !Mutant::EndKept.is_planted() {
        let first = durable - durable % BLOCK_BYTES;
        let mut bytes = vec![0; (end - first) as usize];
        log.read_ring(first, &mut bytes)?;
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES as usize), 0);
        log.write_ring(first, &bytes)?;
    }
    log.sync()?;
    let header = log.header();
    if header.start == 0 && header.ranges.len() < 2 && !Mutant::MarkKept.is_planted() {
        // Neither a checkpoint nor an earlier open has synced the pool since it names the log.
        write_mark(pool, mark_offset, LogMark(Some(log.uuid))).map_err(std::io::Error::other)?;
    }
    let writes_back = writes_back || log.header().ranges.len() == RANGES_MAX;
    if writes_back {
        log.announce(end)?;
        let batch_bytes = burst_bytes_max(options);
        checkpoint::write_back(log, pool, mark_offset, [log.start(), end], batch_bytes)?;
        sync_whole(pool)?;
    }
    let pool_bytes = pool.length()?;
    log.update(|header| {
        if writes_back {
            checkpoint::forget(header, end);
            header.pool_bytes = pool_bytes;
        }
        if header.ranges.last().is_some_and(|range| range.begin >= end) {
            header.ranges.pop();
        }
        header.ranges.push(LogRange {
            incarnation: header.incarnation_next,
            begin: end,
        });
        if !Mutant::OldIncarnation.is_planted() {
            header.incarnation_next = header.incarnation_next.wrapping_add(1).max(1);
        }
    })
}
