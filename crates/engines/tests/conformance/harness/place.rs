//! Where pools lie: media that can be opened again.

use std::sync::Arc;

use medium::{Dax, DaxOptions, LineStore, Medium, Ram};
use tempfile::NamedTempFile;

/// What a medium counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Fences.
    pub fences: u64,
    /// Lines flushed.
    pub flushes: u64,
}

/// Where a pool lies while nobody has it open.
pub trait Place: Sized + 'static {
    /// The medium.
    type Medium: Medium;

    /// A new place for at most `limit_bytes`; `None` where this machine lacks what it takes.
    fn new(limit_bytes: u64) -> Option<Self>;

    /// The medium, with all that was written there before.
    fn open(&self) -> Self::Medium;

    /// What was counted so far.
    fn counts(&self) -> Option<Counts> {
        None
    }
}

/// Plain memory.
pub struct InRam(Arc<Ram>);

impl Place for InRam {
    type Medium = Arc<Ram>;

    fn new(limit_bytes: u64) -> Option<Self> {
        Some(Self(Arc::new(Ram::new(limit_bytes).expect("address space"))))
    }

    fn open(&self) -> Arc<Ram> {
        Arc::clone(&self.0)
    }
}

/// A mapped file, in memory if the system has such a file system.
struct OnDax {
    file: NamedTempFile,
    options: DaxOptions,
}

impl OnDax {
    fn new(line_store: LineStore, limit_bytes: u64) -> Option<Self> {
        if !line_store.is_supported() {
            eprintln!("skipped: this processor has no {line_store}");
            return None;
        }
        let file = NamedTempFile::new_in("/dev/shm").or_else(|_| NamedTempFile::new()).expect("a file");
        Some(Self { file, options: DaxOptions { line_store, limit_bytes, ..DaxOptions::default() } })
    }

    fn open(&self) -> Dax {
        Dax::new(self.file.reopen().expect("the file"), self.options).expect("a mapping")
    }
}

macro_rules! on_dax {
    ($($(#[$meta:meta])* $name:ident: $line_store:expr;)*) => { $(
        $(#[$meta])*
        pub struct $name(OnDax);

        impl Place for $name {
            type Medium = Dax;

            fn new(limit_bytes: u64) -> Option<Self> {
                OnDax::new($line_store, limit_bytes).map(Self)
            }

            fn open(&self) -> Dax {
                self.0.open()
            }
        }
    )* };
}

on_dax! {
    /// A mapped file whose lines are twins.
    DaxTwin: LineStore::Twin;
    /// A mapped file whose lines are stored by AVX-512.
    DaxAvx512: LineStore::Avx512;
    /// A mapped file whose lines are stored by MOVDIR64B.
    DaxMovdir64b: LineStore::Movdir64b;
    /// A mapped file whose lines are stored in transactions.
    DaxRtm: LineStore::Rtm;
}
