//! A medium behind a pointer: several owners share it, and tests and benchmarks may count its
//! stores and fences, or delay its fences.
//!
//! Engines are compiled for each medium. Code that only measures needs one compiled form for all of
//! them. This type wraps every medium whose loads may read memory directly.

use std::any::Any;
use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::count::Counters;
use crate::{Counts, Extent, LineForm, LineValue, Lsn, Medium, MediumError, Survives};

/// The notes of the medium inside, made when the first of them is taken.
#[derive(Default)]
pub struct AnyNotes(OnceCell<Box<dyn Any>>);

impl AnyNotes {
    fn of<M: Medium>(&self) -> &M::Notes
    where
        M::Notes: 'static,
    {
        let notes = self.0.get_or_init(|| Box::new(M::Notes::default()));
        notes.downcast_ref().expect("a guard stays with its medium")
    }
}

/// Hands the methods of [`Medium`] that are passed on as they are to another macro.
macro_rules! passed_on {
    ($then:ident!) => {
        $then! {
            extent() -> &Extent;
            grow(length: u64) -> Result<(), MediumError>;
            release(start: u64, bytes: u64) -> ();
            reserve(start: u64, bytes: u64) -> Result<(), MediumError>;
            is_hole(offset: u64) -> bool;
            cut(length: u64) -> Result<(), MediumError>;
            line_form() -> LineForm;
            start_volatile(word: &AtomicU64, value: u64) -> ();
            store_volatile(word: &AtomicU64, value: u64, order: Ordering) -> ();
            compare_exchange_volatile(word: &AtomicU64, values: [u64; 2], success: Ordering) -> Result<u64, u64>;
            durable() -> Lsn;
            wait(lsn: Lsn) -> Result<(), MediumError>;
            left_to_caller(lsn: Lsn) -> Lsn;
            wake_when_durable(lsn: Lsn, waker: &Waker) -> Result<bool, MediumError>;
            keep_up(lsn: Lsn) -> Result<(), MediumError>;
            settle(lsn: Lsn) -> Result<(), MediumError>;
            await_memory() -> Result<(), MediumError>;
            admit() -> Result<(), MediumError>;
            prepare_finish() -> Result<(), MediumError>;
            finish() -> Result<(), MediumError>;
            survives() -> Survives;
        }
    };
}

macro_rules! declare {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        /// The part of [`Medium`] that the medium inside answers, without its types and constants.
        trait Inner: Send + Sync {
            $(fn $name(&self $(, $argument: $type)*) -> $result;)*
            fn shrink(&mut self, length: u64) -> Result<(), MediumError>;
            fn store(&self, word: &AtomicU64, value: u64);
            fn compare_exchange(&self, word: &AtomicU64, current: u64, new: u64) -> Result<u64, u64>;
            fn store_line(
                &self,
                notes: &AnyNotes,
                line: &[AtomicU64; 8],
                value: &LineValue,
            ) -> Result<(), MediumError>;
            fn store_copy(&self, notes: &AnyNotes, copy: &[AtomicU64; 8], value: &LineValue);
            fn flush(&self, notes: &AnyNotes, memory: &[AtomicU64]);
            fn fence(&self, notes: &AnyNotes) -> Lsn;
            fn describe(&self) -> String;
        }
    };
}
passed_on!(declare!);

macro_rules! pass_to_medium {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(#[track_caller]
        fn $name(&self $(, $argument: $type)*) -> $result {
            Medium::$name(self $(, $argument)*)
        })*
    };
}

macro_rules! pass_to_inner {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(#[inline(always)]
        #[track_caller]
        fn $name(&self $(, $argument: $type)*) -> $result {
            self.medium.$name($($argument),*)
        })*
    };
}

impl<M: Medium<Notes: 'static>> Inner for M {
    passed_on!(pass_to_medium!);

    fn store(&self, word: &AtomicU64, value: u64) {
        Medium::store(self, word, value);
    }

    fn compare_exchange(&self, word: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        Medium::compare_exchange(self, word, current, new)
    }

    fn describe(&self) -> String {
        Medium::describe(self)
    }

    fn shrink(&mut self, length: u64) -> Result<(), MediumError> {
        Medium::shrink(self, length)
    }

    fn store_line(
        &self,
        notes: &AnyNotes,
        line: &[AtomicU64; 8],
        value: &LineValue,
    ) -> Result<(), MediumError> {
        Medium::store_line(self, notes.of::<M>(), line, value)
    }

    fn store_copy(&self, notes: &AnyNotes, copy: &[AtomicU64; 8], value: &LineValue) {
        Medium::store_copy(self, notes.of::<M>(), copy, value);
    }

    fn flush(&self, notes: &AnyNotes, memory: &[AtomicU64]) {
        Medium::flush(self, notes.of::<M>(), memory);
    }

    fn fence(&self, notes: &AnyNotes) -> Lsn {
        Medium::fence(self, notes.of::<M>())
    }
}

/// A medium that several owners share, and that is counted or slowed down if they ask for it. A
/// clone is the same medium: what one owner wrote the next one opens again.
///
/// A store costs one indirect call more than on the medium inside; a load costs the same.
/// [`Medium::shrink`] does nothing while there is another owner.
#[derive(Clone)]
pub struct Instrumented {
    medium: Arc<dyn Inner>,
    counters: Option<Arc<Counters>>,
    delay_ns: Option<Arc<AtomicU64>>,
}

impl Instrumented {
    /// Takes a medium.
    ///
    /// # Panics
    /// If loads may not bypass the medium: the crash explorer's.
    pub fn new<M: Medium<Notes: 'static>>(medium: M) -> Self {
        Self::sharing(&Arc::new(medium))
    }

    /// Shares a medium, which the caller goes on using by its own type.
    ///
    /// # Panics
    /// In the same cases as [`Instrumented::new`].
    pub fn sharing<M: Medium<Notes: 'static>>(medium: &Arc<M>) -> Self {
        assert!(
            M::DIRECT && !M::SCHEDULED,
            "an instrumented medium is read directly"
        );
        Self {
            medium: Arc::clone(medium) as _,
            counters: None,
            delay_ns: None,
        }
    }

    /// Counts from zero what reaches the medium, for [`Instrumented::counts`].
    #[must_use]
    pub fn counted(self) -> Self {
        Self {
            counters: Some(Arc::default()),
            ..self
        }
    }

    /// Makes every fence this much slower, as section 6 of the InCLL paper (ASPLOS'19) does to
    /// stand for slower memory.
    #[must_use]
    pub fn delayed(self, delay_ns: u64) -> Self {
        Self {
            delay_ns: Some(Arc::new(AtomicU64::new(delay_ns))),
            ..self
        }
    }

    /// The counts, if this counts. Exact for what this thread did and for what happened
    /// before.
    pub fn counts(&self) -> Option<Counts> {
        self.counters.as_ref().map(|counters| counters.counts())
    }

    /// Changes the delay of a medium that is [delayed](Instrumented::delayed), for fences that
    /// begin after this.
    pub fn set_delay_ns(&self, ns: u64) {
        if let Some(delay_ns) = &self.delay_ns {
            delay_ns.store(ns, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn count(&self, add: impl FnOnce(&Counters)) {
        if let Some(counters) = &self.counters {
            add(counters);
        }
    }
}

impl std::fmt::Debug for Instrumented {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&Medium::describe(self))
    }
}

/// Keeps the processor busy for `ns` nanoseconds, to within a reading of the clock (about 20 ns).
fn spin(ns: u64) {
    let start = Instant::now();
    let delay = Duration::from_nanos(ns);
    while start.elapsed() < delay {
        std::hint::spin_loop();
    }
}

// SAFETY: the extent is the inner medium's, which lives as long as any of its owners.
unsafe impl Medium for Instrumented {
    type Notes = AnyNotes;
    // On a medium whose fences are durable every LSN is `Lsn::DURABLE`, so no thread waits.
    const LATE: bool = true;
    const DIRECT: bool = true;

    passed_on!(pass_to_inner!);

    fn shrink(&mut self, length: u64) -> Result<(), MediumError> {
        // Shrinking is sound only with exclusive access.
        Arc::get_mut(&mut self.medium).map_or(Ok(()), |only| only.shrink(length))
    }

    fn store(&self, word: &AtomicU64, value: u64) {
        // The old value is only counted, so it is read past the medium.
        self.count(|counters| counters.word(word.load(Ordering::Relaxed), value));
        self.medium.store(word, value);
    }

    fn compare_exchange(&self, word: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        let result = self.medium.compare_exchange(word, current, new);
        if result.is_ok() {
            self.count(|counters| counters.word(current, new));
        }
        result
    }

    fn store_line(
        &self,
        notes: &AnyNotes,
        line: &[AtomicU64; 8],
        value: &LineValue,
    ) -> Result<(), MediumError> {
        let old = self
            .counters
            .as_ref()
            .map(|_| line.each_ref().map(|word| word.load(Ordering::Relaxed)));
        self.medium.store_line(notes, line, value)?;
        if let Some(old) = old {
            self.count(|counters| counters.line(&old, &value.0));
        }
        Ok(())
    }

    fn store_copy(&self, notes: &AnyNotes, copy: &[AtomicU64; 8], value: &LineValue) {
        self.count(|counters| {
            for (word, new) in copy.iter().zip(value.0) {
                counters.word(word.load(Ordering::Relaxed), new);
            }
            counters.flush(copy);
        });
        self.medium.store_copy(notes, copy, value);
    }

    fn flush(&self, notes: &AnyNotes, memory: &[AtomicU64]) {
        self.count(|counters| counters.flush(memory));
        self.medium.flush(notes, memory);
    }

    fn fence(&self, notes: &AnyNotes) -> Lsn {
        self.count(Counters::fence);
        let lsn = self.medium.fence(notes);
        match self
            .delay_ns
            .as_ref()
            .map_or(0, |delay_ns| delay_ns.load(Ordering::Relaxed))
        {
            0 => {}
            delay_ns => spin(delay_ns),
        }
        lsn
    }

    fn describe(&self) -> String {
        let mut description = self.medium.describe();
        if let Some(delay_ns) = &self.delay_ns {
            description += &format!(
                "; every fence {} ns slower",
                delay_ns.load(Ordering::Relaxed)
            );
        }
        if self.counters.is_some() {
            description += "; counted";
        }
        description
    }
}

#[cfg(test)]
mod tests;
