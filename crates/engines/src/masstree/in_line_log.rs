//! The in-line logs of a border node (section 4.1 of the paper), and when they do not suffice.
//!
//! - *InCLLp*: `permutation_log` is the permutation at the begin of the epoch that the epoch word
//!   names. In the line they are stored in this order: permutation log, epoch, permutation.
//! - *InCLL1, InCLL2*: one value of each of the two value lines, as it was at the begin of the
//!   epoch:
//!
//! ```text
//! bits 0..4 slot   4..48 the value, whose low four bits are 0   48..64 the low bits of the epoch      0: no log
//! ```
//!
//! The first change of a node in an epoch clears or rewrites the value logs of the previous epoch.
//! So a value log belongs to the epoch in its node's epoch word, or, if a crash kept only one of
//! the two lines, to an epoch less than 2^15 away: sixteen bits are enough. A node that did not
//! change for longer goes to the external log instead. The epoch word of a first touch after an
//! open need not be durable; it is made durable before the first value log.
//!
//! Three cases need the external log: a second value in one line; an insert after a remove, which
//! may overwrite a slot that the permutation log lists; and every change of more than one
//! permutation and some values.

use medium::{Medium, Word};

use super::access::{TreeAccess, Walk};
use super::layout::{
    Border, EPOCH_MASK, HEADER_LINE, Interior, LOGGED, LoggedValues, REMOVED, TOUCHED,
    interior_bytes, line_of,
};
use super::options::Mode;
use super::shard::Work;
use super::value_log::{EPOCHS_APART_MAX, ValueLog};
use crate::kit::epochs::all_lines;

/// The kind of the next change of a border node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BorderChange {
    /// The permutation, and a slot that is free.
    Insert(usize),
    /// The permutation.
    Remove,
    /// The value of a slot.
    Update(usize),
    /// Anything.
    Everything,
}

impl<M: Medium> TreeAccess<'_, M> {
    /// To be called before a locked border node is changed: writes the log that the change needs,
    /// and lists the lines that change, except the line of an updated cell. Returns whether the
    /// cell that the value of an updated slot leads to may be overwritten: either the whole node is
    /// logged, or the log has the pointer of the epoch's begin, which leads to the other cell.
    ///
    /// # Errors
    /// If the external log is full; nothing was changed then.
    #[inline]
    pub(super) fn prepare(
        &self,
        work: &mut Work<'_>,
        node: &Border,
        change: BorderChange,
    ) -> Walk<bool> {
        if self.core.mode == Mode::Transient {
            return Ok(true);
        }
        let mut state = node.epoch.load(&self.guard);
        let mut lines = self.lines_of(node, change)?;
        if state & TOUCHED != 0 && matches!(change, BorderChange::Update(_)) {
            state &= !TOUCHED;
            node.epoch.store(&self.guard, state);
            // PERSIST: the sixteen bits of a new value log are read relative to this epoch; if this
            // is lost, they would be read relative to a much older one, and stand for another
            // epoch.
            self.guard.flush(&node.epoch);
            self.guard.fence();
        }
        let may_overwrite = if state & EPOCH_MASK == self.epoch {
            self.prepare_again(work, node, change, state)?
        } else {
            self.prepare_first(work, node, change, state, &mut lines)?
        };
        self.list_node(work, &node.listed, lines);
        Ok(may_overwrite)
    }

    /// The lines that a change writes to, except the line of an updated cell.
    fn lines_of(&self, node: &Border, change: BorderChange) -> Walk<u64> {
        Ok(match change {
            BorderChange::Remove => HEADER_LINE,
            BorderChange::Update(slot) => HEADER_LINE | line_of(node, node.values.value(slot)),
            BorderChange::Insert(slot) => {
                let cell = if self.core.are_words {
                    line_of(node, &self.cells(node)?[slot][0])
                } else {
                    0
                };
                let slice = line_of(node, &node.slices[slot]);
                HEADER_LINE | slice | line_of(node, node.values.value(slot)) | cell
            }
            BorderChange::Everything => all_lines(self.core.border_bytes()),
        })
    }

    /// The node changes for the first time in this epoch.
    fn prepare_first(
        &self,
        work: &mut Work<'_>,
        node: &Border,
        change: BorderChange,
        state: u64,
        lines: &mut u64,
    ) -> Walk<bool> {
        // Wraps around if damage put another object over the node.
        let is_far = self.epoch.wrapping_sub(state & EPOCH_MASK) >= EPOCHS_APART_MAX;
        if is_far || change == BorderChange::Everything || self.core.mode == Mode::Logging {
            self.log_node(work, self.guard.offset_of(node))?;
            *lines |=
                self.clear(node, &node.values.log_low) | self.clear(node, &node.values.log_high);
            node.epoch.store(&self.guard, self.epoch_word() | LOGGED);
            return Ok(true);
        }
        let log = if let BorderChange::Update(slot) = change {
            Some(self.log_value(&node.values, slot))
        } else {
            None
        };
        for other in [&node.values.log_low, &node.values.log_high] {
            if !log.is_some_and(|log| std::ptr::eq(log, other)) {
                *lines |= self.clear(node, other);
            }
        }
        let flags = state & TOUCHED
            | if change == BorderChange::Remove {
                REMOVED
            } else {
                0
            };
        // These stores go to one line, so they become durable in this order. The permutation comes
        // last.
        node.permutation_log
            .store(&self.guard, node.permutation.load(&self.guard));
        node.epoch.store(&self.guard, self.epoch_word() | flags);
        self.core.count_in_line_log();
        Ok(false)
    }

    /// The node was changed in this epoch before.
    fn prepare_again(
        &self,
        work: &mut Work<'_>,
        node: &Border,
        change: BorderChange,
        state: u64,
    ) -> Walk<bool> {
        if state & LOGGED != 0 {
            return Ok(true);
        }
        let mut is_own = false;
        let fits = match change {
            // A node that a recovery touched in this epoch carries its number, but is in no log.
            _ if self.core.mode == Mode::Logging => false,
            BorderChange::Insert(_) => state & REMOVED == 0,
            BorderChange::Remove => {
                if state & REMOVED == 0 {
                    node.epoch.store(&self.guard, state | REMOVED);
                }
                true
            }
            BorderChange::Update(slot) => {
                let log = ValueLog(node.values.log(slot).load(&self.guard));
                if log.0 == 0 {
                    self.log_value(&node.values, slot);
                    self.core.count_in_line_log();
                }
                is_own = log.0 != 0 && log.slot() == slot;
                log.0 == 0 || is_own
            }
            BorderChange::Everything => false,
        };
        if !fits {
            self.log_node(work, self.guard.offset_of(node))?;
            node.epoch.store(&self.guard, state | LOGGED);
        }
        Ok(!fits || is_own)
    }

    /// Clears a value log; returns its line if that changed.
    fn clear(&self, node: &Border, log: &Word) -> u64 {
        if log.load(&self.guard) == 0 {
            return 0;
        }
        log.store(&self.guard, 0);
        line_of(node, log)
    }

    /// Logs the value of a slot in its line; returns the log.
    fn log_value<'n>(&self, values: &'n LoggedValues, slot: usize) -> &'n Word {
        let log = values.log(slot);
        let value = values.value(slot).load(&self.guard);
        // The log is stored before the value, in the same line.
        log.store(&self.guard, ValueLog::new(slot, value, self.epoch).0);
        log
    }

    /// To be called before a locked interior node is changed: writes it to the external log once an
    /// epoch, and lists it.
    pub(super) fn prepare_interior(&self, work: &mut Work<'_>, node: &Interior) -> Walk<()> {
        if self.core.mode == Mode::Transient {
            return Ok(());
        }
        let state = node.epoch.load(&self.guard);
        if state & EPOCH_MASK != self.epoch || state & LOGGED == 0 {
            self.log_node(work, self.pointer_to(node))?;
            node.epoch.store(&self.guard, self.epoch_word() | LOGGED);
        }
        self.list_node(work, &node.listed, all_lines(interior_bytes()));
        Ok(())
    }
}
