//! Records that lie in slabs that are to be emptied.

use medium::Lsn;
use pool::Evacuate;

use super::Index;
use crate::Result;

/// Keys whose records lie in slabs that are to be emptied. They are found some at a time, in
/// ascending order.
#[derive(Clone, Debug, Default)]
pub struct EvacuatedKeys {
    /// Keys that were found.
    pub keys: Vec<Vec<u8>>,
    /// The lower bounds of leaves that the engine can move, and that lie in such slabs, or below
    /// inner nodes that may lie there.
    pub nodes: Vec<Vec<u8>>,
    /// The key from which the search goes on; `None` at the beginning of the tree.
    pub from: Option<Vec<u8>>,
    /// Whether the search has come to the end of the tree.
    pub is_finished: bool,
}

/// How the attempt to move a record or a node ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// The copy has taken its place. This is durable at the LSN.
    Done(Lsn),
    /// There was nothing to do: it lies elsewhere, or is gone.
    NotEvacuated,
    /// The record or the node stays where it is: it is damaged, or another thread uses it, or has
    /// changed it meanwhile, or its node has no room for the change.
    Stays,
}

/// The slabs of an engine with an allocator of its own, by what they hold. Nodes and logs stay where
/// they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnSpace {
    /// Bytes of slabs of records, and of free room for records.
    pub record_bytes: u64,
    /// Bytes of slabs of nodes. Records of the size of an inner node are among them.
    pub node_bytes: u64,
    /// Bytes of slabs of logs, which are used again and again.
    pub log_bytes: u64,
}

impl std::ops::AddAssign for OwnSpace {
    fn add_assign(&mut self, other: Self) {
        self.record_bytes += other.record_bytes;
        self.node_bytes += other.node_bytes;
        self.log_bytes += other.log_bytes;
    }
}

/// The counts of records and nodes that were moved out of slabs that are to be emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MoveCount {
    /// Records that were moved.
    pub moved: u64,
    /// Nodes that were moved, or merged with others.
    pub nodes_moved: u64,
    /// Attempts after which a record or a node stays where it is.
    pub stayed: u64,
    /// Slabs that the engine's own allocator has chosen to be emptied.
    pub own_slabs: u64,
    /// The slabs of that allocator when the moves began.
    pub own_space: OwnSpace,
    /// All moves are durable at this LSN.
    pub lsn: Lsn,
}

impl MoveCount {
    fn add_record(&mut self, moved: Moved) {
        if self.note(moved) {
            self.moved += 1;
        }
    }

    fn add_node(&mut self, moved: Moved) {
        if self.note(moved) {
            self.nodes_moved += 1;
        }
    }

    /// Notes the LSN of a move, or that something stays. Returns whether it was moved.
    fn note(&mut self, moved: Moved) -> bool {
        match moved {
            Moved::Done(lsn) => {
                self.lsn = self.lsn.max(lsn);
                true
            }
            Moved::NotEvacuated => false,
            Moved::Stays => {
                self.stayed += 1;
                false
            }
        }
    }
}

impl dyn Index + '_ {
    /// Moves the records of the tree, and nodes if the engine can, out of slabs that are to be
    /// emptied ([`pool::Evacuation`]). An engine with an allocator of its own chooses slabs by
    /// `choice` first. Other threads may go on. Counts in `count`, also if there is an error. Calls
    /// `go_on` every few records, while no lock is held and the thread is not pinned, and ends early
    /// if it returns `false`. Returns whether it came to the end of the tree. O(n).
    ///
    /// # Errors
    /// [`ErrorKind::PoolFull`](crate::ErrorKind::PoolFull) if there is no room for a copy;
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the tree is damaged; other errors of
    /// [`Index::write`].
    pub fn evacuate(
        &self,
        choice: Evacuate,
        count: &mut MoveCount,
        go_on: &mut dyn FnMut(&MoveCount) -> Result<bool>,
    ) -> Result<bool> {
        /// Allows allocations again, also if a move panics.
        struct EndEvacuation<'t, I: Index + ?Sized>(&'t I);
        impl<I: Index + ?Sized> Drop for EndEvacuation<'_, I> {
            fn drop(&mut self) {
                self.0.end_evacuation();
            }
        }

        count.own_space = self.own_space()?;
        let own_slabs = self.begin_evacuation(choice)?;
        if own_slabs == 0 {
            return self.move_evacuated(count, go_on);
        }
        let _end = EndEvacuation(self);
        count.own_slabs += own_slabs;
        let is_done = self.move_evacuated(count, go_on);
        self.reclaim();
        is_done
    }

    fn move_evacuated(
        &self,
        count: &mut MoveCount,
        go_on: &mut dyn FnMut(&MoveCount) -> Result<bool>,
    ) -> Result<bool> {
        let mut evacuated = EvacuatedKeys::default();
        while !evacuated.is_finished {
            self.find_evacuated(&mut evacuated)?;
            for key in evacuated.keys.drain(..) {
                count.add_record(self.move_record(&key)?);
            }
            for low in evacuated.nodes.drain(..) {
                count.add_node(self.move_node(&low)?);
            }
            if !go_on(count)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
