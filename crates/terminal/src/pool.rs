//! A pool on a command line, and how it is opened.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use everleaf::{DamagedPart, Error, ErrorKind, FlushKind, LineStore, MediumChoice, Options, Store};

use crate::context::Context;
use crate::failure::Failure;
use crate::output_file::InputFile;
use crate::values::any_of;
use crate::{interrupt, progress};

/// A pool, and how it is opened.
#[derive(Args, Clone, Debug)]
pub struct PoolArgs {
    /// The pool's file
    pub pool: PathBuf,
    /// The largest length of the file: bytes, or with K, M, G, T
    #[arg(long, value_name = "BYTES", value_parser = parse_limit, help_heading = "Opening the pool")]
    pub limit_bytes: Option<u64>,
    /// The medium: dax is mapped persistent memory, emulated if there is none; file is a file with
    /// a log beside it
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = medium(), help_heading = "Opening the pool")]
    pub medium: MediumChoice,
    /// The store of a 64-byte line [default: detected]
    #[arg(long, value_name = "NAME", value_parser = any_of::<LineStore, _>(LineStore::all().map(LineStore::name)), help_heading = "Opening the pool")]
    pub line_store: Option<LineStore>,
    /// The instruction that flushes a line; nothing is for eADR [default: detected]
    #[arg(long, value_name = "NAME", value_parser = any_of::<FlushKind, _>(FlushKind::all().map(FlushKind::name)), help_heading = "Opening the pool")]
    pub flush: Option<FlushKind>,
    /// The size of a new log beside a file [default: 32M, growing]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, help_heading = "Opening the pool")]
    pub log_bytes: Option<u64>,
    /// The size up to which the log grows with its pool [default: 2G, or --log-bytes]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, help_heading = "Opening the pool")]
    pub log_bytes_max: Option<u64>,
    /// The most memory for written pages; writers wait beyond it [default: a quarter of the memory]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, help_heading = "Opening the pool")]
    pub private_bytes_max: Option<u64>,
    /// How long to wait for a pool that another process has open, instead of failing at once
    #[arg(long, value_name = "SECONDS", default_value = "0", hide_default_value = true, value_parser = parse_wait, help_heading = "Opening the pool")]
    pub wait: Duration,
}

/// How often a command that reads in place begins, before it reads a copy.
const ATTEMPTS_IN_PLACE: u32 = 3;
/// The pause between two attempts to open a pool that another process has open.
const REST: Duration = Duration::from_millis(5);

impl PoolArgs {
    /// A pool with default options.
    pub fn new(pool: PathBuf) -> Self {
        let (limit_bytes, line_store, flush, log_bytes, log_bytes_max, private_bytes_max) =
            Default::default();
        let medium = MediumChoice::Auto;
        let wait = Duration::ZERO;
        Self {
            pool,
            limit_bytes,
            medium,
            line_store,
            flush,
            log_bytes,
            log_bytes_max,
            private_bytes_max,
            wait,
        }
    }

    /// The same as command-line arguments.
    pub fn to_arguments(&self) -> Vec<OsString> {
        let mut arguments = Vec::new();
        let mut option = |name: &str, value: Option<String>| {
            arguments.extend(
                value
                    .map(|value| [name.into(), OsString::from(value)])
                    .into_iter()
                    .flatten(),
            );
        };
        option(
            "--limit-bytes",
            self.limit_bytes.map(|limit| limit.to_string()),
        );
        option("--medium", Some(medium_name(self.medium).to_owned()));
        option(
            "--line-store",
            self.line_store.map(|line_store| line_store.to_string()),
        );
        option("--flush", self.flush.map(|flush| flush.to_string()));
        option("--log-bytes", self.log_bytes.map(|bytes| bytes.to_string()));
        option(
            "--log-bytes-max",
            self.log_bytes_max.map(|bytes| bytes.to_string()),
        );
        option(
            "--private-bytes-max",
            self.private_bytes_max.map(|bytes| bytes.to_string()),
        );
        arguments.extend([OsString::from("--"), self.pool.clone().into_os_string()]);
        arguments
    }

    /// The options of the library that these arguments ask for.
    pub fn options(&self) -> Options {
        let mut options = Options::new().medium(self.medium);
        if let Some(limit) = self.limit_bytes {
            options = options.limit_bytes(limit);
        }
        if let Some(line_store) = self.line_store {
            options = options.line_store(line_store);
        }
        if let Some(flush) = self.flush {
            options = options.flush(flush);
        }
        if let Some(bytes) = self.log_bytes {
            options = options.log_bytes(bytes);
        }
        if let Some(bytes) = self.log_bytes_max {
            options = options.log_bytes_max(bytes);
        }
        if let Some(bytes) = self.private_bytes_max {
            options = options.private_bytes_max(bytes);
        }
        options
    }

    /// Opens the pool, and notes if its medium is volatile or a tree is damaged.
    pub fn open(&self, context: Context, create: bool) -> Result<Store, Failure> {
        let store = self.opened(context, || self.options().create(create).open(&self.pool))?;
        context.note_medium(&store);
        Ok(store)
    }

    /// Reads the pool in a short time, in place, also beside a process that writes it. If that process
    /// overtakes the reader, `read` begins again, at most twice; then it reads a copy. Nothing is
    /// written, so this works on a full disk and on a read-only file system. Notes if a tree is
    /// damaged.
    pub fn read<T>(
        &self,
        context: Context,
        read: impl Fn(&Store) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let options = self.options().read_only(true);
        for _ in 0..ATTEMPTS_IN_PLACE {
            let store = self.opened(context, || options.open(&self.pool))?;
            match read(&store) {
                Err(Failure::Store(error)) if is_overtaken(&error) => {}
                found => return found,
            }
        }
        read(&self.read_for_long(context)?)
    }

    /// Opens the pool to be read for a long time: from a copy, so that no writer overtakes the reader,
    /// if the disk has room for one.
    pub fn read_for_long(&self, context: Context) -> Result<Store, Failure> {
        let options = self.options().read_only(true).read_from_copy(true);
        self.opened(context, || options.open(&self.pool))
    }

    /// Opens the pool to be read, as [`PoolArgs::read_for_long`] does, even if its file or its log is damaged,
    /// or the log is missing.
    pub fn read_damaged(&self, context: Context) -> Result<Store, Failure> {
        self.opened(context, || self.options().open_damaged(&self.pool))
    }

    fn opened(
        &self,
        context: Context,
        open: impl Fn() -> everleaf::Result<Store>,
    ) -> Result<Store, Failure> {
        let store = progress::while_running(context, "opening the pool", || self.wait(open))?;
        for damage in &store.recovery().damaged {
            let what = &damage.what;
            context.note(match &damage.part {
                DamagedPart::Tree { name } => {
                    format!("warning: tree {name:?} could not be recovered: {what}")
                }
                _ => format!("warning: {what}"),
            });
        }
        Ok(store)
    }

    /// Tries `open` until no other process has the pool open, or the time to wait is over.
    pub fn wait<T>(&self, open: impl Fn() -> everleaf::Result<T>) -> Result<T, Failure> {
        let start = Instant::now();
        loop {
            let error = match open() {
                Ok(opened) => return Ok(opened),
                Err(error) => error,
            };
            let is_locked = matches!(
                error.kind(),
                ErrorKind::Locked { .. } | ErrorKind::NotBeside { .. }
            );
            if !is_locked || start.elapsed() >= self.wait {
                return Err(error.into());
            }
            interrupt::check()?;
            std::thread::sleep(REST);
        }
    }

    /// Opens the pool, or makes it, for `write`, and closes it. If `write` fails, a pool that was
    /// made here and holds no entry is removed.
    pub fn write<T>(
        &self,
        context: Context,
        write: impl FnOnce(&Store) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let is_new = self.is_new();
        if is_new {
            // From here on a signal must not leave an empty pool behind.
            interrupt::gently();
        }
        let store = self.open(context, true)?;
        interrupt::gently();
        let written = write(&store);
        if written.is_err() && is_new && has_no_entry(&store).unwrap_or(false) {
            // If that fails, an empty pool remains, which does no harm.
            let _ = store.remove_files();
            return written;
        }
        let closed = store.close();
        let written = written?;
        closed?;
        Ok(written)
    }

    /// The files of the pool, which no output may replace.
    pub fn files(&self) -> [InputFile; 2] {
        let pool = InputFile {
            path: self.pool.clone(),
            what: "the pool itself",
        };
        let log = InputFile {
            path: everleaf::log_path(&self.pool),
            what: "the log of the pool",
        };
        [pool, log]
    }

    /// Whether the pool does not exist yet.
    pub fn is_new(&self) -> bool {
        std::fs::metadata(&self.pool).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }
}

/// Whether a process that writes the pool has overtaken a reader.
pub fn is_overtaken(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ViewTooOld { limit: None })
}

fn has_no_entry(store: &Store) -> everleaf::Result<bool> {
    for tree in store.trees()? {
        if !store.open_tree(&tree.name)?.is_empty()? {
            return Ok(false);
        }
    }
    Ok(true)
}

const MEDIA: [(&str, MediumChoice); 3] = [
    ("auto", MediumChoice::Auto),
    ("dax", MediumChoice::Dax),
    ("file", MediumChoice::File),
];

fn medium() -> impl TypedValueParser<Value = MediumChoice> {
    let named = |name: String| {
        MEDIA
            .into_iter()
            .find(|(known, _)| *known == name)
            .map(|(_, medium)| medium)
    };
    PossibleValuesParser::new(MEDIA.map(|(name, _)| name))
        .map(move |name| named(name).unwrap_or_default())
}

fn parse_wait(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "give a number of seconds, such as 5 or 0.5".to_owned())
}

fn medium_name(medium: MediumChoice) -> &'static str {
    MEDIA
        .into_iter()
        .find(|(_, known)| *known == medium)
        .map_or("auto", |(name, _)| name)
}

/// The bytes of the smallest pool that holds an entry: its prefix, a slab for the tree, and one for
/// its entries.
const POOL_BYTES_MIN: u64 = 192 << 10;

fn parse_limit(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes >= POOL_BYTES_MIN {
        Ok(bytes)
    } else {
        Err("no pool is so small; give 192K or more".to_owned())
    }
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        other => return Err(format!("unknown unit {other}; give K, M, G or T")),
    };
    let number: u64 = digits
        .parse()
        .map_err(|error| format!("{digits:?} is not a number: {error}; give one such as 64M"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text} is too large; give less than 2^64 bytes"))
}
