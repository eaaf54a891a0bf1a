//! One run of a program, recorded.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use medium::sim::{Event, Mark, Trace};

use super::crew::{Crew, Job};
use super::turn::{End, Turn};
use super::{Concurrent, Program};
use crate::explore::Explorer;
use crate::guarded::guarded;
use crate::linearize::{Call, History, PartCall};
use crate::subject::{Complaint, Subject};

/// A run.
pub(super) struct Recorded<S: Subject> {
    pub(super) verdict: Result<(), Complaint>,
    pub(super) trace: Trace,
    /// Events recorded before the threads began.
    pub(super) begin: usize,
    /// The state when the threads began.
    pub(super) start: S::State,
    pub(super) calls: Rc<Vec<Call<S>>>,
}

/// The history of a run.
struct Results<S: Subject> {
    outcomes: Vec<Option<S::Outcome>>,
    failure: Option<Complaint>,
}

impl<S: Concurrent + 'static> Explorer<S> {
    /// Runs a program once, and undoes it.
    pub(super) fn record_threads(
        &self,
        crew: &mut Crew,
        turn: &Rc<Turn>,
        program: &Program<S::Operation>,
        steps_max: u32,
    ) -> Recorded<S> {
        let mut recorded = Recorded {
            verdict: Ok(()),
            trace: Trace::default(),
            begin: 0,
            start: self.start.clone(),
            calls: Rc::default(),
        };
        self.sim.swap_trace(&mut recorded.trace);
        self.sim.push_level();
        self.sim.set_recording(true);
        let seen = guarded(|| {
            self.sim.set_step_limit(self.steps_max);
            let instance = self.prepare(program, &mut recorded.start)?;
            // The scheduler counts the steps of the threads.
            self.sim.set_step_limit(u64::MAX);
            recorded.begin = self.sim.recorded();
            turn.begin(program.threads.len(), &program.uninterrupted, steps_max);
            let (mut instance, results) = self.run_threads(crew, turn, program, instance);
            self.sim.set_recording(false);
            recorded.calls = self.calls(&recorded.start, program, results.outcomes);
            match (turn.end(), results.failure) {
                (Some(End::Deadlock), _) => {
                    Err("a deadlock: every thread waits for another one".to_owned())
                }
                (Some(End::Livelock), _) => {
                    Err(format!("a livelock: no end within {steps_max} steps"))
                }
                (Some(End::Astray), _) => Err(
                    "a run did not repeat the one before: the subject is not deterministic"
                        .to_owned(),
                ),
                (_, Some(failure)) => Err(failure),
                // Other runs cover the rest of this one.
                (Some(End::Known | End::Asleep | End::Failure), None) => Ok(None),
                (None, None) => {
                    let instance = Rc::get_mut(&mut instance).expect("the threads are done");
                    self.sim.set_step_limit(self.steps_max);
                    let seen = self.subject.observe(instance)?;
                    self.subject.check(instance, &seen)?;
                    Ok(Some(seen))
                }
            }
        });
        self.sim.set_step_limit(u64::MAX);
        self.sim.set_recording(false);
        self.sim.swap_trace(&mut recorded.trace);
        self.sim.pop_level();
        recorded.verdict = seen.and_then(|seen| self.judge(&recorded, seen.as_ref()));
        recorded
    }

    /// Opens the structure and executes the operations before the threads.
    fn prepare(
        &self,
        program: &Program<S::Operation>,
        state: &mut S::State,
    ) -> Result<S::Instance, Complaint> {
        let mut instance = self.subject.open(&self.sim)?;
        for operation in &program.before {
            let expected = self.subject.step(state, operation);
            let outcome = self.subject.apply(&mut instance, operation)?;
            if outcome != expected {
                return Err(format!(
                    "{operation:?} returned {outcome:?}, but it should be {expected:?}"
                ));
            }
        }
        Ok(instance)
    }

    fn run_threads(
        &self,
        crew: &mut Crew,
        turn: &Rc<Turn>,
        program: &Program<S::Operation>,
        instance: S::Instance,
    ) -> (Rc<S::Instance>, Results<S>) {
        let instance = Rc::new(instance);
        turn.set_home(&*instance);
        let operations: usize = program.threads.iter().map(Vec::len).sum();
        let results = Results {
            outcomes: vec![None; operations],
            failure: None,
        };
        let results = Rc::new(RefCell::new(results));
        let mut first = 0;
        let mut jobs = Vec::with_capacity(program.threads.len());
        for (thread, operations) in program.threads.iter().enumerate() {
            jobs.push(self.job(thread, first, operations.clone(), turn, &instance, &results));
            first += operations.len();
        }
        crew.run(turn, jobs);
        let results = results.replace(Results {
            outcomes: Vec::new(),
            failure: None,
        });
        (instance, results)
    }

    /// The job of one thread; its first operation has number `first`.
    fn job(
        &self,
        thread: usize,
        first: usize,
        operations: Vec<S::Operation>,
        turn: &Rc<Turn>,
        instance: &Rc<S::Instance>,
        results: &Rc<RefCell<Results<S>>>,
    ) -> Job {
        let subject = Arc::clone(&self.subject);
        let sim = self.sim.clone();
        let turn = Rc::clone(turn);
        let instance = Rc::clone(instance);
        let results = Rc::clone(results);
        Box::new(move || {
            for (position, operation) in operations.iter().enumerate() {
                let number = first + position;
                turn.invoke(position == 0);
                sim.mark(Mark::Invoke(number as u32));
                match guarded(|| subject.call(&instance, operation)) {
                    Ok(outcome) => {
                        sim.mark(Mark::Response(number as u32));
                        turn.respond(number as u32);
                        results.borrow_mut().outcomes[number] = Some(outcome);
                    }
                    Err(what) => {
                        let what = format!("{operation:?} failed: {what}");
                        results.borrow_mut().failure.get_or_insert(what);
                        turn.fail();
                        break;
                    }
                }
            }
            drop((instance, results));
            turn.finish(thread);
        })
    }

    /// The calls of a run, split by part of the state.
    fn calls(
        &self,
        start: &S::State,
        program: &Program<S::Operation>,
        outcomes: Vec<Option<S::Outcome>>,
    ) -> Rc<Vec<Call<S>>> {
        let made: Vec<_> = program
            .threads
            .iter()
            .flatten()
            .cloned()
            .zip(outcomes)
            .collect();
        let parts = self.subject.parts(start, &made);
        let call = |((operation, _), parts): ((S::Operation, _), Vec<_>)| {
            let steps = parts
                .into_iter()
                .map(|(part, operation, outcome)| PartCall {
                    part,
                    operation,
                    outcome,
                });
            Call {
                operation,
                steps: steps.collect(),
            }
        };
        Rc::new(made.into_iter().zip(parts).map(call).collect())
    }

    /// Checks that some order of the operations explains their results, and the state at the end.
    fn judge(&self, recorded: &Recorded<S>, seen: Option<&S::State>) -> Result<(), Complaint> {
        let subject = &*self.subject;
        let mut history = History::new(recorded.start.clone(), Rc::clone(&recorded.calls));
        for event in &recorded.trace.events {
            match event {
                Event::Mark(Mark::Invoke(number)) => history.invoke(subject, *number),
                Event::Mark(Mark::Response(number)) => history.respond(subject, *number)?,
                _ => {}
            }
        }
        let expected = history.current(subject);
        match seen {
            Some(seen) if !expected.accepts(subject, seen) => Err(format!(
                "in the end {seen:?} was found, but it should be {}",
                expected.describe()
            )),
            _ => Ok(()),
        }
    }
}
