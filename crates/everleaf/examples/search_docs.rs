//! A search in documentation: an inverted index of words that survives `kill -9` at any moment, and
//! goes on where it was.
//!
//! ```text
//! cargo run --release -p everleaf --example search_docs -- index /usr/share/doc
//! cargo run --release -p everleaf --example search_docs -- find copyright holder
//! ```
//!
//! Three trees: `files` by path, with number and length; `words`, by word and number of the file,
//! with how often it occurs there; `paths` by number. A file is entered in `files` last, once all
//! of its words are durable. So after a kill a file is either in the index or read again, and
//! reading it again writes the same entries.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use everleaf::{Error, Pending, Store, TypedTree};

/// Longer files are no documentation to be read.
const FILE_BYTES_MAX: u64 = 1 << 20;
const WORD_BYTES: std::ops::RangeInclusive<usize> = 2..=40;
const RESULTS: usize = 10;

struct Index {
    store: Store,
    files: TypedTree<String, (u32, u64)>,
    words: TypedTree<(String, u32), u32>,
    paths: TypedTree<u32, String>,
}

impl Index {
    fn open(path: &str) -> Result<Self, Error> {
        let store = Store::open(path)?;
        let files = store.typed("files")?;
        let words = store.typed("words")?;
        let paths = store.typed("paths")?;
        Ok(Self {
            store,
            files,
            words,
            paths,
        })
    }

    /// Adds a file, unless the index has it with this length.
    fn add(&self, path: &str, text: &str) -> Result<bool, Error> {
        let known = self.files.get(path)?;
        let length = text.len() as u64;
        if known.is_some_and(|(_, known)| known == length) {
            return Ok(false);
        }
        let number = match known {
            Some((number, _)) => number,
            None => self.paths.last()?.map_or(0, |(last, _)| last + 1),
        };
        let mut writes = vec![self.paths.pending().put(&number, path)?];
        for (word, count) in count_words(text) {
            writes.push(self.words.pending().put(&(word, number), &count)?);
        }
        // One wait for all of them; then the file counts.
        Pending::wait_all(writes)?;
        self.files.put(path, &(number, length))?;
        Ok(true)
    }

    /// The files that have all of these words, those where they occur most often first.
    fn find(&self, wanted: &[String]) -> Result<Vec<(u32, String)>, Error> {
        let mut ranks: Option<HashMap<u32, u32>> = None;
        for word in wanted {
            let mut found = HashMap::new();
            for entry in self.words.prefix(word.to_lowercase().as_str()) {
                let ((_, number), count) = entry?;
                let before = ranks
                    .as_ref()
                    .map_or(Some(0), |ranks| ranks.get(&number).copied());
                if let Some(before) = before {
                    found.insert(number, before + count);
                }
            }
            ranks = Some(found);
        }
        let mut ranked: Vec<_> = ranks.unwrap_or_default().into_iter().collect();
        ranked.sort_unstable_by_key(|(number, rank)| (std::cmp::Reverse(*rank), *number));
        let path = |(number, rank)| Ok((rank, self.paths.get(&number)?.unwrap_or_default()));
        ranked.into_iter().map(path).collect()
    }
}

fn count_words(text: &str) -> HashMap<String, u32> {
    let mut counts = HashMap::new();
    let words = text.split(|letter: char| !letter.is_alphanumeric());
    for word in words.filter(|word| WORD_BYTES.contains(&word.len())) {
        *counts.entry(word.to_lowercase()).or_default() += 1;
    }
    counts
}

/// All files below a folder that hold text. Files that cannot be read are left out.
fn texts(
    folder: &Path,
    visit: &mut impl FnMut(&Path, &str) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file()
                && entry
                    .metadata()
                    .is_ok_and(|file| file.len() <= FILE_BYTES_MAX)
                && let Ok(text) = std::fs::read_to_string(&path)
            {
                visit(&path, &text)?;
            }
        }
    }
    Ok(())
}

fn run() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let index = Index::open("search_docs.pool")?;
    match arguments.split_first() {
        Some((command, [folder])) if command == "index" => {
            let before = index.files.len()?;
            let added = Cell::new(0);
            println!("{before} files were in the index");
            texts(Path::new(folder), &mut |path, text| {
                if index.add(&path.to_string_lossy(), text)? {
                    added.set(added.get() + 1);
                }
                Ok(())
            })?;
            let words = index.words.len()?;
            println!(
                "{} files were read; the index has {} files and {words} entries",
                added.get(),
                index.files.len()?
            );
        }
        Some((command, wanted)) if command == "find" && !wanted.is_empty() => {
            let found = index.find(wanted)?;
            println!("{} files have all of {wanted:?}", found.len());
            found
                .iter()
                .take(RESULTS)
                .for_each(|(count, path)| println!("{count:>6}  {path}"));
        }
        _ => println!("usage: search_docs index FOLDER | find WORD..."),
    }
    drop((index.files, index.words, index.paths));
    Ok(index.store.close()?)
}

fn main() -> ExitCode {
    run().map_or_else(
        |error| {
            eprintln!("search_docs: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}
