//! A medium that is one of two, which shows when the program runs: what is generic over media is compiled once for both.

use std::sync::atomic::AtomicU64;

use crate::{Extent, LineForm, LineValue, Lsn, Medium, MediumError, Survives};

/// `A` or `B`: two media whose loads are plain loads ([`Medium::DIRECT`]), that no scheduler stops
/// ([`Medium::SCHEDULED`]), and that agree in when an LSN becomes durable ([`Medium::LATE`]); others do not compile.
///
/// Loads of words and lines cost what they cost on `A` and `B`, and pass them by: what counts loads is not for this. Whatever
/// else reaches the medium costs a call and a branch more, and reaching a node a branch, so this is for programs that want
/// many media and little code, as tests do.
#[derive(Debug)]
pub enum Either<A, B> {
    /// The one.
    A(A),
    /// The other.
    B(B),
}

macro_rules! on_either {
    ($medium:expr, $inner:ident => $run:expr) => {
        match $medium {
            Either::A($inner) => $run,
            Either::B($inner) => $run,
        }
    };
}

impl<A: Medium, B: Medium> Either<A, B> {
    const AGREE: () = assert!(
        A::LATE == B::LATE && A::DIRECT && B::DIRECT && !A::SCHEDULED && !B::SCHEDULED,
        "media that differ in what engines are compiled for"
    );
}

// SAFETY: extent and growth are those of the one medium that is inside, for good: it changes only while nobody borrows it.
unsafe impl<A: Medium, B: Medium> Medium for Either<A, B> {
    type Notes = (A::Notes, B::Notes);
    const LATE: bool = {
        let () = Self::AGREE;
        A::LATE
    };
    // So loads, and the kernels made of them, need not ask which it is.
    const DIRECT: bool = true;

    fn extent(&self) -> &Extent {
        on_either!(self, medium => medium.extent())
    }

    fn grow(&self, length: u64) -> Result<(), MediumError> {
        on_either!(self, medium => medium.grow(length))
    }

    fn shrink(&mut self, length: u64) -> Result<(), MediumError> {
        on_either!(self, medium => medium.shrink(length))
    }

    fn line_form(&self) -> LineForm {
        on_either!(self, medium => medium.line_form())
    }

    #[inline(never)]
    fn store(&self, word: &AtomicU64, value: u64) {
        on_either!(self, medium => medium.store(word, value));
    }

    #[inline(never)]
    fn start_volatile(&self, word: &AtomicU64, value: u64) {
        on_either!(self, medium => medium.start_volatile(word, value));
    }

    #[inline(never)]
    fn compare_exchange(&self, word: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        on_either!(self, medium => medium.compare_exchange(word, current, new))
    }

    #[inline(never)]
    fn store_line(
        &self,
        notes: &Self::Notes,
        line: &[AtomicU64; 8],
        value: &LineValue,
    ) -> Result<(), MediumError> {
        match self {
            Self::A(medium) => medium.store_line(&notes.0, line, value),
            Self::B(medium) => medium.store_line(&notes.1, line, value),
        }
    }

    #[inline(never)]
    fn store_copy(&self, notes: &Self::Notes, copy: &[AtomicU64; 8], value: &LineValue) {
        match self {
            Self::A(medium) => medium.store_copy(&notes.0, copy, value),
            Self::B(medium) => medium.store_copy(&notes.1, copy, value),
        }
    }

    #[inline(never)]
    fn flush(&self, notes: &Self::Notes, memory: &[AtomicU64]) {
        match self {
            Self::A(medium) => medium.flush(&notes.0, memory),
            Self::B(medium) => medium.flush(&notes.1, memory),
        }
    }

    #[inline(never)]
    fn fence(&self, notes: &Self::Notes) -> Lsn {
        match self {
            Self::A(medium) => medium.fence(&notes.0),
            Self::B(medium) => medium.fence(&notes.1),
        }
    }

    #[inline(never)]
    fn durable(&self) -> Lsn {
        on_either!(self, medium => medium.durable())
    }

    #[inline(never)]
    fn wait(&self, lsn: Lsn) -> Result<(), MediumError> {
        on_either!(self, medium => medium.wait(lsn))
    }

    #[inline(never)]
    fn defer(&self, lsn: Lsn) -> Result<(), MediumError> {
        on_either!(self, medium => medium.defer(lsn))
    }

    fn settle(&self, lsn: Lsn) -> Result<(), MediumError> {
        on_either!(self, medium => medium.settle(lsn))
    }

    #[inline(never)]
    fn admit(&self) -> Result<(), MediumError> {
        on_either!(self, medium => medium.admit())
    }

    fn finish(&self) -> Result<(), MediumError> {
        on_either!(self, medium => medium.finish())
    }

    fn file(&self) -> Option<&crate::File> {
        on_either!(self, medium => medium.file())
    }

    fn survives(&self) -> Survives {
        on_either!(self, medium => medium.survives())
    }

    fn describe(&self) -> String {
        on_either!(self, medium => medium.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Count, Guard, Ram};

    type Ours = Either<Count<Ram>, Ram>;

    fn counted() -> Ours {
        Either::A(Count::new(Ram::new(1 << 16).unwrap()))
    }

    #[test]
    fn it_is_the_one_that_is_inside() {
        for medium in [counted(), Either::B(Ram::new(1 << 16).unwrap())] {
            medium.grow(4096).unwrap();
            let guard = Guard::new(&medium);
            let words = guard.words(64, 8).unwrap();
            words[1].store(&guard, 7);
            assert_eq!(words[1].compare_exchange(&guard, 7, 8), Ok(7));
            guard.flush_words(words);
            guard.drain().unwrap();
            assert_eq!(words[1].load(&guard), 8);
            drop(guard);
            let Either::A(count) = &medium else { continue };
            let counts = count.counts();
            assert_eq!((counts.words_stored, counts.lines_flushed, counts.fences), (2, 1, 1));
        }
    }

    #[test]
    fn it_says_what_is_inside() {
        assert!(counted().describe().ends_with("; counted"), "{}", counted().describe());
        assert_eq!(counted().survives(), Survives::Nothing);
    }
}
