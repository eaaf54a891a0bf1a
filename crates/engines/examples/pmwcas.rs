//! A structure of your own on PMwCAS, in a file: a text and the number of its versions, which
//! change together or not at all.
//!
//! ```sh
//! cargo run --release --package everleaf-engines --example pmwcas -- FILE TEXT
//! ```
//!
//! Each run writes a new version. With `--crash` in place of the text, the run leaves the file in
//! the state after a crash in the middle of an operation, and the next run recovers it.

use std::error::Error;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use everleaf_engines::index::record::{self, Record};
use everleaf_engines::pmwcas::{Pmwcas, Recycled, Recycling, Seen, VALUE_MASK};
use medium::{File, FileOptions, Medium, Word};
use pool::{Guard, Pool, PoolOptions, ROOT_WORDS};

/// The number of the tree's engine in the root table: one that no engine has.
const ENGINE: u16 = 1 << 15;
/// The number of the tree's codec in the root table.
const CODEC: u16 = 0;
/// Threads that may be in the middle of an operation at the same time.
const SLOTS: usize = 4;
/// The words: the offset of the text's record, 0 if there is none, and the number of versions.
const TEXT: usize = 0;
const VERSIONS: usize = 1;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

struct Document<M: Medium> {
    pool: Pool<M>,
    pmwcas: Pmwcas,
    words: u64,
}

impl<M: Medium> Document<M> {
    /// The document in a pool, or a new one.
    fn open(pool: Pool<M>) -> Result<Self> {
        let guard = pool.pin();
        let Some(root) = pool.trees()?.pop() else {
            let place = guard.allocate_lines(Pmwcas::bytes(SLOTS))?;
            Pmwcas::format(&guard, place, SLOTS)?;
            let words = guard.allocate_lines(16)?;
            let cells = guard.words(words, 2)?;
            cells.iter().for_each(|cell| cell.store(&guard, 0));
            guard.flush_words(cells);
            // The words that the root leads to are durable before the root is.
            guard.fence();
            let mut roots = [0; ROOT_WORDS];
            roots[0] = place;
            roots[1] = words;
            pool.create_tree("document", ENGINE, CODEC, &roots)?;
            let pmwcas = Pmwcas::open(&guard, place, SLOTS)?;
            drop(guard);
            return Ok(Self {
                pool,
                pmwcas,
                words,
            });
        };
        let place = root.words[0];
        let words = root.words[1];
        // PMwCAS first recovers the words. Then the memory that they lead to is marked as in use;
        // all other memory is free.
        let pmwcas = Pmwcas::open(&guard, place, SLOTS)?;
        if pool.needs_mark() {
            println!("it was not closed: recovered");
            let text = pmwcas.read(&guard, &guard.words(words, 2)?[TEXT])? & VALUE_MASK;
            [place, words, text]
                .into_iter()
                .filter(|offset| *offset != 0)
                .try_for_each(|it| pool.mark(it))?;
            pool.finish_marking();
        }
        drop(guard);
        Ok(Self {
            pool,
            pmwcas,
            words,
        })
    }

    fn cells<'g>(&self, guard: &'g Guard<'_, M>) -> Result<&'g [Word]> {
        Ok(guard.words(self.words, 2)?)
    }

    /// The text, and how many there were.
    fn read(&self) -> Result<(String, u64)> {
        let guard = self.pool.pin();
        let cells = self.cells(&guard)?;
        loop {
            let mut seen = Seen::default();
            let versions = self.pmwcas.observe(&guard, &cells[VERSIONS], &mut seen)?;
            let offset = self.pmwcas.observe(&guard, &cells[TEXT], &mut seen)?;
            if self.pmwcas.read(&guard, &cells[VERSIONS])? & VALUE_MASK != versions {
                continue;
            }
            // On a file a value is visible before it is durable.
            self.pmwcas.settle(&guard, &seen)?;
            let mut text = Vec::new();
            if offset != 0 {
                Record::at(&guard, offset)?.copy_value(&guard, &mut text)?;
            }
            return Ok((String::from_utf8_lossy(&text).into_owned(), versions));
        }
    }

    /// Puts another text in place of the one there is. Durable when this returns.
    fn write(&self, text: &str) -> Result<()> {
        let guard = self.pool.pin();
        let cells = self.cells(&guard)?;
        loop {
            let old = self.pmwcas.read_helping(&guard, &cells[TEXT])? & VALUE_MASK;
            let versions = self.pmwcas.read_helping(&guard, &cells[VERSIONS])? & VALUE_MASK;
            let mut change = self.pmwcas.allocate();
            change.add_word(&guard, &cells[VERSIONS], versions, versions + 1)?;
            // The operation owns the records of the word: if it fails the new record is freed,
            // otherwise the old one.
            change.reserve_entry(&guard, &cells[TEXT], old, Recycling::FreeOne)?;
            change.fill_entry(
                &guard,
                &cells[TEXT],
                record::write(&guard, b"", text.as_bytes())?,
            )?;
            let done = change.execute_with(&guard, |recycled| match recycled {
                Recycled::Replaced(0) => println!("nothing was there before"),
                Recycled::Replaced(record) => {
                    println!("the record at {record:#x} is free once nobody reads it");
                    guard.retire(record);
                }
                Recycled::Unused(record) => guard.free(record),
            })?;
            if done {
                return Ok(());
            }
            // Another thread was faster.
        }
    }

    /// Closes the pool.
    fn close(self) -> Result<()> {
        let guard = self.pool.pin();
        // Otherwise descriptors may name words that are cut off with the file's free tail, and the
        // next open refuses them.
        self.pmwcas.finish(&guard)?;
        drop(guard);
        Ok(self.pool.close()?)
    }
}

fn medium(path: &Path) -> Result<File> {
    let mut log = path.as_os_str().to_owned();
    log.push(".log");
    let pool = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    let options = FileOptions {
        mark_offset: pool::MEDIUM_LINE,
        ..FileOptions::default()
    };
    Ok(File::beside(pool, &PathBuf::from(log), options)?)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let usage = "usage: pmwcas FILE TEXT, or pmwcas FILE --crash";
    let path = arguments.next().ok_or(usage)?;
    let text = arguments.next().ok_or(usage)?;
    let document = Document::open(Pool::open(
        medium(Path::new(&path))?,
        PoolOptions::default(),
    )?)?;
    let (before, versions) = document.read()?;
    println!("version {versions}: {before:?}");
    if text == "--crash" {
        document.write("before the crash")?;
        std::process::abort();
    }
    document.write(&text.to_string_lossy())?;
    let (after, versions) = document.read()?;
    println!("version {versions}: {after:?}");
    document.close()
}
