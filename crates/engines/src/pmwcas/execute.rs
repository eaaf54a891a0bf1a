//! The two phases, helping, and giving descriptors back.

use std::ops::Range;

use medium::sync::thread_number;
use medium::{LINE_BYTES, Lsn, Medium, WORD_BYTES, Word};
use pool::Guard;

use super::layout::{OperationState, Status, TargetWord};
use super::slots::{DESCRIPTORS_PER_SLOT, Held, Phase, count};
use super::word::{CONDITIONAL, Name, SEQUENCE_MASK, VALUE_MASK, conditional_word, is_name};
use super::{Carried, DescriptorNode, Leftovers, Pmwcas, Swap, Swaps, Targets};
use crate::{Error, ErrorKind, Result};

/// An operation that is being executed or helped.
struct Operation<'o> {
    name: Name,
    swaps: &'o [Swap<'o>],
    node: &'o DescriptorNode,
}

/// A descriptor that a word names.
struct Named<'g> {
    node: &'g DescriptorNode,
    status: Status,
    targets: Targets,
    /// Which of its words that one is.
    position: usize,
}

/// How far a thread got with an operation.
enum OperationProgress {
    /// It succeeded; its commit has this LSN.
    Succeeded(Lsn),
    /// It failed.
    Failed,
    /// Its first word was not as expected, so no other thread has seen it.
    Unseen,
    /// Another operation's name is in the way: the word's offset and the name. Only for a helper.
    Blocked(u64, u64),
}

/// How the installation of a name ended.
enum Installation {
    Done,
    Mismatch,
    Blocked(u64),
}

#[inline]
pub(super) fn word_at<'g, M: Medium>(guard: &'g Guard<'_, M>, offset: u64) -> Result<&'g Word> {
    Ok(&guard.words(offset, 1)?[0])
}

fn line_of(offset: u64) -> u64 {
    offset / LINE_BYTES as u64
}

/// Flushes words, whose offsets come in ascending order, each line once: a second flush of the same
/// line costs as much as another fence.
#[inline]
fn flush_at<M: Medium>(guard: &Guard<'_, M>, offsets: impl Iterator<Item = u64>) -> Result<()> {
    let mut run = 0..0;
    for offset in offsets {
        if line_of(run.start) != line_of(offset) {
            flush_run(guard, run)?;
            run = offset..offset;
        }
        run.end = offset + WORD_BYTES as u64;
    }
    flush_run(guard, run)
}

#[inline]
fn flush_run<M: Medium>(guard: &Guard<'_, M>, run: Range<u64>) -> Result<()> {
    if !run.is_empty() {
        guard.flush_words(guard.words(run.start, (run.end - run.start) as usize / WORD_BYTES)?);
    }
    Ok(())
}

/// Gives carried words their values, and flushes those that do not lie in the line of a named word.
/// The others are flushed with the name, also by a helper: it comes after these stores.
#[inline]
fn carry<M: Medium>(guard: &Guard<'_, M>, swaps: &[Swap<'_>], carried: Carried<'_>) -> Result<()> {
    carried
        .iter()
        .for_each(|(cell, value)| cell.store(guard, *value));
    let offsets = carried.iter().map(|(cell, _)| guard.offset_of(*cell));
    debug_assert!(offsets.clone().is_sorted(), "each line is flushed once");
    let is_named = |offset: &u64| {
        swaps
            .iter()
            .any(|swap| line_of(swap.target.offset) == line_of(*offset))
    };
    flush_at(guard, offsets.filter(|offset| !is_named(offset)))
}

fn find_words<'g, M: Medium>(guard: &'g Guard<'_, M>, targets: &[TargetWord]) -> Result<Swaps<'g>> {
    targets
        .iter()
        .map(|target| {
            Ok(Swap {
                cell: word_at(guard, target.offset)?,
                target: *target,
            })
        })
        .collect()
}

/// Prefetches the words of an operation all at once: a flush may have evicted them from the cache.
#[inline]
fn prefetch(swaps: &[Swap<'_>]) {
    swaps.iter().for_each(|swap| swap.cell.prefetch_write());
}

impl Pmwcas {
    /// The content of a word that may hold a name: the value before the operation that is under way
    /// there, or after it. Takes no slot, helps no operation and waits for no thread.
    #[cold]
    pub(super) fn read_through<M: Medium>(&self, guard: &Guard<'_, M>, cell: &Word) -> Result<u64> {
        loop {
            let raw = cell.load(guard);
            if !is_name(raw) {
                return Ok(raw);
            }
            let found = self.look_through(guard, guard.offset_of(cell), raw);
            // A descriptor is filled again only when no word holds its name. So if the word still
            // holds the name, what was read from the descriptor belongs to this operation.
            if cell.load(guard) == raw {
                return found;
            }
        }
    }

    /// The value of the word at `offset`, which held the name `raw`; valid if it still does
    /// afterwards.
    fn look_through<M: Medium>(&self, guard: &Guard<'_, M>, offset: u64, raw: u64) -> Result<u64> {
        let Named {
            node,
            status,
            targets,
            position,
        } = self.find_named(guard, offset, raw)?;
        let target = targets[position];
        if raw & CONDITIONAL != 0 || status.state != OperationState::Succeeded {
            return Ok(self.commits.visible(guard, offset, target.old));
        }
        self.commits
            .note::<M>(offset, Self::make_durable(guard, node));
        Ok(self.commits.visible(guard, offset, target.new))
    }

    /// The descriptor whose name `raw` is in the word at `offset`.
    fn find_named<'g, M: Medium>(
        &self,
        guard: &'g Guard<'_, M>,
        offset: u64,
        raw: u64,
    ) -> Result<Named<'g>> {
        let name = Name::of(raw);
        let wrong = || {
            Error::corrupt(
                offset,
                "a word that names a PMwCAS descriptor which does not name it",
            )
        };
        if name.index >= self.descriptors() {
            return Err(wrong());
        }
        if !self.is_recovered {
            self.examine(guard, name.index)?;
        }
        let node = self.node(guard, name.index)?;
        let status = status_of(guard, node, name.index)?;
        let targets = node.load_targets(guard, status.count);
        let position = targets
            .iter()
            .position(|target| target.offset == offset)
            .ok_or_else(wrong)?;
        let right = raw & CONDITIONAL == 0 || position == conditional_word(raw);
        if status.sequence != name.sequence || status.state == OperationState::Free || !right {
            return Err(wrong());
        }
        Ok(Named {
            node,
            status,
            targets,
            position,
        })
    }

    /// The content of a word: helps operations until the word holds no name. Takes a slot for that.
    #[cold]
    pub(super) fn clear<M: Medium>(&self, guard: &Guard<'_, M>, cell: &Word) -> Result<u64> {
        let held = self.slots.take(thread_number::<M>());
        loop {
            let raw = cell.load(guard);
            if !is_name(raw) {
                return Ok(raw);
            }
            self.help(guard, &held, guard.offset_of(cell), raw)?;
        }
    }

    /// Executes an operation on words in ascending order; returns its LSN if it succeeded. The
    /// `carried` words are durable before success is.
    pub(super) fn run<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        swaps: &[Swap<'_>],
        carried: Carried<'_>,
    ) -> Result<Option<Lsn>> {
        let (held, turn) = self.take_descriptor(guard)?;
        count(&held.counters.attempts[swaps.len()]);
        match self.run_in(guard, &held, turn, swaps, carried) {
            Ok(OperationProgress::Succeeded(lsn)) => Ok(Some(lsn)),
            progress => {
                count(&held.counters.failures);
                progress.map(|_| None)
            }
        }
    }

    fn run_in<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        held: &Held<'_>,
        turn: usize,
        swaps: &[Swap<'_>],
        carried: Carried<'_>,
    ) -> Result<OperationProgress> {
        let index = held.number * DESCRIPTORS_PER_SLOT + turn;
        let other = 1 - turn;
        let node = self.node(guard, index)?;
        let before = status_of(guard, node, index)?;
        let sequence = match before.sequence {
            SEQUENCE_MASK => Self::begin_anew(guard, node),
            last => last + 1,
        };
        let name = Name { index, sequence };
        // No locked instruction between the first flush and the fence: a processor would wait there
        // until the flushes are complete.
        self.flush_ended(guard, held, other)?;
        node.fill(
            guard,
            before,
            sequence,
            swaps.iter().map(|swap| swap.target),
        )?;
        held.set_phase(turn, Phase::Busy);
        carry(guard, swaps, carried)?;
        // Fence 1.
        guard.fence();
        prefetch(swaps);
        node.status.prefetch_write();
        let operation = Operation { name, swaps, node };
        let progress = self
            .complete(guard, held, &operation, Some(other))
            .or_else(|error| {
                // The operation stopped at damage. Names that it has installed must not stay,
                // unless other threads ended it.
                let state = self.decide(guard, &operation, OperationState::Failed)?;
                match self.conclude(guard, &operation, state, swaps) {
                    OperationProgress::Succeeded(lsn) => Ok(OperationProgress::Succeeded(lsn)),
                    _ => Err(error),
                }
            });
        let unseen = matches!(progress, Ok(OperationProgress::Unseen));
        held.set_phase(turn, if unseen { Phase::Free } else { Phase::Ended });
        // For the next operation of this thread, which gives this descriptor back and fills the
        // other one.
        node.status.prefetch_write();
        self.node(guard, held.number * DESCRIPTORS_PER_SLOT + other)?
            .status
            .prefetch_write();
        progress
    }

    /// Starts again with the first number, after clearing the writer of every line.
    #[cold]
    fn begin_anew<M: Medium>(guard: &Guard<'_, M>, node: &DescriptorNode) -> u64 {
        node.forget_writers(guard);
        // PERSIST: this is ordered before an operation gets a number that an earlier one had; if
        // this is lost, the next one begins anew again.
        guard.fence();
        1
    }

    /// Takes a slot of which a descriptor is free.
    fn take_descriptor<M: Medium>(&self, guard: &Guard<'_, M>) -> Result<(Held<'_>, usize)> {
        let free = |held: &Held<'_>| {
            (0..DESCRIPTORS_PER_SLOT).find(|turn| held.phase(*turn) == Phase::Free)
        };
        let (held, turn) = self.slots.take_with(thread_number::<M>(), |held| {
            // After an operation that failed early up to two fences may be missing. If threads
            // still help the operations of both descriptors, another slot is taken.
            for _ in 0..2 {
                if free(held).is_some() {
                    break;
                }
                if let Err(damage) = self.recover_both(guard, held) {
                    // Any slot will do to return the error.
                    return Some(Err(damage));
                }
            }
            free(held).map(Ok)
        });
        Ok((held, turn?))
    }

    /// One fence, which brings both descriptors of a slot nearer to being free.
    fn recover_both<M: Medium>(&self, guard: &Guard<'_, M>, held: &Held<'_>) -> Result<()> {
        for turn in 0..DESCRIPTORS_PER_SLOT {
            self.flush_ended(guard, held, turn)?;
        }
        guard.fence();
        (0..DESCRIPTORS_PER_SLOT).try_for_each(|turn| self.give_back(guard, held, turn))
    }

    /// To be called before a fence: flushes everything that must be durable before a descriptor of
    /// this slot is given back.
    #[inline]
    fn flush_ended<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        held: &Held<'_>,
        turn: usize,
    ) -> Result<()> {
        let index = held.number * DESCRIPTORS_PER_SLOT + turn;
        match held.phase(turn) {
            // The hazards are read before the flush: a thread that helped has then stored the
            // words' final values.
            Phase::Ended if !self.slots.is_helped(index) => {
                let node = self.node(guard, index)?;
                let count = status_of(guard, node, index)?.count;
                flush_at(
                    guard,
                    (0..count).map(|position| node.load_target(guard, position).offset),
                )?;
                held.set_phase(turn, Phase::Flushed);
            }
            // It was flushed before, but perhaps by a guard that never fenced.
            Phase::Freed => guard.flush(&self.node(guard, index)?.status),
            _ => {}
        }
        Ok(())
    }

    /// To be called after a fence: takes a descriptor of this slot to its next phase, if the fence
    /// was one that it waited for.
    #[inline]
    fn give_back<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        held: &Held<'_>,
        turn: usize,
    ) -> Result<()> {
        match held.phase(turn) {
            Phase::Flushed => {
                let index = held.number * DESCRIPTORS_PER_SLOT + turn;
                let node = self.node(guard, index)?;
                let status = status_of(guard, node, index)?;
                // PERSIST: its words are durable; if this is lost, recovery finds nothing to do for
                // it. Not to be filled before this is durable: recovery takes a status that is
                // decided for the status of the words beside it.
                node.status
                    .publish(guard, status.in_state(OperationState::Free).encode());
                held.set_phase(turn, Phase::Freed);
            }
            Phase::Freed => held.set_phase(turn, Phase::Free),
            _ => {}
        }
        Ok(())
    }

    /// Gives all descriptors back before the pool is closed: the close may cut words that they name
    /// off with the file's free tail, and every later open would take the descriptors for damaged.
    /// No thread may execute meanwhile. Durable when the pool is closed. O(slots).
    ///
    /// # Errors
    /// [`ErrorKind::InUse`] if a thread is in the middle of an operation, or ended there by a
    /// panic, and [`ErrorKind::Corrupt`] for a damaged descriptor. Then the pool must not be closed
    /// cleanly ([`pool::Pool::leave_unclean`]); the next open finishes the operations.
    pub fn finish<M: Medium>(&self, guard: &Guard<'_, M>) -> Result<()> {
        let mut leftovers = self.leftovers();
        if self.clear_leftovers(guard, &mut leftovers)? {
            Ok(())
        } else {
            Err(ErrorKind::InUse.into())
        }
    }

    /// The slots whose descriptors may still hold operations that have ended. Memory with words of
    /// these operations must not be reused before [`Pmwcas::clear_leftovers`] has returned `true`
    /// for them: after a crash, recovery would take a value in it that equals the name of such a
    /// descriptor for that name. O(slots).
    pub fn leftovers(&self) -> Leftovers {
        self.slots.leftovers()
    }

    /// Gives descriptors back, except in slots that a thread holds: two fences for each slot at
    /// most. Returns whether all are given back; the others remain in `leftovers`, to be tried
    /// again. A descriptor that is given back durably names no word.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`]: a damaged descriptor, which remains.
    pub fn clear_leftovers<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        leftovers: &mut Leftovers,
    ) -> Result<bool> {
        let mut all = true;
        for number in leftovers.numbers() {
            // One slot at a time, like any operation: a thread that stops here delays nobody.
            let held = self.slots.take_number(number);
            if held.map_or(Ok(false), |held| self.give_both_back(guard, &held))? {
                leftovers.remove(number);
            } else {
                all = false;
            }
        }
        Ok(all)
    }

    /// Gives both descriptors of a slot back, durably. Returns `false` if a thread still helps one
    /// of them, or if a panic or damage ended an operation of the slot halfway.
    fn give_both_back<M: Medium>(&self, guard: &Guard<'_, M>, held: &Held<'_>) -> Result<bool> {
        self.recall_unseen(guard, held)?;
        // The first round is for the words, the second for the statuses.
        for _ in 0..2 {
            if !held.is_at_rest() {
                self.recover_both(guard, held)?;
            }
        }
        Ok(held.is_at_rest())
    }

    /// An operation that no other thread saw left its descriptor filled: gives it back as after one
    /// that ended.
    fn recall_unseen<M: Medium>(&self, guard: &Guard<'_, M>, held: &Held<'_>) -> Result<()> {
        for turn in 0..DESCRIPTORS_PER_SLOT {
            let index = held.number * DESCRIPTORS_PER_SLOT + turn;
            let status = status_of(guard, self.node(guard, index)?, index)?;
            if held.phase(turn) == Phase::Free && status.state != OperationState::Free {
                held.set_phase(turn, Phase::Flushed);
            }
        }
        Ok(())
    }

    /// Helps the operation whose name `raw` is in the word at `offset`, and those in its way.
    fn help<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        held: &Held<'_>,
        offset: u64,
        raw: u64,
    ) -> Result<()> {
        let mut next = Some((offset, raw));
        // Each step goes to a word with a higher offset, for an operation is blocked in ascending
        // order.
        while let Some((offset, raw)) = next {
            next = match self.help_one(guard, held, offset, raw)? {
                OperationProgress::Blocked(offset, raw) => Some((offset, raw)),
                _ => None,
            };
        }
        Ok(())
    }

    /// Helps one operation. This thread reached the word, so its own pin keeps the word's memory.
    /// The operation's other words may lie in memory that was retired before this thread was
    /// pinned, and that only the owner's pin keeps. So they are written to only when it is certain
    /// that they were in use while this thread was pinned.
    fn help_one<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        held: &Held<'_>,
        offset: u64,
        raw: u64,
    ) -> Result<OperationProgress> {
        let cell = word_at(guard, offset)?;
        let name = Name::of(raw);
        let _hazard = self.slots.announce(held, name);
        if cell.load(guard) != raw {
            return Ok(OperationProgress::Failed);
        }
        // From here on the descriptor stays what it is.
        let named = match self.find_named(guard, offset, raw) {
            Err(_) if cell.load(guard) != raw => return Ok(OperationProgress::Failed),
            found => found?,
        };
        count(&held.counters.helps);
        let node = named.node;
        let swaps = find_words(guard, &named.targets)?;
        let operation = Operation {
            name,
            swaps: &swaps,
            node,
        };
        if raw & CONDITIONAL != 0 {
            self.resolve(guard, raw, &operation, &swaps[named.position])?;
        }
        let holds = Self::is_as_expected(guard, &swaps);
        // The status is read after the words: if the operation is still undecided, its owner was
        // pinned, so the words that were read were in use.
        let mut state = status_of(guard, node, name.index)?.state;
        if state == OperationState::Undecided {
            if holds {
                return self.complete(guard, held, &operation, None);
            }
            state = self.decide(guard, &operation, OperationState::Failed)?;
        }
        // The operation is decided, so only this word is completed. Threads that reach the other
        // words complete those.
        Ok(self.conclude(
            guard,
            &operation,
            state,
            &swaps[named.position..=named.position],
        ))
    }

    /// Whether all words are as expected, or hold names.
    fn is_as_expected<M: Medium>(guard: &Guard<'_, M>, swaps: &[Swap<'_>]) -> bool {
        swaps.iter().all(|swap| {
            let raw = swap.cell.load(guard);
            is_name(raw) || raw & VALUE_MASK == swap.target.old
        })
    }

    /// Both phases, from the point that the operation has reached. `other` is the other descriptor
    /// of the slot, for the owner; `None` for a helper.
    #[inline]
    fn complete<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        held: &Held<'_>,
        operation: &Operation<'_>,
        other: Option<usize>,
    ) -> Result<OperationProgress> {
        let Operation { name, swaps, node } = *operation;
        let mut state = OperationState::Succeeded;
        for (position, swap) in swaps.iter().enumerate() {
            match self.install(guard, held, operation, position, other.is_some())? {
                Installation::Done => {}
                Installation::Mismatch if other.is_some() && position == 0 => {
                    return Ok(OperationProgress::Unseen);
                }
                Installation::Mismatch => {
                    state = OperationState::Failed;
                    break;
                }
                Installation::Blocked(raw) => {
                    // This thread may have installed its last name after the decision, when the
                    // words had their final values.
                    let state = status_of(guard, node, name.index)?.state;
                    if state != OperationState::Undecided {
                        return Ok(self.conclude(guard, operation, state, swaps));
                    }
                    return Ok(OperationProgress::Blocked(swap.target.offset, raw));
                }
            }
        }
        if state == OperationState::Succeeded {
            if let Some(other) = other {
                // Fence 1 made this possible. It comes only here because it flushes, and the
                // processor would wait for that flush at the first name.
                self.give_back(guard, held, other)?;
            }
            flush_at(guard, swaps.iter().map(|swap| swap.target.offset))?;
            // Fence 2.
            guard.fence();
            // This prefetch is for the final values, which come behind fence 3.
            prefetch(swaps);
            if let Some(other) = other {
                self.give_back(guard, held, other)?;
            }
        }
        let state = self.decide(guard, operation, state)?;
        Ok(self.conclude(guard, operation, state, swaps))
    }

    /// Applies the decision to some of the words.
    #[inline]
    fn conclude<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        operation: &Operation<'_>,
        state: OperationState,
        swaps: &[Swap<'_>],
    ) -> OperationProgress {
        match state {
            OperationState::Succeeded => {
                let lsn = Self::make_durable(guard, operation.node);
                swaps
                    .iter()
                    .for_each(|swap| self.commits.note::<M>(swap.target.offset, lsn));
                self.install_results(guard, operation.name, swaps, true);
                OperationProgress::Succeeded(lsn)
            }
            OperationState::Failed => {
                self.install_results(guard, operation.name, swaps, false);
                OperationProgress::Failed
            }
            // The operation ended after this thread began to help.
            OperationState::Free | OperationState::Undecided => OperationProgress::Failed,
        }
    }

    /// Makes success durable, or ordered, before any thread can see a desired value.
    fn make_durable<M: Medium>(guard: &Guard<'_, M>, node: &DescriptorNode) -> Lsn {
        guard.flush(&node.status);
        // Fence 3. PERSIST: all names are durable; if this is lost, recovery rolls back what no
        // reader has seen.
        guard.fence()
    }

    /// Phase 1 for one word.
    #[inline]
    fn install<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        held: &Held<'_>,
        operation: &Operation<'_>,
        position: usize,
        is_owner: bool,
    ) -> Result<Installation> {
        let name = operation.name;
        let swap = &operation.swaps[position];
        // Before the first name is in its word no other thread knows the operation, so none can
        // have ended it.
        let alone = is_owner && position == 0;
        let mut expected = swap.target.old;
        loop {
            let into = if alone {
                name.installed()
            } else {
                name.conditional(position, held.number, held.next_attempt())
            };
            match swap.cell.compare_exchange(guard, expected, into) {
                Ok(_) => {
                    if !alone {
                        self.resolve(guard, into, operation, swap)?;
                    }
                    return Ok(Installation::Done);
                }
                Err(found) if found == name.installed() => return Ok(Installation::Done),
                Err(found) if name.is_conditional_in(found) => {
                    self.resolve(guard, found, operation, swap)?;
                }
                Err(found) if is_name(found) && is_owner => {
                    self.help(guard, held, swap.target.offset, found)?;
                }
                Err(found) if is_name(found) => return Ok(Installation::Blocked(found)),
                // The expected value with or without its dirty bit: this operation is ordered after
                // it.
                Err(found) if found & VALUE_MASK == swap.target.old => expected = found,
                Err(_) => return Ok(Installation::Mismatch),
            }
        }
    }

    /// The second half of an RDCSS: a conditional name becomes the name if the operation is
    /// undecided, or goes.
    #[inline]
    fn resolve<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        raw: u64,
        operation: &Operation<'_>,
        swap: &Swap<'_>,
    ) -> Result<()> {
        let status = status_of(guard, operation.node, operation.name.index)?;
        let undecided =
            status.state == OperationState::Undecided && status.sequence == operation.name.sequence;
        let TargetWord { offset, old, .. } = swap.target;
        let into = if undecided {
            operation.name.installed()
        } else {
            self.commits.visible(guard, offset, old)
        };
        // If the conditional name is gone, another thread has done the same.
        let _ = swap.cell.compare_exchange(guard, raw, into);
        Ok(())
    }

    /// Decides the operation, unless another thread has. Returns the decision.
    #[inline]
    fn decide<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        operation: &Operation<'_>,
        state: OperationState,
    ) -> Result<OperationState> {
        let Operation { name, swaps, node } = *operation;
        let undecided = Status {
            state: OperationState::Undecided,
            count: swaps.len(),
            sequence: name.sequence,
        };
        let decided = undecided.in_state(state).encode();
        if node
            .status
            .compare_exchange(guard, undecided.encode(), decided)
            .is_ok()
        {
            return Ok(state);
        }
        Ok(status_of(guard, node, name.index)?.state)
    }

    /// Phase 2: the final values, where the name still is.
    #[inline]
    fn install_results<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        name: Name,
        swaps: &[Swap<'_>],
        succeeded: bool,
    ) {
        for Swap { cell, target } in swaps {
            let value = if succeeded { target.new } else { target.old };
            let value = self.commits.visible(guard, target.offset, value);
            // PERSIST: success is durable; if this is lost, recovery does the same again, for the
            // descriptor stays until this is durable.
            let _ = cell.compare_exchange(guard, name.installed(), value);
        }
    }
}

#[inline]
fn status_of<M: Medium>(
    guard: &Guard<'_, M>,
    node: &DescriptorNode,
    index: usize,
) -> Result<Status> {
    Status::decode(node.status.load(guard)).ok_or_else(|| {
        Error::corrupt(
            guard.offset_of(node),
            format!("PMwCAS descriptor {index}: the status fails its check"),
        )
    })
}
