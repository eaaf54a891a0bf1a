//! What is explored.

use std::fmt::Debug;
use std::hash::Hash;

use medium::sim::Sim;

/// Why something is wrong, for people.
pub type Complaint = String;

/// When what an operation did is durable: the contract that a structure keeps for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// When it returns, with everything before it; while it is pending, it happened wholly or not at all. The contract
    /// of immediate durability, and of whatever ends an epoch.
    #[default]
    OnReturn,
    /// When a later operation ends the epoch, and not before: a crash until then leaves exactly what the last epoch
    /// that ended had left. The contract of buffered durability.
    WithEpoch,
    /// At some time: the structure may end an epoch by itself, during this operation, before it or with it.
    AtAnyTime,
    /// At some time, as above; but what was seen of one part is durable when it returns, with everything before the
    /// operation that made it so. The contract of a read where writes may be waited for later.
    OfPart(u64),
}

/// A durable structure under exploration, with its sequential specification.
///
/// All of it must be *deterministic*: what it does may depend on the medium's content and on the operations, not on
/// time, addresses or random numbers. Recovery must run on the calling thread.
pub trait Subject {
    /// An operation.
    type Operation: Clone + Debug + Hash;
    /// What an operation returns.
    type Outcome: Clone + PartialEq + Debug;
    /// What the structure means: the state of its specification.
    type State: Clone + Eq + Debug + Hash;
    /// The structure, opened.
    type Instance;

    /// The state of a structure that was just made.
    fn initial(&self) -> Self::State;

    /// The specification: changes the state as `operation` does, and returns what it returns.
    fn step(&self, state: &mut Self::State, operation: &Self::Operation) -> Self::Outcome;

    /// When what this operation does is durable.
    fn durability(&self, operation: &Self::Operation) -> Durability {
        let _ = operation;
        Durability::OnReturn
    }

    /// Whether two states agree about one part: a key, for a map. What parts there are, if more than the whole, says
    /// `Concurrent`.
    fn is_same_part(&self, part: u64, one: &Self::State, other: &Self::State) -> bool {
        let _ = part;
        one == other
    }

    /// Makes one part of `to` as it is in `from`.
    fn copy_part(&self, part: u64, from: &Self::State, to: &mut Self::State) {
        let _ = part;
        to.clone_from(from);
    }

    /// Whether an operation on several parts takes effect on all of them at one moment, as the end of an epoch does, and
    /// not at one of its own for each, as a scan does.
    fn is_whole(&self, operation: &Self::Operation) -> bool {
        let _ = operation;
        false
    }

    /// Operations in one word without commas, for a command that repeats what a report names; none if there is no such
    /// word.
    fn word(&self, operations: &[Self::Operation]) -> Option<String> {
        let _ = operations;
        None
    }

    /// Opens the structure: makes it if the medium is empty, recovers it after a crash.
    fn open(&self, sim: &Sim) -> Result<Self::Instance, Complaint>;

    /// Does an operation. It is acknowledged when this returns.
    fn apply(
        &self,
        instance: &mut Self::Instance,
        operation: &Self::Operation,
    ) -> Result<Self::Outcome, Complaint>;

    /// Looks at everything: the state that the structure stands for.
    fn observe(&self, instance: &mut Self::Instance) -> Result<Self::State, Complaint>;

    /// Verifies what [`Subject::observe`] does not see: structure, leaks.
    fn check(&self, instance: &mut Self::Instance, state: &Self::State) -> Result<(), Complaint> {
        let _ = (instance, state);
        Ok(())
    }

    /// What to do after a recovery, to see whether the structure is still whole: `recent` are the operations around the
    /// crash, `state` is what was found.
    fn follow_up(&self, state: &Self::State, recent: &[Self::Operation]) -> Vec<Self::Operation> {
        let _ = (state, recent);
        Vec::new()
    }
}
