//! The structure under exploration.

use std::fmt::Debug;
use std::hash::Hash;

use medium::sim::Sim;

/// The description of a violation.
pub type Complaint = String;

/// When an operation's effect is durable: the contract of the operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DurabilityContract {
    /// When it returns, together with everything before it. A crash while it is pending leaves all
    /// or nothing of it. The contract of immediate durability, and of an operation that ends an
    /// epoch.
    #[default]
    OnReturn,
    /// When a later operation ends the epoch, and not before: a crash until then leaves exactly the
    /// state at the end of the last complete epoch. The contract of buffered durability.
    WithEpoch,
    /// At any time: the structure may end an epoch by itself before or during this operation.
    AtAnyTime,
    /// At any time, like [`DurabilityContract::AtAnyTime`]. But the value that it read of this part
    /// is durable when it returns, together with everything before the operation that wrote the
    /// value. The contract of a read if writes are waited for later.
    OfPart(u64),
}

/// A durable structure under exploration, with its sequential specification.
///
/// All of it must be *deterministic*: its behaviour may depend on the medium's content and on the
/// operations, but not on time, addresses or random numbers. Recovery must run on the calling
/// thread.
pub trait Subject {
    /// An operation.
    type Operation: Clone + Debug + Hash;
    /// The result of an operation.
    type Outcome: Clone + PartialEq + Debug;
    /// The state of the specification.
    type State: Clone + Eq + Debug + Hash;
    /// The structure, opened.
    type Instance;

    /// The state of a structure that was just made.
    fn initial(&self) -> Self::State;

    /// The specification: changes the state as `operation` does, and returns the operation's
    /// result.
    fn step(&self, state: &mut Self::State, operation: &Self::Operation) -> Self::Outcome;

    /// When the effect of this operation is durable.
    fn durability(&self, operation: &Self::Operation) -> DurabilityContract {
        let _ = operation;
        DurabilityContract::OnReturn
    }

    /// Whether two states agree about one part: a key, for a map. `Concurrent` says which parts
    /// there are; by default there is one.
    fn is_same_part(&self, part: u64, one: &Self::State, other: &Self::State) -> bool {
        let _ = part;
        one == other
    }

    /// Copies one part of the state `from` to `to`.
    fn copy_part(&self, part: u64, from: &Self::State, to: &mut Self::State) {
        let _ = part;
        to.clone_from(from);
    }

    /// Whether an operation on several parts takes effect on all of them at one moment, as the end
    /// of an epoch does; a scan takes effect on each part at a moment of its own.
    fn is_whole(&self, operation: &Self::Operation) -> bool {
        let _ = operation;
        false
    }

    /// Operations in one word without commas, for the command in a report that repeats them; `None`
    /// if there is no such word.
    fn word(&self, operations: &[Self::Operation]) -> Option<String> {
        let _ = operations;
        None
    }

    /// Opens the structure: makes it if the medium is empty, recovers it after a crash.
    fn open(&self, sim: &Sim) -> Result<Self::Instance, Complaint>;

    /// Executes an operation. It is acknowledged when this returns.
    fn apply(
        &self,
        instance: &mut Self::Instance,
        operation: &Self::Operation,
    ) -> Result<Self::Outcome, Complaint>;

    /// Reads everything: returns the state that the structure represents.
    fn observe(&self, instance: &mut Self::Instance) -> Result<Self::State, Complaint>;

    /// Verifies everything that [`Subject::observe`] does not read: structure, leaks.
    fn check(&self, instance: &mut Self::Instance, state: &Self::State) -> Result<(), Complaint> {
        let _ = (instance, state);
        Ok(())
    }

    /// The operations to run after a recovery, to test whether the structure still works: `recent`
    /// are the operations around the crash, `state` is the state that was found.
    fn follow_up(&self, state: &Self::State, recent: &[Self::Operation]) -> Vec<Self::Operation> {
        let _ = (state, recent);
        Vec::new()
    }
}
