//! The table of versions and LSNs, in memory, against which readers validate: by the offset of the
//! node.
//!
//! A node has no room for a version, and one version for the tree would make every reader wait for
//! every writer. So nodes share [`STRIPES`] versions. A writer raises the versions of all nodes
//! that a change concerns before it changes the first one, and again after the fence that orders
//! the change: they are odd meanwhile. Then it notes the LSN at which the change is durable.
//!
//! A reader takes the version of a node while the tree is certain to lead there, reads the node and
//! the entries of its IDs, and goes on if the version has not changed. So it needs no pin: if
//! memory is reused meanwhile, the version was raised before.

use medium::arena::Arena;
use medium::sync::{Atomic, Ordering, fence};
use medium::{Lsn, Medium, volatile};

use crate::Result;

/// Stripes of nodes. `loom` models few words, and its tests use two nodes.
const STRIPES: usize = if cfg!(loom) { 2 } else { 1024 };
const _: () = assert!(STRIPES.is_power_of_two());

volatile! {
    struct Stripes<M> {
        versions: [Atomic<M>; STRIPES],
        lsns: [Atomic<M>; STRIPES],
    }
}

/// Bytes of the table.
pub(super) const BYTES: u64 = 16 * STRIPES as u64;

/// The table.
pub(super) struct VersionTable<M: 'static> {
    /// They lie in an arena, where words have the same numbers in each run under a scheduler.
    stripes: Arena<Stripes<M>>,
}
fn stripe(offset: u64) -> usize {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - STRIPES.ilog2())) as usize
}

impl<M: Medium> VersionTable<M> {
    pub(super) fn new() -> Result<Self> {
        let stripes = Arena::new(1)?;
        stripes.allocate()?;
        Ok(Self { stripes })
    }
    fn version(&self, offset: u64) -> &Atomic<M> {
        &self.stripes.get(1).versions[stripe(offset)]
    }

    /// The version of a node; `None` while a writer changes it.
    pub(super) fn of(&self, offset: u64) -> Option<u64> {
        // ORDER: acquire pairs with the release in `lower`: the writer's changes are visible.
        let version = self.version(offset).load(Ordering::Acquire);
        (version & 1 == 0).then_some(version)
    }

    /// Whether a node has not changed since its version was taken.
    pub(super) fn is_still(&self, offset: u64, version: u64) -> bool {
        // ORDER: cells are stored after the version was raised: a reader that has read such a store
        // finds the version raised.
        fence(Ordering::Acquire);
        self.version(offset).load(Ordering::Relaxed) == version
    }

    /// From here on readers of a node wait.
    pub(super) fn raise(&self, offset: u64) {
        let version = self.version(offset);
        if version.load(Ordering::Relaxed) & 1 == 0 {
            // ORDER: no store passes this exchange, and a line store would pass a plain store.
            version.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Ends a change of a node: readers go on.
    pub(super) fn lower(&self, offset: u64) {
        let version = self.version(offset);
        let raised = version.load(Ordering::Relaxed);
        if raised & 1 != 0 {
            // ORDER: pairs with the acquire in `of`.
            version.store(raised + 1, Ordering::Release);
        }
    }

    /// The LSN at which the last change of a node, or of an entry that its IDs stand for, is
    /// durable.
    pub(super) fn lsn(&self, offset: u64) -> Lsn {
        Lsn(if M::LATE {
            self.stripes.get(1).lsns[stripe(offset)].load(Ordering::Acquire)
        } else {
            0
        })
    }

    /// Notes that a change of a node is durable at `lsn`.
    pub(super) fn stamp(&self, offset: u64, lsn: Lsn) {
        if M::LATE {
            self.stripes.get(1).lsns[stripe(offset)].store(lsn.0, Ordering::Release);
        }
    }

    /// Notes that changes of all nodes are durable at `lsn`.
    pub(super) fn stamp_all(&self, lsn: Lsn) {
        self.stripes
            .get(1)
            .lsns
            .iter()
            .for_each(|stripe| stripe.store(lsn.0, Ordering::Release));
    }

    /// The LSN at which all changes are durable.
    pub(super) fn last_lsn(&self) -> Lsn {
        let lsns = &self.stripes.get(1).lsns;
        lsns.iter()
            .map(|lsn| Lsn(lsn.load(Ordering::Acquire)))
            .max()
            .unwrap_or_default()
    }
}
