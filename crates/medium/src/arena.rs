//! Volatile memory addressed by 32-bit indices.
//!
//! Inner nodes and the volatile records of leaves live in arenas. An index takes half the bytes of
//! a pointer. A thread may use the index of an element that was freed meanwhile: it leads to *some*
//! element, and any bits are a valid one.
//!
//! The first elements of an arena lie in a block of the heap, because most arenas of small trees
//! need no more, and a process may have no more than some ten thousand mappings. The elements behind
//! lie in a mapping, which has huge pages where the system gives them. No element ever moves.

use std::marker::PhantomData;
use std::sync::Arc;

#[cfg(not(loom))]
use self::memory::ArenaMemory;
use crate::MediumError;
use crate::mapping::keep_ranges;
use crate::sync::{Atomic, AtomicU32, AtomicU64, Mutex, Ordering, Pin};

#[cfg(not(loom))]
mod memory;

/// A type that may lie in an [`Arena`]. Implemented by [`volatile!`](crate::volatile!) only.
///
/// # Safety
/// The type is `repr(C)` and consists of `AtomicU64`s and arrays of them, so that zeroed memory is
/// a valid value, and has no `Drop`.
pub unsafe trait Volatile: Send + Sync + 'static {
    /// A value of zeros. Only the arena under `loom` needs it, whose atomics have to be
    /// constructed; mapped memory is zero.
    fn zeros() -> Self;
}

// SAFETY: zero is a valid value.
unsafe impl Volatile for AtomicU64 {
    fn zeros() -> Self {
        Self::new(0)
    }
}
// SAFETY: zero is a valid value.
unsafe impl Volatile for AtomicU32 {
    fn zeros() -> Self {
        Self::new(0)
    }
}
// SAFETY: a transparent wrapper of an atomic word.
unsafe impl<M: 'static> Volatile for Atomic<M> {
    fn zeros() -> Self {
        Self::new(0)
    }
}
// SAFETY: an array is valid where its elements are.
unsafe impl<T: Volatile, const N: usize> Volatile for [T; N] {
    fn zeros() -> Self {
        std::array::from_fn(|_| T::zeros())
    }
}

/// Declares a type for an [`Arena`](crate::arena::Arena): a struct of atomic words, aligned to a
/// line. It may have one parameter, the medium of its [`Atomic`](crate::sync::Atomic)s.
#[macro_export]
macro_rules! volatile {
    ($(#[$meta:meta])* $vis:vis struct $name:ident $(<$medium:ident>)? {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident : $type:ty),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug)]
        #[repr(C, align(64))]
        $vis struct $name $(<$medium: 'static>)? {
            $($(#[$field_meta])* $field_vis $field: $type),*
        }
        // SAFETY: `repr(C)`, and the where clauses hold every field to `Volatile`.
        unsafe impl $(<$medium: 'static>)? $crate::private::Volatile for $name $(<$medium>)?
        where $($type: $crate::private::Volatile),*
        {
            fn zeros() -> Self {
                Self { $($field: <$type as $crate::private::Volatile>::zeros()),* }
            }
        }
    };
}

/// Elements of one type, addressed by index. Index 0 is never allocated and may mean "none".
#[derive(Debug)]
pub struct Arena<T: Volatile> {
    #[cfg(not(loom))]
    memory: ArenaMemory<T>,
    #[cfg(loom)]
    modelled: Vec<T>,
    /// Elements below this were allocated at least once.
    used: AtomicU32,
    free: Mutex<Vec<u32>>,
    elements: PhantomData<fn() -> T>,
}

/// Sets whether small mappings that this thread drops leave their memory to the next ones that it
/// makes. Its arenas then begin with a mapping, not with a block of the heap.
///
/// Making a mapping otherwise costs two system calls and a page fault: a pool that stays open does
/// not notice them, but a harness that opens ten thousand pools a second would spend most of its
/// time on them. A scheduler also needs words that have the same numbers in each run
/// ([`Access::named`](crate::sync::schedule::Access::named)), and so lie at the same distance from
/// the beginning of a huge page.
pub fn reuse_on_this_thread(reuse: bool) {
    keep_ranges(reuse);
}

#[cfg(not(loom))]
impl<T: Volatile> Drop for Arena<T> {
    fn drop(&mut self) {
        self.memory.set_used(*self.used.get_mut());
    }
}

#[cfg(not(loom))]
impl<T: Volatile> Arena<T> {
    /// An empty arena for at most `capacity` elements. It takes neither memory nor addresses before
    /// the first element is allocated.
    pub fn new(capacity: u32) -> Result<Self, MediumError> {
        Ok(Self {
            memory: ArenaMemory::new(capacity)?,
            used: AtomicU32::new(1),
            free: Mutex::new(Vec::new()),
            elements: PhantomData,
        })
    }

    /// The element at `index`.
    ///
    /// # Panics
    /// If the index was never allocated.
    #[inline(always)]
    pub fn get(&self, index: u32) -> &T {
        self.find(index).expect("an index of this arena")
    }

    /// The element at `index`, if the arena ever reached that far.
    #[inline(always)]
    pub fn find(&self, index: u32) -> Option<&T> {
        self.memory.find(index)
    }

    /// Makes the memory of `elements` elements accessible. The caller holds the lock of the free
    /// list.
    fn extend(&self, elements: u64) -> Result<(), MediumError> {
        self.memory.extend(elements)
    }
}

/// Elements of an arena under `loom`, which cannot model mapped memory.
#[cfg(loom)]
const MODELLED_MAX: u32 = 10;

#[cfg(loom)]
impl<T: Volatile> Arena<T> {
    /// An empty arena of few elements, whatever the capacity.
    pub fn new(_capacity: u32) -> Result<Self, MediumError> {
        let modelled = (0..MODELLED_MAX).map(|_| T::zeros()).collect();
        Ok(Self {
            modelled,
            used: AtomicU32::new(1),
            free: Mutex::new(Vec::new()),
            elements: PhantomData,
        })
    }

    /// The element at `index`.
    pub fn get(&self, index: u32) -> &T {
        &self.modelled[index as usize]
    }

    /// The element at `index`, if the arena ever reached that far.
    pub fn find(&self, index: u32) -> Option<&T> {
        self.modelled.get(index as usize)
    }

    fn extend(&self, elements: u64) -> Result<(), MediumError> {
        assert!(elements <= u64::from(MODELLED_MAX), "a model is small");
        Ok(())
    }
}

impl<T: Volatile> Arena<T> {
    /// The element at `index`, or element 0 if the index was never allocated. It is for a reader
    /// beside writers, which may read an outdated index and validates it afterwards.
    ///
    /// # Panics
    /// If nothing was ever allocated.
    #[inline(always)]
    pub fn peek(&self, index: u32) -> &T {
        match self.find(index) {
            Some(element) => element,
            None => self.get(0),
        }
    }

    /// An element for the caller alone. It holds zeros or the content of a freed element.
    pub fn allocate(&self) -> Result<u32, MediumError> {
        let mut free = self.free.lock();
        if let Some(index) = free.pop() {
            return Ok(index);
        }
        let index = self.used.load(Ordering::Relaxed);
        self.extend(u64::from(index) + 1)?;
        self.used.store(index + 1, Ordering::Release);
        Ok(index)
    }

    /// `count` adjacent elements that were never used; returns the first index.
    pub fn allocate_run(&self, count: u32) -> Result<u32, MediumError> {
        let _free = self.free.lock();
        let first = self.used.load(Ordering::Relaxed);
        self.extend(u64::from(first) + u64::from(count))?;
        self.used.store(first + count, Ordering::Release);
        Ok(first)
    }

    /// Makes all elements up to `index` accessible, for an arena that has an element for each
    /// element of another arena.
    pub fn reach(&self, index: u32) -> Result<(), MediumError> {
        if index < self.used.load(Ordering::Acquire) {
            return Ok(());
        }
        let _free = self.free.lock();
        self.extend(u64::from(index) + 1)?;
        self.used.fetch_max(index + 1, Ordering::Release);
        Ok(())
    }

    /// Gives an element back that no thread can reach any more.
    pub fn free(&self, index: u32) {
        debug_assert!(index != 0 && index < self.used.load(Ordering::Relaxed));
        self.free.lock().push(index);
    }

    /// Gives an element back once no thread that is pinned now is pinned any more.
    pub fn retire(self: &Arc<Self>, pin: &Pin, index: u32) {
        let arena = Arc::clone(self);
        pin.defer(move || arena.free(index));
    }

    /// One more than the highest index that was ever allocated.
    pub fn len(&self) -> u32 {
        self.used.load(Ordering::Acquire)
    }

    /// Whether nothing was ever allocated.
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// Bytes of the elements in use.
    pub fn bytes_used(&self) -> u64 {
        let free = self.free.lock().len() as u64;
        (u64::from(self.used.load(Ordering::Relaxed)) - 1 - free) * size_of::<T>() as u64
    }
}

#[cfg(test)]
mod tests;
