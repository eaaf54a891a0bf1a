//! Volatile inner nodes: the upper levels of a B+-tree whose leaves belong to an engine.
//!
//! ## Layout
//!
//! Nodes of 31 separators and 32 children lie in an arena and are named by 32-bit indices (`node`).
//! Level 1 leads to leaves, by the index that the leaves' owner gave them. The separator before
//! child `i` is a lower bound of its keys and above all keys of child `i - 1`. For codecs whose
//! first words tie, a separator also has a *tail*: its whole key, as a record in a volatile heap;
//! and a node keeps some of the bytes with which all its separators begin, and orders them by the
//! words behind ([`kit::shared_prefix`](super::shared_prefix)). A key that does not begin with these bytes
//! belongs to the first child or to the last one.
//!
//! ## Concurrency
//!
//! Readers are optimistic (optimistic lock coupling, Leis et al., DaMoN 2016): they take a node's
//! version, read, take the child's version, and only then validate the node's. Changes of structure
//! are serialised by one mutex, which a leaf needs only when it splits or merges; they lock every
//! node that they change until all are changed, so that a reader that validates has seen none or
//! all of a change.
//!
//! A descent may still end at a leaf that has just been split: the leaf's owner keeps a high key in
//! each leaf, and moves right. It never ends right of the key. A leaf's lower bound does not change;
//! where the bound of a child rises in the inner nodes, because the first leaf below it is removed,
//! every node between that separator and the leaf is locked.
//!
//! Nothing here survives the process: the nodes are rebuilt from the leaves ([`InnerTree::build`]).

mod change;
mod descend;
#[cfg(all(test, loom))]
mod loom_tests;
mod node;

use std::cmp::Ordering as Compare;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use medium::arena::Arena;
use medium::sync::{AtomicU64, Mutex, Ordering, pin_on};
use medium::{Dax, Pin};
use pool::{Guard, Pool, PoolOptions};

use crate::index::Codec;
use crate::{Error, Result};
use node::{InnerNode, Tails};

pub use change::{Neighbours, Structure};
pub use descend::{DescentEnd, DescentTarget, GROUP};
pub use node::CHILDREN_MAX;

/// The most inner nodes of one tree.
const NODES_MAX: u32 = 1 << 26;
/// The largest heap of separators, in bytes.
const HEAP_BYTES_MAX: u64 = 1 << 36;

/// A lower bound of a child's keys: the key itself, for codecs without ties; for the others the tail,
/// which is the offset of the whole key's record in the heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Separator(pub u64);

/// The inner nodes of one tree.
pub struct InnerTree<C: Codec> {
    nodes: Arc<Arena<InnerNode>>,
    /// The tails of node `i` are element `i`.
    tails: Option<Arena<Tails>>,
    /// The records that tails lead to, for codecs with ties. Made with the first one: a tree of one
    /// leaf has none.
    heap: OnceLock<Pool<Dax>>,
    /// Index of the root below its level; level 0 is a leaf.
    root: AtomicU64,
    structure: Mutex<()>,
    codec: PhantomData<fn() -> C>,
}

/// Access to separators.
pub struct HeapGuard<'t> {
    heap: &'t OnceLock<Pool<Dax>>,
    /// Keeps the records of separators that are retired meanwhile. `None` where there are no tails.
    _pin: Option<Pin>,
}

impl<'t> HeapGuard<'t> {
    /// Access to the records that tails lead to. The heap may be made by another thread after this
    /// guard; the pin covers its records, too.
    #[inline(always)]
    fn records(&self, tail: u64) -> Result<Guard<'t, Dax>> {
        match self.heap.get() {
            Some(heap) => Ok(heap.peek()),
            // A reader found a tail before the heap that it leads to. It validates what it read.
            None => Err(Error::corrupt(tail, "a separator without a record")),
        }
    }
}

#[cfg(all(test, loom))]
impl HeapGuard<'static> {
    /// Access where there are no tails, and so no heap.
    pub(crate) fn without_heap() -> Self {
        static NO_HEAP: OnceLock<Pool<Dax>> = OnceLock::new();
        Self {
            heap: &NO_HEAP,
            _pin: None,
        }
    }
}

fn pack(index: u32, level: u32) -> u64 {
    u64::from(level) << 32 | u64::from(index)
}

fn unpack(root: u64) -> (u32, u32) {
    (root as u32, (root >> 32) as u32)
}

impl<C: Codec> InnerTree<C> {
    /// A tree of one leaf.
    pub fn new(leaf: u32) -> Result<Self> {
        Ok(Self {
            nodes: Arc::new(Arena::new(NODES_MAX)?),
            tails: if C::TIES {
                Some(Arena::new(NODES_MAX)?)
            } else {
                None
            },
            heap: OnceLock::new(),
            root: AtomicU64::new(pack(leaf, 0)),
            structure: Mutex::new(()),
            codec: PhantomData,
        })
    }

    /// Opens access to separators.
    #[inline(always)]
    pub fn heap(&self) -> HeapGuard<'_> {
        HeapGuard {
            heap: &self.heap,
            _pin: if C::TIES { Some(pin_on::<Dax>()) } else { None },
        }
    }

    /// The heap, made when it is first needed.
    fn made_heap(&self) -> Result<&Pool<Dax>> {
        if let Some(heap) = self.heap.get() {
            return Ok(heap);
        }
        // The steps are small: most heaps stay small, and a step in memory is cheap.
        let options = PoolOptions {
            step_slabs_min: 1,
            close_on_drop: false,
            ..PoolOptions::default()
        };
        let memory = Dax::plain(HEAP_BYTES_MAX).map_err(medium::MediumError::from)?;
        let heap = Pool::open(memory, options)?;
        // If two threads make one, both take the first.
        Ok(self.heap.get_or_init(|| heap))
    }

    /// A separator with the key `key`.
    pub fn separator(&self, key: C::Key<'_>, bytes: &[u8]) -> Result<Separator> {
        if !C::TIES {
            return Ok(Separator(C::word(key)));
        }
        let heap = self.made_heap()?.pin();
        Ok(Separator(crate::index::record::write(&heap, bytes, &[])?))
    }

    /// Gives the memory of a separator back that new readers cannot find.
    pub fn retire_separator(&self, separator: Separator) {
        if let Some(heap) = self.heap.get()
            && separator != Separator::default()
        {
            heap.pin().retire(separator.0);
        }
    }

    /// How `key` compares with the whole key that a tail leads to.
    pub fn compare_tail(heap: &HeapGuard<'_>, key: C::Key<'_>, tail: u64) -> Result<Compare> {
        C::compare_tie(&heap.records(tail)?, key, [0, tail])
    }

    /// Appends the key of a separator, as bytes.
    pub fn copy_separator(
        heap: &HeapGuard<'_>,
        separator: Separator,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        if C::TIES {
            let heap = heap.records(separator.0)?;
            return crate::index::record::Record::at(&heap, separator.0)?.copy_key(&heap, buffer);
        }
        buffer.extend_from_slice(&separator.0.to_be_bytes());
        Ok(())
    }

    /// Levels of inner nodes.
    pub fn height(&self) -> u32 {
        unpack(self.root.load(Ordering::Acquire)).1
    }

    /// Bytes of volatile memory.
    pub fn bytes(&self) -> u64 {
        let tails = self.tails.as_ref().map_or(0, Arena::bytes_used);
        let heap = self.heap.get().map_or(0, |heap| heap.stat().used_bytes);
        self.nodes.bytes_used() + tails + heap
    }
}
