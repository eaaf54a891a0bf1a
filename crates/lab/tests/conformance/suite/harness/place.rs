//! Places for pools: media that can be opened again.

use std::sync::Arc;
use std::time::Duration;

use engines::engine::Host;
use medium::testing::late::{Late, Release};
use medium::{
    Counts, Dax, DaxOptions, File, FileOptions, Instrumented, LineForm, LineStore, Medium,
};
use tempfile::NamedTempFile;

/// The place of a pool, which keeps the content of a closed pool.
pub trait Place: Sized + 'static {
    /// The medium.
    type Medium: Host;

    /// How many bytes to flip in search of a panic, at most.
    const FLIPS: u32 = 50;

    /// A divisor for the number of cases, for slow media.
    const SLOWNESS: u32 = 1;

    /// Whether ordinary runs have nodes of full size here. Faults of a medium show in small nodes
    /// as well, which split more often.
    const HAS_FULL_NODES: bool = false;

    /// Whether this machine has the instructions and file systems that it needs.
    fn is_available() -> bool {
        true
    }

    /// A new place for at most `limit_bytes`.
    fn new(limit_bytes: u64) -> Self;

    /// The medium, with everything that was written there before.
    fn open(&self) -> Self::Medium;

    /// Called when the pool ended without a close.
    fn crash(&mut self) {}

    /// The counts so far, on a medium that counts.
    fn counts(medium: &Self::Medium) -> Option<Counts> {
        let _ = medium;
        None
    }
}

/// Plain memory that counts flushes and fences.
pub struct InRam(Instrumented);

impl Place for InRam {
    type Medium = Instrumented;

    // EVERLEAF_CASES raises it, to all bytes if it is large enough.
    const FLIPS: u32 = 60;
    const HAS_FULL_NODES: bool = true;

    fn new(limit_bytes: u64) -> Self {
        Self(Instrumented::new(Dax::plain(limit_bytes).expect("address space")).counted())
    }

    fn open(&self) -> Instrumented {
        self.0.clone()
    }

    fn counts(medium: &Instrumented) -> Option<Counts> {
        medium.counts()
    }
}

/// A mapped file, in memory if the system has such a file system.
struct OnDax {
    file: NamedTempFile,
    options: DaxOptions,
}

impl OnDax {
    fn new(line_store: LineStore, limit_bytes: u64) -> Self {
        let file = NamedTempFile::new_in("/dev/shm")
            .or_else(|_| NamedTempFile::new())
            .expect("a file");
        Self {
            file,
            options: DaxOptions {
                line_store,
                limit_bytes,
                ..DaxOptions::default()
            },
        }
    }

    fn open(&self) -> Dax {
        Dax::new(self.file.reopen().expect("the file"), self.options).expect("a mapping")
    }
}

macro_rules! on_dax {
    ($($(#[$meta:meta])* $name:ident: $line_store:expr, $flips:expr;)*) => { $(
        $(#[$meta])*
        pub struct $name(OnDax);

        impl Place for $name {
            type Medium = Dax;

            const FLIPS: u32 = $flips;

            fn is_available() -> bool {
                $line_store.is_supported()
            }

            fn new(limit_bytes: u64) -> Self {
                Self(OnDax::new($line_store, limit_bytes))
            }

            fn open(&self) -> Dax {
                self.0.open()
            }
        }
    )* };
}

on_dax! {
    /// A mapped file whose lines are twins.
    DaxTwin: LineStore::Twin, 40;
    /// A mapped file whose lines are stored by AVX-512.
    DaxAvx512: LineStore::Avx512, 30;
    /// A mapped file whose lines are stored by MOVDIR64B.
    DaxMovdir64b: LineStore::Movdir64b, 30;
    /// A mapped file whose lines are stored in transactions.
    DaxRtm: LineStore::Rtm, 30;
}

/// A file with a log beside it, both in memory if the system has such a file system: a crash leaves
/// the base image and the log, and nothing of the mapping.
pub struct OnFile {
    folder: tempfile::TempDir,
    limit_bytes: u64,
}

impl Place for OnFile {
    type Medium = File;

    const FLIPS: u32 = 10;
    const SLOWNESS: u32 = 4;
    const HAS_FULL_NODES: bool = true;

    fn new(limit_bytes: u64) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .expect("a folder");
        Self {
            folder,
            limit_bytes,
        }
    }

    fn open(&self) -> File {
        let mut open = std::fs::OpenOptions::new();
        let pool = open.read(true).write(true).create(true).truncate(false);
        let pool = pool.open(self.folder.path().join("pool")).expect("a file");
        // A small log, so that it is recycled, and little memory, so that written pages are given
        // back.
        let options = FileOptions {
            limit_bytes: self.limit_bytes,
            log_bytes: 512 << 10,
            log_bytes_max: 512 << 10,
            private_bytes_max: 256 << 10,
            mark_offset: pool::MEDIUM_LINE,
            ..FileOptions::default()
        };
        File::beside(pool, &self.folder.path().join("log"), options).expect("a log")
    }
}

/// Memory that becomes durable late. A crash leaves the durable content alone, so acknowledged
/// operations must be durable.
struct OnLate {
    late: Arc<Late>,
    limit_bytes: u64,
}

/// A fence is durable some fences later, or soon if a thread waits.
const RELEASE: Release = Release::After {
    fences: 3,
    delay: Duration::from_micros(2),
};

impl OnLate {
    fn new(limit_bytes: u64, line_form: LineForm) -> Self {
        let late = Late::new(limit_bytes, line_form).expect("address space");
        late.set_release(RELEASE);
        Self {
            late: Arc::new(late),
            limit_bytes,
        }
    }

    fn crash(&mut self) {
        let image = self.late.durable_image();
        let late = Late::from_image(&image, self.limit_bytes, self.late.line_form());
        self.late = Arc::new(late.expect("address space"));
        self.late.set_release(RELEASE);
    }
}

macro_rules! on_late {
    ($($(#[$meta:meta])* $name:ident: $line_form:expr;)*) => { $(
        $(#[$meta])*
        pub struct $name(OnLate);

        impl Place for $name {
            type Medium = Instrumented;

            const FLIPS: u32 = 10;
            const SLOWNESS: u32 = 10;

            fn new(limit_bytes: u64) -> Self {
                Self(OnLate::new(limit_bytes, $line_form))
            }

            fn open(&self) -> Instrumented {
                Instrumented::sharing(&self.0.late).counted()
            }

            fn counts(medium: &Instrumented) -> Option<Counts> {
                medium.counts()
            }

            fn crash(&mut self) {
                self.0.crash();
            }
        }
    )* };
}

on_late! {
    /// Late memory whose lines have one copy.
    LateSingle: LineForm::Single;
    /// Late memory whose lines are twins.
    LateTwin: LineForm::Twin;
}
