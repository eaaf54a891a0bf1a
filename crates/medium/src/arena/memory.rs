//! The memory of an arena: a block of the heap, and a mapping.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::Volatile;
use crate::error::{Grown, MapError};
use crate::mapping::{Mapping, keeps_ranges};
use crate::{LINE_BYTES, MediumError};

/// Bytes of the block of the heap, unless two elements need more.
const BLOCK_BYTES: usize = 4096;
/// Bytes by which the mapping grows: small at first, huge pages later.
const STEP_BYTES_MIN: u64 = 1 << 16;
const STEP_BYTES_MAX: u64 = 4 << 20;

/// Zeroed elements of type `T`, which never move.
///
/// Element `index` lies at the same distance from the beginning of the block or of the mapping: the
/// beginning of the mapping is not used. On threads that keep ranges there is no block, and all
/// elements lie in the mapping.
// In this order, so that the fields which each access reads lie together.
#[repr(C)]
#[derive(Debug)]
pub(super) struct ArenaMemory<T> {
    /// Elements below this are accessible.
    reached: AtomicU32,
    /// Where the first elements lie.
    first: AtomicPtr<T>,
    /// Where the mapping begins.
    mapped: AtomicPtr<T>,
    limit_bytes: u64,
    block: OnceLock<HeapBlock>,
    mapping: OnceLock<Mapping>,
    elements: PhantomData<fn() -> T>,
}

impl<T: Volatile> ArenaMemory<T> {
    /// Elements in the block.
    const FIRST: u32 = {
        assert!(align_of::<T>() <= LINE_BYTES);
        let count = BLOCK_BYTES / size_of::<T>();
        if count < 2 { 2 } else { count as u32 }
    };

    pub(super) fn new(capacity: u32) -> Result<Self, MediumError> {
        let bytes = (u64::from(capacity) + 1) * size_of::<T>() as u64;
        let mut memory = Self {
            reached: AtomicU32::new(0),
            first: AtomicPtr::default(),
            mapped: AtomicPtr::default(),
            limit_bytes: bytes.next_multiple_of(STEP_BYTES_MAX),
            block: OnceLock::new(),
            mapping: OnceLock::new(),
            elements: PhantomData,
        };
        if keeps_ranges() {
            let start = memory.map()?.extent().base();
            *memory.first.get_mut() = start.cast();
        }
        Ok(memory)
    }

    /// The element at `index`, if the arena ever reached that far.
    #[inline(always)]
    pub(super) fn find(&self, index: u32) -> Option<&T> {
        // ORDER: pairs with the releases in `extend`: the memory of this element is visible below.
        if index >= self.reached.load(Ordering::Acquire) {
            return None;
        }
        // Both are loaded, so that the choice needs no branch.
        let first = self.first.load(Ordering::Relaxed);
        let mapped = self.mapped.load(Ordering::Relaxed);
        let start = if index < Self::FIRST { first } else { mapped };
        // SAFETY: `extend` raises `reached` only when the element is accessible there, in the block
        // or in the mapping, and neither moves or ends before this value is dropped. Both begin at
        // a line, and indices step by the size of an element. Zeroed or once written memory is a
        // valid `T`, and `T` is atomics only.
        Some(unsafe { &*start.wrapping_add(index as usize) })
    }

    /// Makes the memory of `elements` elements accessible. The caller lets no other thread do so at
    /// the same time.
    pub(super) fn extend(&self, elements: u64) -> Result<(), MediumError> {
        if elements <= u64::from(self.reached.load(Ordering::Relaxed)) {
            return Ok(());
        }
        if self.first.load(Ordering::Relaxed).is_null() {
            let bytes = Self::FIRST as usize * size_of::<T>();
            let block = HeapBlock::new(bytes)
                .map_err(|error| error.of_growth(0, bytes as u64, Grown::Memory))?;
            let start = self.block.get_or_init(|| block).start;
            self.first.store(start.as_ptr().cast(), Ordering::Relaxed);
            // ORDER: pairs with the acquire in `find`.
            self.reached.store(Self::FIRST, Ordering::Release);
        }
        if elements <= u64::from(self.reached.load(Ordering::Relaxed)) {
            return Ok(());
        }
        let end = elements * size_of::<T>() as u64;
        let first_bytes = u64::from(Self::FIRST) * size_of::<T>() as u64;
        let mapping = self
            .map()
            .map_err(|error| error.of_growth(first_bytes, end, Grown::Memory))?;
        let extent = mapping.extent();
        let step = (extent.length() / 4)
            .clamp(STEP_BYTES_MIN, STEP_BYTES_MAX)
            .next_power_of_two();
        mapping.grow(end.next_multiple_of(step))?;
        let reached = extent.length() / size_of::<T>() as u64;
        self.mapped.store(extent.base().cast(), Ordering::Relaxed);
        // ORDER: as above.
        self.reached.store(
            u32::try_from(reached).unwrap_or(u32::MAX),
            Ordering::Release,
        );
        Ok(())
    }

    /// The mapping, made when it is first needed.
    fn map(&self) -> Result<&Mapping, MapError> {
        if let Some(mapping) = self.mapping.get() {
            return Ok(mapping);
        }
        let mapping = Mapping::memory(self.limit_bytes, Grown::Memory)?;
        Ok(self.mapping.get_or_init(|| mapping))
    }

    /// Says that elements from `used` on are zero.
    pub(super) fn set_used(&mut self, used: u32) {
        if let Some(mapping) = self.mapping.get_mut() {
            mapping.set_written(u64::from(used) * size_of::<T>() as u64);
        }
    }
}

/// Zeroed memory of the heap that begins at a line.
#[derive(Debug)]
struct HeapBlock {
    start: NonNull<u8>,
    allocation: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block owns its memory, as a `Box` does; only addresses are kept here.
unsafe impl Send for HeapBlock {}
// SAFETY: as above; the memory is accessed as atomics only.
unsafe impl Sync for HeapBlock {}

impl HeapBlock {
    fn new(bytes: usize) -> Result<Self, MapError> {
        let refused = || MapError {
            action: "allocate",
            bytes: bytes as u64,
            source: std::io::ErrorKind::OutOfMemory.into(),
        };
        // The allocator knows that fresh memory is zero only if it is asked for no more than its
        // own alignment.
        let layout = Layout::from_size_align(bytes + LINE_BYTES, align_of::<u64>())
            .map_err(|_| refused())?;
        // SAFETY: the size is not zero.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
        let padding = allocation.as_ptr().align_offset(LINE_BYTES);
        // SAFETY: less than a line, by which the allocation is larger than `bytes`.
        let start = unsafe { allocation.add(padding) };
        Ok(Self {
            start,
            allocation,
            layout,
        })
    }
}

impl Drop for HeapBlock {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout, and nobody holds references into it any more.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) };
    }
}
