//! Histories of several threads: is there an order of the operations that explains what they
//! returned?
//!
//! The search is that of Wing and Gong (*Testing and verifying concurrent objects*, 1993), done as
//! the history goes on (Lowe, *Testing for linearizability*, 2017): of each part of the state it
//! keeps every *configuration* that can still be true: the state, together with the calls that took
//! effect and have not returned. When a call returns it must have taken effect; the calls that must
//! take effect before it are searched then. A crash may leave any state that a configuration
//! reaches if some of the pending calls take effect: *strict* linearizability (Aguilera, Frølund,
//! 2003), in which nothing takes effect after the crash.
//!
//! The search is done part by part, for a map key by key: a history is linearizable if and only if
//! each part's is (Herlihy, Wing, 1990). An operation on several parts, a scan, is an operation on
//! each of them, over the same time.

use std::fmt::Debug;
use std::rc::Rc;

use crate::subject::{Complaint, DurabilityContract, Subject};

/// One call of a history.
pub(crate) struct Call<S: Subject> {
    pub(crate) operation: S::Operation,
    /// For each part of the state, the operation on it, and what that returned, if it has.
    pub(crate) steps: Vec<PartCall<S>>,
}

/// A call on one part of the state.
pub(crate) struct PartCall<S: Subject> {
    pub(crate) part: u64,
    pub(crate) operation: S::Operation,
    pub(crate) outcome: Option<S::Outcome>,
}

/// A possible state of one part.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PartState<T> {
    pub(crate) state: T,
    /// The pending calls that have taken effect, of those that take effect on all parts at one
    /// moment.
    whole: Vec<u32>,
}

/// The states that are right: one of `states`, in which each of `parts` may instead have the state
/// of another of its choices, if these agree on the calls that take effect on all parts at one
/// moment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ExpectedStates<T> {
    pub(crate) states: Vec<T>,
    pub(crate) parts: Vec<(u64, Vec<PartState<T>>)>,
}

impl<T: Clone + PartialEq + Debug> ExpectedStates<T> {
    /// Exactly the states `states` are right.
    pub(crate) fn one_of(states: Vec<T>) -> Self {
        Self {
            states,
            parts: Vec::new(),
        }
    }

    /// The state, if only one is right.
    pub(crate) fn only(&self) -> Option<&T> {
        match &self.states[..] {
            [state] if self.parts.is_empty() => Some(state),
            _ => None,
        }
    }

    /// Whether a state is right.
    pub(crate) fn accepts<S: Subject<State = T>>(&self, subject: &S, state: &T) -> bool {
        if self.parts.is_empty() {
            return self.states.contains(state);
        }
        let mut rest = state.clone();
        for (part, choices) in &self.parts {
            subject.copy_part(*part, &choices[0].state, &mut rest);
        }
        let explains = |whole: &Vec<u32>| {
            self.parts.iter().all(|(part, choices)| {
                let mut with_them = choices.iter().filter(|choice| choice.whole == *whole);
                with_them.any(|choice| subject.is_same_part(*part, &choice.state, state))
            })
        };
        self.states.contains(&rest) && self.parts[0].1.iter().any(|choice| explains(&choice.whole))
    }

    /// The states, as text.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("one of {:?}", self.states);
        for (_, choices) in &self.parts {
            let states: Vec<_> = choices.iter().map(|choice| &choice.state).collect();
            text.push_str(&format!(", with any of {states:?} instead"));
        }
        if self
            .parts
            .iter()
            .any(|(_, choices)| choices.iter().any(|choice| !choice.whole.is_empty()))
        {
            text.push_str(", of one epoch");
        }
        text
    }
}

/// A configuration of one part.
struct Configuration<S: Subject> {
    state: S::State,
    /// The state that a crash leaves: with buffered durability, the state at the end of the last
    /// epoch.
    durable: S::State,
    /// Pending calls that took effect, and the results that they will return.
    done: Vec<(u32, S::Outcome)>,
}

impl<S: Subject> Clone for Configuration<S> {
    fn clone(&self) -> Self {
        let Self {
            state,
            durable,
            done,
        } = self;
        Self {
            state: state.clone(),
            durable: durable.clone(),
            done: done.clone(),
        }
    }
}

impl<S: Subject> Configuration<S> {
    fn has(&self, number: u32) -> bool {
        self.done.iter().any(|(done, _)| *done == number)
    }
}

/// One part of the state.
struct Part<S: Subject> {
    configurations: Vec<Configuration<S>>,
    pending: Vec<(u32, S::Operation)>,
}

impl<S: Subject> Part<S> {
    /// The configuration after a pending call takes effect.
    fn apply(
        subject: &S,
        before: &Configuration<S>,
        number: u32,
        operation: &S::Operation,
    ) -> Configuration<S> {
        let mut state = before.state.clone();
        let outcome = subject.step(&mut state, operation);
        let durable = match subject.durability(operation) {
            DurabilityContract::OnReturn => state.clone(),
            DurabilityContract::WithEpoch
            | DurabilityContract::AtAnyTime
            | DurabilityContract::OfPart(_) => before.durable.clone(),
        };
        let mut done = before.done.clone();
        let position = done.partition_point(|(other, _)| *other < number);
        done.insert(position, (number, outcome));
        Configuration {
            state,
            durable,
            done,
        }
    }

    fn push(configurations: &mut Vec<Configuration<S>>, new: Configuration<S>) {
        let is_same = |old: &Configuration<S>| {
            old.state == new.state && old.durable == new.durable && old.done == new.done
        };
        let is_there = configurations.iter().any(is_same);
        if !is_there {
            configurations.push(new);
        }
    }

    /// Every configuration that can be reached by letting pending calls take effect; `is_last` ends
    /// a branch.
    fn reach(
        &self,
        subject: &S,
        is_last: impl Fn(&Configuration<S>) -> bool,
    ) -> Vec<Configuration<S>> {
        let mut reached = Vec::new();
        for old in &self.configurations {
            Self::push(&mut reached, old.clone());
        }
        let mut next = 0;
        while next < reached.len() {
            if !is_last(&reached[next]) {
                for (number, operation) in &self.pending {
                    if !reached[next].has(*number) {
                        let new = Self::apply(subject, &reached[next], *number, operation);
                        Self::push(&mut reached, new);
                    }
                }
            }
            next += 1;
        }
        reached
    }

    /// Notes that a call returns. `false` if no order of the calls explains that.
    fn respond(&mut self, subject: &S, number: u32, outcome: &S::Outcome) -> bool {
        let reached = self.reach(subject, |configuration| configuration.has(number));
        self.configurations.clear();
        for mut configuration in reached {
            let position = configuration
                .done
                .iter()
                .position(|(done, _)| *done == number);
            if position.is_some_and(|position| configuration.done.remove(position).1 == *outcome) {
                Self::push(&mut self.configurations, configuration);
            }
        }
        self.pending.retain(|(pending, _)| *pending != number);
        !self.configurations.is_empty()
    }

    /// The possible states now, or after a crash, as `which` selects.
    fn choices(
        &self,
        subject: &S,
        which: fn(Configuration<S>) -> S::State,
    ) -> Vec<PartState<S::State>> {
        let whole: Vec<u32> = self
            .pending
            .iter()
            .filter(|(_, operation)| subject.is_whole(operation))
            .map(|(number, _)| *number)
            .collect();
        let mut choices = Vec::new();
        for configuration in self.reach(subject, |_| false) {
            let whole = whole
                .iter()
                .copied()
                .filter(|number| configuration.has(*number))
                .collect();
            let choice = PartState {
                whole,
                state: which(configuration),
            };
            if !choices.contains(&choice) {
                choices.push(choice);
            }
        }
        choices
    }
}

/// A history so far.
pub(crate) struct History<S: Subject> {
    calls: Rc<Vec<Call<S>>>,
    invoked: Vec<bool>,
    pending: Vec<u32>,
    /// The parts that calls concerned, in the order of their numbers. (Not in a map, which is much
    /// code to compile for each subject.)
    parts: Vec<(u64, Part<S>)>,
    start: S::State,
}

impl<S: Subject> History<S> {
    /// A history in which no call was made yet.
    pub(crate) fn new(start: S::State, calls: Rc<Vec<Call<S>>>) -> Self {
        let invoked = vec![false; calls.len()];
        Self {
            calls,
            invoked,
            pending: Vec::new(),
            parts: Vec::new(),
            start,
        }
    }

    /// Notes that a call is made.
    pub(crate) fn invoke(&mut self, subject: &S, number: u32) {
        self.invoked[number as usize] = true;
        self.pending.push(number);
        for step in &self.calls[number as usize].steps {
            let place = self.place(step.part).unwrap_or_else(|place| {
                let mut state = subject.initial();
                subject.copy_part(step.part, &self.start, &mut state);
                let start = Configuration {
                    durable: state.clone(),
                    state,
                    done: Vec::new(),
                };
                let part = Part {
                    configurations: vec![start],
                    pending: Vec::new(),
                };
                self.parts.insert(place, (step.part, part));
                place
            });
            self.parts[place]
                .1
                .pending
                .push((number, step.operation.clone()));
        }
    }

    /// Where a part is, or where it belongs.
    fn place(&self, part: u64) -> Result<usize, usize> {
        self.parts
            .binary_search_by_key(&part, |(number, _)| *number)
    }

    /// Notes that a call returns, with its recorded outcome.
    pub(crate) fn respond(&mut self, subject: &S, number: u32) -> Result<(), Complaint> {
        self.pending.retain(|pending| *pending != number);
        let call = &self.calls[number as usize];
        for step in &call.steps {
            let Some(outcome) = &step.outcome else {
                continue;
            };
            let place = self
                .place(step.part)
                .expect("it was touched when the call was made");
            if !self.parts[place].1.respond(subject, number, outcome) {
                return Err(format!(
                    "{:?} returned {outcome:?} where {:?} did, which no order of the operations explains",
                    step.operation, call.operation
                ));
            }
        }
        Ok(())
    }

    /// The states that a crash may leave now.
    pub(crate) fn expected(&self, subject: &S) -> ExpectedStates<S::State> {
        self.expected_of(subject, |configuration| configuration.durable)
    }

    /// The states that the structure may have now.
    pub(crate) fn current(&self, subject: &S) -> ExpectedStates<S::State> {
        self.expected_of(subject, |configuration| configuration.state)
    }

    fn expected_of(
        &self,
        subject: &S,
        which: fn(Configuration<S>) -> S::State,
    ) -> ExpectedStates<S::State> {
        let mut base = self.start.clone();
        let mut parts = Vec::new();
        for (number, part) in &self.parts {
            let choices = part.choices(subject, which);
            let Some(PartState { state: first, .. }) = choices.first() else {
                continue;
            };
            subject.copy_part(*number, first, &mut base);
            if choices
                .iter()
                .any(|choice| !subject.is_same_part(*number, first, &choice.state))
            {
                parts.push((*number, choices));
            }
        }
        ExpectedStates {
            states: vec![base],
            parts,
        }
    }

    /// The calls that were made, in the order of their numbers.
    pub(crate) fn recent(&self) -> Vec<S::Operation> {
        let made = self
            .calls
            .iter()
            .zip(&self.invoked)
            .filter(|(_, invoked)| **invoked);
        made.map(|(call, _)| call.operation.clone()).collect()
    }

    /// The calls that have not returned.
    pub(crate) fn during(&self) -> Option<String> {
        let pending = self.pending.iter();
        let names: Vec<_> = pending
            .map(|number| format!("{:?}", self.calls[*number as usize].operation))
            .collect();
        (!names.is_empty()).then(|| names.join(" beside "))
    }
}

#[cfg(test)]
mod tests;
