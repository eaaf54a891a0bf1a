//! The states that a crash at a moment of a trace may leave, by the specification.

use medium::sim::Mark;

use crate::linearize::{ExpectedStates, History};
use crate::subject::{DurabilityContract, Subject};

/// Follows a trace's marks: which states are acceptable after a crash now.
pub(crate) struct AcceptableStates<S: Subject> {
    /// The states that a crash may leave, by the contract of each operation
    /// ([`DurabilityContract`]).
    pub(crate) acceptable: ExpectedStates<S::State>,
    /// The state after all acknowledged operations; unknown until the first observation.
    current: Option<S::State>,
    pending: Option<(u32, S::State)>,
    /// The state that becomes current when it is observed.
    seen: Option<S::State>,
    operations: Vec<S::Operation>,
    /// The operations before the previous crash.
    earlier: Vec<S::Operation>,
    recent_from: usize,
    invoked: usize,
    /// The program of several threads, in place of `operations`.
    history: Option<History<S>>,
    /// Whether the trace ends early, because its rest was explored before.
    pub(crate) is_cut: bool,
}

impl<S: Subject> AcceptableStates<S> {
    /// The context at the start of a recording.
    pub(crate) fn first(
        start: S::State,
        operations: Vec<S::Operation>,
        recent_from: usize,
    ) -> Self {
        Self {
            acceptable: ExpectedStates::one_of(vec![start.clone()]),
            current: Some(start),
            pending: None,
            seen: None,
            operations,
            earlier: Vec::new(),
            recent_from,
            invoked: 0,
            history: None,
            is_cut: false,
        }
    }

    /// The context at the start of a recording in which several threads took part.
    pub(crate) fn of_threads(subject: &S, history: History<S>, is_cut: bool) -> Self {
        let acceptable = history.expected(subject);
        let first = Self::first(acceptable.states[0].clone(), Vec::new(), 0);
        Self {
            acceptable,
            history: Some(history),
            is_cut,
            ..first
        }
    }

    /// The context at the start of the recovery after a crash in this context. The recovered
    /// structure will observe `seen` and then execute `operations`.
    pub(crate) fn second(&self, seen: Option<S::State>, operations: Vec<S::Operation>) -> Self {
        Self {
            acceptable: self.acceptable.clone(),
            current: None,
            pending: None,
            seen,
            operations,
            earlier: self.recent(),
            recent_from: 0,
            invoked: 0,
            history: None,
            is_cut: false,
        }
    }

    pub(crate) fn mark(&mut self, subject: &S, mark: Mark) {
        if let Some(history) = &mut self.history {
            match mark {
                Mark::Invoke(number) => history.invoke(subject, number),
                // The history was judged before.
                Mark::Response(number) => drop(history.respond(subject, number)),
                Mark::Observed => {}
            }
            self.acceptable = history.expected(subject);
            return;
        }
        match mark {
            Mark::Observed => {
                self.current = self.seen.take();
                self.acceptable = ExpectedStates::one_of(self.current.iter().cloned().collect());
            }
            Mark::Invoke(number) => {
                let Some(current) = &self.current else { return };
                let mut next = current.clone();
                let operation = &self.operations[number as usize];
                subject.step(&mut next, operation);
                if subject.durability(operation) != DurabilityContract::WithEpoch {
                    for state in [current, &next] {
                        if !self.acceptable.states.contains(state) {
                            self.acceptable.states.push(state.clone());
                        }
                    }
                }
                self.pending = Some((number, next));
                self.invoked = number as usize + 1;
            }
            Mark::Response(_) => {
                let Some((number, next)) = self.pending.take() else {
                    return;
                };
                match subject.durability(&self.operations[number as usize]) {
                    DurabilityContract::OnReturn => {
                        self.acceptable = ExpectedStates::one_of(vec![next.clone()]);
                    }
                    DurabilityContract::OfPart(part) => {
                        self.acceptable
                            .states
                            .retain(|state| subject.is_same_part(part, state, &next));
                    }
                    DurabilityContract::WithEpoch | DurabilityContract::AtAnyTime => {}
                }
                self.current = Some(next);
            }
        }
    }

    /// The operations around the crash.
    pub(crate) fn recent(&self) -> Vec<S::Operation> {
        if let Some(history) = &self.history {
            return history.recent();
        }
        let mine = self
            .operations
            .get(self.recent_from.min(self.invoked)..self.invoked);
        self.earlier
            .iter()
            .chain(mine.unwrap_or_default())
            .cloned()
            .collect()
    }

    /// The phase of the run, for reports.
    pub(crate) fn during(&self) -> Option<String> {
        if let Some(history) = &self.history {
            return history.during();
        }
        match (&self.pending, &self.current) {
            (Some((number, _)), _) => Some(format!(
                "operation {number}: {:?}",
                self.operations[*number as usize]
            )),
            (None, None) => Some("recovery".to_owned()),
            (None, Some(_)) => None,
        }
    }
}
