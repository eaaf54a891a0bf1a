//! The explorer: records a run, crashes it at every crash point, and judges every recovery.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use medium::sim::{Event, Mark, Mutation, OpenLine, Sim, SimOptions, SiteKind, Trace};
use medium::{LineValue, MediumError};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;

use crate::context::AcceptableStates;
use crate::guarded::guarded;
use crate::model::{Model, Rules, image_count, images, misused};
use crate::mutation;
use crate::options::{ExplorationOptions, Images, SecondCrash};
use crate::report::{Crash, CrashFailure, CrashReplay, Point, Stats};
use crate::strategy::{Choices, DecisionPlan, Follower, ValueDecision};
use crate::subject::{Complaint, Subject};
use crate::watchdog::Beacon;

/// The most recoveries spent on the search for a shorter sequence: about a minute of small ones.
pub(crate) const SHRINK_RECOVERIES_MAX: u64 = 1_000_000;

/// The result of an exploration; a failure is boxed because it is large.
pub type Verdict<S> = Result<(), Box<CrashFailure<<S as Subject>::Operation>>>;

/// The result of one recovery.
pub(crate) struct RecoveryResult<S: Subject> {
    verdict: Result<(), Complaint>,
    seen: Option<S::State>,
    followed: Vec<S::Operation>,
}

/// Explores crashes of one subject. See the [crate](crate).
pub struct Explorer<S: Subject> {
    pub(crate) subject: Arc<S>,
    pub(crate) sim: Sim,
    pub(crate) options: ExplorationOptions,
    plan: Arc<Mutex<DecisionPlan>>,
    pub(crate) setup: Vec<S::Operation>,
    pub(crate) start: S::State,
    /// The most steps of a run: [`ExplorationOptions::steps_max`], raised for long sequences.
    pub(crate) steps_max: u64,
    known: FxHashSet<u64>,
    /// The faults that could be planted in the traces, while they are collected.
    moves: Option<BTreeSet<Mutation>>,
    /// Where to write each attempt, if a watchdog runs; and the schedule and the crashes that lead
    /// to it.
    beacon: Option<Beacon>,
    schedule: String,
    trail: CrashReplay,
    pub(crate) stats: Stats,
    progress: Option<Box<ProgressCallback>>,
}

/// A callback for progress: how much was explored, and which part of the trace, from 0 to 1.
type ProgressCallback = dyn FnMut(&Stats, f64);

impl<S: Subject> Explorer<S> {
    /// An explorer of a subject on empty memory.
    pub fn new(subject: S, options: ExplorationOptions) -> Result<Self, MediumError> {
        // Opening a pool then makes no system call. Otherwise these would take most of the time of
        // a recovery.
        medium::arena::reuse_on_this_thread(true);
        let ExplorationOptions {
            line_form,
            limit_bytes,
            rubbish_from,
            rules,
            ..
        } = options;
        let late = rules == Rules::Log;
        let sim = Sim::new(SimOptions {
            line_form,
            limit_bytes,
            late,
            rubbish_from,
        })?;
        let plan = DecisionPlan {
            choices: Choices::default(),
            decided: Vec::new(),
            random: options.seed,
        };
        let plan = Arc::new(Mutex::new(plan));
        sim.set_chooser(Some(Box::new(Follower(Arc::clone(&plan)))));
        let start = subject.initial();
        let setup = Vec::new();
        let known = FxHashSet::default();
        let moves = None;
        let stats = Stats::default();
        let beacon = Beacon::new();
        let schedule = String::new();
        let trail = CrashReplay::default();
        let subject = Arc::new(subject);
        let progress = None;
        let steps_max = options.steps_max;
        Ok(Self {
            subject,
            sim,
            options,
            plan,
            setup,
            start,
            steps_max,
            known,
            moves,
            beacon,
            schedule,
            trail,
            stats,
            progress,
        })
    }

    /// The counts of the exploration so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The options, to be changed between explorations. Changes of the medium's options have no
    /// effect: [`ExplorationOptions::rules`], [`ExplorationOptions::line_form`],
    /// [`ExplorationOptions::limit_bytes`] and [`ExplorationOptions::rubbish_from`].
    pub fn options_mut(&mut self) -> &mut ExplorationOptions {
        &mut self.options
    }

    /// Forgets which crash points were explored.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }

    /// Calls `call` from now on after each crash point of a sequence, with how much was explored
    /// and which part of the sequence, from 0 to 1. The search for a shorter sequence begins at 0
    /// again.
    pub fn on_progress(&mut self, call: impl FnMut(&Stats, f64) + 'static) {
        self.progress = Some(Box::new(call));
    }

    /// The medium, for harnesses that inspect it.
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    /// Runs `setup` without a crash. Every later exploration starts from the state that it leaves,
    /// which is wholly durable. Call it at most once.
    pub fn set_up(&mut self, setup: &[S::Operation]) -> Verdict<S> {
        let mut state = self.start.clone();
        self.known.clear();
        self.announce(|_| (String::new(), format!("  in the setup {setup:?}\n")));
        self.allow_steps(setup.len());
        self.sim.set_step_limit(self.steps_max);
        let result = guarded(|| {
            let mut instance = self.subject.open(&self.sim)?;
            self.apply_all(&mut instance, &mut state, setup)
        });
        self.sim.set_step_limit(u64::MAX);
        self.rest();
        result.map_err(|what| self.failure(format!("in the setup: {what}"), setup))?;
        self.setup = setup.to_vec();
        self.start = state;
        Ok(())
    }

    /// Explores every crash of these operations. On a failure, searches for a shorter sequence that
    /// fails, too.
    pub fn explore(&mut self, operations: &[S::Operation]) -> Verdict<S> {
        let verdict = self.explore_and_shrink(operations);
        self.rest();
        verdict
    }

    fn explore_and_shrink(&mut self, operations: &[S::Operation]) -> Verdict<S> {
        let Err(failure) = self.explore_once(operations) else {
            return Ok(());
        };
        if self.options.replay.is_some() || !self.options.shrink {
            return Err(failure);
        }
        let stats = self.stats;
        let known = std::mem::take(&mut self.known);
        let shortest = self.shrink(failure);
        self.stats = stats;
        self.known = known;
        Err(shortest)
    }

    /// Explores every crash of these operations, and returns each fault that could be planted in
    /// the code that ran: every flush, fence, wait and store left out, every publish done first,
    /// every two adjacent persists swapped. The same call in a loop counts once.
    pub fn survey(
        &mut self,
        operations: &[S::Operation],
    ) -> Result<BTreeSet<Mutation>, Box<CrashFailure<S::Operation>>> {
        self.survey_while(|explorer| explorer.explore(operations))
    }

    /// Explores, and returns each fault that could be planted.
    pub(crate) fn survey_while<F>(
        &mut self,
        explore: impl FnOnce(&mut Self) -> Result<(), F>,
    ) -> Result<BTreeSet<Mutation>, F> {
        self.moves = Some(BTreeSet::new());
        self.sim.start_census();
        let verdict = explore(self);
        let mut mutations = self.moves.take().unwrap_or_default();
        verdict?;
        let drop = |(kind, site)| match kind {
            SiteKind::Flush => Mutation::DropFlush(site),
            SiteKind::Fence => Mutation::DropFence(site),
            SiteKind::Wait => Mutation::DropWait(site),
            SiteKind::Store | SiteKind::StoreLine => Mutation::DropStore(site),
        };
        mutations.extend(self.sim.census().into_keys().map(drop));
        Ok(mutations)
    }

    /// Sets the number of operations of the next runs, after those of the setup.
    pub(crate) fn allow_steps(&mut self, operations: usize) {
        let hundreds = (self.setup.len() + operations) as u64 / 100;
        self.steps_max = self.options.steps_max.saturating_mul(1 + hundreds);
    }

    /// Tells the watchdog the next attempt.
    fn tell(&mut self) {
        if let Some(beacon) = &mut self.beacon {
            beacon.attempt(&format!("{}{}", self.schedule, self.trail));
        }
    }

    /// Tells the watchdog by which schedule threads run from now on: the part of the word before
    /// the crash.
    pub(crate) fn tell_schedule(&mut self, schedule: impl FnOnce() -> String) {
        if self.beacon.is_some() {
            self.schedule = schedule();
            // An attempt with a crash tells it by itself; an attempt without one would not.
            if self.schedule.is_empty() {
                self.tell();
            }
        }
    }

    /// Tells the watchdog the program explored from now on, as a text and as a word, without the
    /// crash.
    pub(crate) fn announce(&mut self, program: impl FnOnce(&Self) -> (String, String)) {
        if self.beacon.is_none() {
            return;
        }
        let (word, text) = program(self);
        let text = match self.setup.is_empty() {
            true => text,
            false => format!("  after setup {:?}\n{text}", self.setup),
        };
        if let Some(beacon) = &mut self.beacon {
            beacon.program(&self.options.command, &word, &text);
        }
        self.schedule.clear();
        self.trail.crashes.clear();
        self.tell();
    }

    /// Tells the watchdog that nothing is explored.
    pub(crate) fn rest(&mut self) {
        if let Some(beacon) = &mut self.beacon {
            beacon.rest();
        }
    }

    /// The setup and the programs after it, in one word; empty if there is no such word.
    pub(crate) fn word<'o>(&self, programs: impl Iterator<Item = &'o [S::Operation]>) -> String
    where
        S::Operation: 'o,
    {
        let setup = self.subject.word(&self.setup);
        let words =
            std::iter::once(setup).chain(programs.map(|operations| self.subject.word(operations)));
        let words: Option<Vec<_>> = words.collect();
        words.map_or_else(String::new, |words| format!("{}@", words.join(",")))
    }

    /// Plants the faults in a recorded trace that are not planted during the recording.
    fn rearrange(&mut self, trace: &mut Trace) {
        if let Some(moves) = &mut self.moves {
            moves.extend(mutation::moves(trace));
        }
        self.options
            .mutations
            .iter()
            .for_each(|mutation| mutation::rearrange(trace, mutation));
    }

    /// Searches for a shorter failure: leaves out the second crash, then operations, from the end
    /// on, as long as the exploration still fails: half of them at once, then a quarter, down to
    /// one. If that takes too long, the result is not the shortest.
    fn shrink(
        &mut self,
        mut failure: Box<CrashFailure<S::Operation>>,
    ) -> Box<CrashFailure<S::Operation>> {
        let from_operation = std::mem::take(&mut self.options.from_operation);
        let second_crash = std::mem::replace(&mut self.options.second_crash, SecondCrash::Never);
        let mut simpler = self.explore_once(&failure.operations);
        if simpler.is_ok() {
            self.options.second_crash = second_crash;
            self.known.clear();
            simpler = self.explore_once(&failure.operations);
        }
        if let Err(simpler) = simpler {
            failure = simpler;
        }
        let enough = self.stats.recoveries + SHRINK_RECOVERIES_MAX;
        let mut count = failure.operations.len().div_ceil(2);
        while count > 0 {
            let mut end = failure.operations.len();
            while end > 0 && self.stats.recoveries < enough {
                let mut shorter = failure.operations.clone();
                let start = end.saturating_sub(count);
                shorter.drain(start..end);
                self.known.clear();
                if let Err(smaller) = self.explore_once(&shorter) {
                    failure = smaller;
                }
                end = start;
            }
            count = if count == 1 { 0 } else { count.div_ceil(2) };
        }
        self.options.from_operation = from_operation;
        self.options.second_crash = second_crash;
        failure
    }

    fn explore_once(&mut self, operations: &[S::Operation]) -> Verdict<S> {
        self.sim.set_mutations(self.options.mutations.clone());
        self.stats.traces += 1;
        self.allow_steps(operations.len());
        self.announce(|explorer| {
            let line = |(number, operation)| format!("  operation {number}: {operation:?}\n");
            let lines = operations.iter().enumerate().map(line).collect();
            (explorer.word([operations].into_iter()), lines)
        });
        let recorded = self.record(operations);
        self.sim.set_mutations(Vec::new());
        let mut trace = recorded.map_err(|what| self.failure(what, operations))?;
        self.rearrange(&mut trace);
        let from = match self.options.from_operation {
            0 => 0,
            first => invocation(&trace, first),
        };
        let context = AcceptableStates::first(
            self.start.clone(),
            operations.to_vec(),
            self.options.from_operation,
        );
        self.crash_trace(&trace, from, context)
            .map_err(|mut failure| {
                failure.operations = operations.to_vec();
                failure
            })
    }

    /// Crashes a recorded trace at every crash point from event `from` on.
    pub(crate) fn crash_trace(
        &mut self,
        trace: &Trace,
        from: usize,
        context: AcceptableStates<S>,
    ) -> Verdict<S> {
        if let Some(what) = misused(trace) {
            return Err(self.failure(what, &[]));
        }
        let mut model = Model::new(self.options.rules, &[], 0);
        self.sim.push_level();
        let result = self.walk(1, &mut model, trace, from, context);
        self.sim.pop_level();
        result
    }

    /// Runs the operations without a crash, and undoes them.
    fn record(&mut self, operations: &[S::Operation]) -> Result<Trace, Complaint> {
        let mut trace = Trace::default();
        let mut state = self.start.clone();
        self.sim.swap_trace(&mut trace);
        self.sim.push_level();
        self.sim.set_recording(true);
        self.sim.set_step_limit(self.steps_max);
        let result = guarded(|| {
            let mut instance = self.subject.open(&self.sim)?;
            self.apply_all(&mut instance, &mut state, operations)?;
            self.sim.set_recording(false);
            let seen = self.subject.observe(&mut instance)?;
            if seen != state {
                return Err(format!(
                    "without a crash: {seen:?} was found, but it should be {state:?}"
                ));
            }
            self.subject.check(&mut instance, &state)
        });
        self.sim.set_step_limit(u64::MAX);
        self.sim.set_recording(false);
        self.sim.swap_trace(&mut trace);
        self.sim.pop_level();
        result.map(|()| trace)
    }

    fn apply_all(
        &self,
        instance: &mut S::Instance,
        state: &mut S::State,
        operations: &[S::Operation],
    ) -> Result<(), Complaint> {
        for (number, operation) in operations.iter().enumerate() {
            let expected = self.subject.step(state, operation);
            self.sim.mark(Mark::Invoke(number as u32));
            let outcome = self.subject.apply(instance, operation);
            let outcome = outcome.map_err(|what| format!("{operation:?} failed: {what}"))?;
            self.sim.mark(Mark::Response(number as u32));
            if outcome != expected {
                return Err(format!(
                    "{operation:?} returned {outcome:?}, but it should be {expected:?}"
                ));
            }
        }
        Ok(())
    }

    /// Walks along a trace and crashes at every point that can leave a new image; points before
    /// event `from` are known.
    fn walk(
        &mut self,
        level: usize,
        model: &mut Model,
        trace: &Trace,
        from: usize,
        mut context: AcceptableStates<S>,
    ) -> Verdict<S> {
        // After a crash, no new image is possible before the first store.
        let mut stored = level == 1;
        let mut changed = stored;
        let mut expected = context.acceptable.clone();
        let reduced = self.options.reduced;
        for (index, event) in trace.events.iter().enumerate() {
            if (changed || !reduced)
                && let Some(point) = point_before(model, event, reduced)
            {
                if index >= from {
                    self.visit(level, model, index, point, &context)?;
                }
                if level == 1
                    && let Some(progress) = &mut self.progress
                {
                    progress(&self.stats, index as f64 / trace.events.len() as f64);
                }
                expected.clone_from(&context.acceptable);
                changed = false;
            }
            if model.adds(event) {
                stored = true;
                changed = true;
            }
            model.apply(&self.sim, trace, event);
            if let Event::Mark(mark) = event {
                context.mark(&self.subject, *mark);
                let stricter = stored && context.acceptable != expected;
                if let Some(point) = point_after(*mark)
                    && (changed || stricter)
                {
                    if index >= from {
                        self.visit(level, model, index, point, &context)?;
                    }
                    expected.clone_from(&context.acceptable);
                    changed = false;
                }
            }
        }
        if changed && !context.is_cut {
            self.visit(level, model, trace.events.len(), Point::AtEnd, &context)?;
        }
        Ok(())
    }

    /// Crashes here, and tries the images.
    fn visit(
        &mut self,
        level: usize,
        model: &mut Model,
        event: usize,
        point: Point,
        context: &AcceptableStates<S>,
    ) -> Verdict<S> {
        let path = match &self.options.replay {
            Some(replay) => match replay.crashes.get(level - 1) {
                Some((wanted, choices)) if *wanted == event => Some(choices.clone()),
                _ => return Ok(()),
            },
            None => None,
        };
        let (open, digest) = model.open_lines(&self.sim);
        let recent = context.recent();
        // The digest of a second crash does not include which image was made in full.
        let is_told = level == 1 || self.options.images != Images::Eager;
        if self.options.reduced && path.is_none() && is_told {
            let mut hasher = DefaultHasher::new();
            (level, digest, &context.acceptable, &recent).hash(&mut hasher);
            // The digest includes which images are tried here: a point at which fewer were tried
            // does not count as known.
            let ExplorationOptions {
                images,
                second_crash,
                mutations,
                steps_max,
                recoveries_per_point_max,
                seed,
                follow_up_first,
                ..
            } = &self.options;
            (
                images,
                second_crash,
                mutations,
                steps_max,
                recoveries_per_point_max,
                seed,
            )
                .hash(&mut hasher);
            follow_up_first.hash(&mut hasher);
            if !self.known.insert(hasher.finish()) {
                self.stats.known += 1;
                return Ok(());
            }
        }
        self.stats.points += 1;
        self.stats.second_points += u64::from(level > 1);
        self.stats.images = (self.stats.images + image_count(&open)).min(f64::MAX);
        self.sim.install(open);
        self.sim.push_level();
        self.trail.crashes.push((event, Choices::default()));
        let result = match path {
            Some(choices) => self.try_image(level, model, context, choices),
            None => self.try_images(level, model, context),
        };
        self.trail.crashes.pop();
        self.sim.pop_level();
        let open = self.sim.uninstall();
        result.map_err(|mut failure| {
            if let Some(crash) = failure
                .crashes
                .get_mut(0)
                .filter(|crash| crash.event == usize::MAX)
            {
                crash.event = event;
                crash.point = point;
                crash.during = context.during();
                let choices = self.plan.lock().decided.clone();
                crash.choices = choices.iter().map(|decided| decided.choice).collect();
                if self.options.images != Images::Eager {
                    crash.behind = model.behind(&left(open, &choices));
                }
            }
            failure
        })
    }

    fn try_images(
        &mut self,
        level: usize,
        model: &Model,
        context: &AcceptableStates<S>,
    ) -> Verdict<S> {
        let random = match self.options.images {
            Images::All => return self.try_all(level, model, context),
            Images::Eager => return self.try_eagerly(level, model, context),
            Images::Some { random } => random,
        };
        self.try_image(level, model, context, Choices::default())?;
        let read = self.plan.lock().lines();
        for line in read {
            // If no load reads a line while all lines are old, then that line alone being new
            // changes nothing.
            self.try_image(level, model, context, Choices::Ahead(line))?;
        }
        self.try_image(level, model, context, Choices::Newest)?;
        let read = self.plan.lock().lines();
        for &line in &read {
            self.try_image(level, model, context, Choices::Behind(line))?;
        }
        for _ in 0..if read.is_empty() { 0 } else { random } {
            let seed = self.plan.lock().random;
            self.try_image(level, model, context, Choices::Random(seed))?;
        }
        Ok(())
    }

    fn try_all(
        &mut self,
        level: usize,
        model: &Model,
        context: &AcceptableStates<S>,
    ) -> Verdict<S> {
        let mut choices = Choices::default();
        for _ in 0..self.options.recoveries_per_point_max {
            self.try_image(level, model, context, choices)?;
            match self.plan.lock().next_path() {
                Some(path) => choices = Choices::Given(path),
                None => return Ok(()),
            }
        }
        self.stats.cut_short += 1;
        Ok(())
    }

    /// Makes one image after the other, without any open line.
    fn try_eagerly(
        &mut self,
        level: usize,
        model: &Model,
        context: &AcceptableStates<S>,
    ) -> Verdict<S> {
        let open = self.sim.uninstall();
        let mut result = Ok(());
        for image in images(&open).take(self.options.recoveries_per_point_max as usize) {
            self.sim.push_level();
            for (line, content) in &image {
                self.sim.poke(*line, content);
            }
            // Later changes are undone down to this image, for a second crash.
            self.sim.push_level();
            result = self.try_image(level, model, context, Choices::default());
            self.sim.pop_level();
            self.sim.pop_level();
            if let Err(failure) = &mut result {
                let contents: Vec<_> = image
                    .iter()
                    .map(|(line, content)| (*line, vec![*content]))
                    .collect();
                failure.crashes[0].behind = model.behind(&contents);
                break;
            }
        }
        self.sim.install(open);
        result
    }

    /// Recovers once. A failure comes back with a crash to be filled in.
    fn try_image(
        &mut self,
        level: usize,
        model: &Model,
        context: &AcceptableStates<S>,
        choices: Choices,
    ) -> Verdict<S> {
        let given = choices.given().map_or(0, <[u16]>::len);
        if let Some((_, told)) = self.trail.crashes.last_mut() {
            told.clone_from(&choices);
        }
        self.plan.lock().begin(choices);
        self.tell();
        let again = level == 1
            && match &self.options.replay {
                Some(replay) => replay.crashes.len() > level,
                None => self.options.second_crash != SecondCrash::Never,
            };
        // A repetition of a failure records the same as the run that found it.
        let records = again || self.options.replay.is_some();
        let run = self.run(context, records);
        let mut trace = Trace::default();
        if records {
            self.sim.swap_trace(&mut trace);
            self.rearrange(&mut trace);
        }
        self.sim.rollback();
        self.stats.recoveries += 1;
        let decided = self.plan.lock().decided.clone();
        self.stats.decisions_max = self.stats.decisions_max.max(decided.len() as u64);
        let unfilled = Crash {
            point: Point::AtEnd,
            event: usize::MAX,
            during: None,
            behind: Vec::new(),
            choices: Vec::new(),
        };
        let verdict = run
            .verdict
            .and_then(|()| misused(&trace).map_or(Ok(()), Err));
        if let Err(what) = verdict {
            let mut failure = self.failure(what, &[]);
            failure.crashes.push(unfilled);
            return Err(failure);
        }
        if again {
            let from = match self.options.replay {
                Some(_) => 0,
                None if !self.options.reduced => 0,
                None => after_narrowing(&trace, given),
            };
            let context = context.second(run.seen, run.followed);
            if let Some((_, told)) = self.trail.crashes.last_mut() {
                *told = Choices::Given(decided.iter().map(|decided| decided.choice).collect());
            }
            let result = self.crash_again(level + 1, model, &trace, from, context);
            self.plan.lock().decided = decided;
            result.map_err(|mut failure| {
                failure.crashes.insert(0, unfilled);
                failure
            })?;
        }
        Ok(())
    }

    /// Crashes during the recovery and the operations after a crash.
    fn crash_again(
        &mut self,
        level: usize,
        model: &Model,
        trace: &Trace,
        from: usize,
        context: AcceptableStates<S>,
    ) -> Verdict<S> {
        let open = self.sim.uninstall();
        let mut model = Model::new(self.options.rules, &open, model.digest());
        self.sim.push_level();
        let result = self.walk(level, &mut model, trace, from, context);
        self.sim.pop_level();
        self.sim.install(open);
        result
    }

    /// Opens the structure after a crash and judges the state that it finds.
    fn run(&self, context: &AcceptableStates<S>, record: bool) -> RecoveryResult<S> {
        let mut seen = None;
        let mut followed = Vec::new();
        self.sim.set_mutations(self.options.mutations.clone());
        self.sim.set_step_limit(self.steps_max);
        self.sim.set_recording(record);
        let verdict = guarded(|| {
            let mut instance = self
                .subject
                .open(&self.sim)
                .map_err(|what| format!("recovery failed: {what}"))?;
            let known = if self.options.follow_up_first {
                context.acceptable.only()
            } else {
                None
            };
            let mut state = match known {
                Some(state) => state.clone(),
                None => self.see(&mut instance, context)?,
            };
            self.sim.mark(Mark::Observed);
            if self.options.second_crash == SecondCrash::InRecovery {
                self.sim.set_recording(false);
            }
            seen = Some(state.clone());
            if known.is_none() {
                self.subject.check(&mut instance, &state)?;
            }
            followed = self.subject.follow_up(&state, &context.recent());
            self.apply_all(&mut instance, &mut state, &followed)
                .map_err(|what| format!("after recovery {what}"))?;
            self.sim.set_recording(false);
            let end = self.subject.observe(&mut instance)?;
            if end != state {
                return Err(format!(
                    "after recovery and {followed:?} {end:?} was found, but it should be {state:?}"
                ));
            }
            self.subject.check(&mut instance, &state)
        });
        self.sim.set_recording(false);
        self.sim.set_step_limit(u64::MAX);
        if !self.options.mutations.is_empty() {
            self.sim.set_mutations(Vec::new());
        }
        RecoveryResult {
            verdict,
            seen,
            followed,
        }
    }

    /// Checks the state found after a recovery, and returns it.
    fn see(
        &self,
        instance: &mut S::Instance,
        context: &AcceptableStates<S>,
    ) -> Result<S::State, Complaint> {
        let state = self.subject.observe(instance)?;
        match context.acceptable.accepts(&*self.subject, &state) {
            true => Ok(state),
            false => Err(format!(
                "after recovery {state:?} was found, but it should be {}",
                context.acceptable.describe()
            )),
        }
    }

    pub(crate) fn failure(
        &self,
        what: Complaint,
        operations: &[S::Operation],
    ) -> Box<CrashFailure<S::Operation>> {
        Box::new(CrashFailure {
            what,
            setup: self.setup.clone(),
            operations: operations.to_vec(),
            crashes: Vec::new(),
            planted: self
                .options
                .mutations
                .iter()
                .map(Mutation::to_string)
                .collect(),
            command: self.options.command.clone(),
            seed: self.options.seed,
        })
    }
}

/// The crash point before an event, if there is one.
fn point_before(model: &Model, event: &Event, reduced: bool) -> Option<Point> {
    let raises = || !reduced || model.raises(event);
    let site = event.site().map(|(_, site)| site);
    match (event, site) {
        (Event::Mark(Mark::Invoke(number)), _) => Some(Point::BeforeOperation(*number)),
        (Event::Grow { .. }, _) => Some(Point::BeforeGrowth),
        (Event::Release { .. }, _) => Some(Point::BeforeRelease),
        (Event::Fence { .. }, Some(site)) if raises() => Some(Point::BeforeFence(site)),
        (Event::Wait { .. }, Some(site)) if raises() => Some(Point::BeforeWait(site)),
        (_, Some(site)) if raises() => Some(Point::BeforeStore(site)),
        _ => None,
    }
}

fn point_after(mark: Mark) -> Option<Point> {
    match mark {
        Mark::Response(number) => Some(Point::AfterOperation(number)),
        Mark::Observed => Some(Point::AfterObservation),
        Mark::Invoke(_) => None,
    }
}

/// The event with which an operation begins.
fn invocation(trace: &Trace, number: usize) -> usize {
    let is_it =
        |event: &Event| matches!(event, Event::Mark(Mark::Invoke(n)) if *n as usize == number);
    trace
        .events
        .iter()
        .position(is_it)
        .unwrap_or(trace.events.len())
}

/// The first event after this number of decisions.
fn after_narrowing(trace: &Trace, decisions: usize) -> usize {
    let narrowings = trace
        .events
        .iter()
        .enumerate()
        .filter(|(_, event)| matches!(event, Event::Narrow { .. }));
    decisions
        .checked_sub(1)
        .and_then(|last| narrowings.map(|(index, _)| index + 1).nth(last))
        .unwrap_or(0)
}

/// The contents that are still possible for each line after decisions about it.
fn left(open: Vec<OpenLine>, decided: &[ValueDecision]) -> Vec<(u32, Vec<LineValue>)> {
    let narrow = |open: OpenLine| {
        let decided: Vec<_> = decided
            .iter()
            .filter(|decided| decided.line == open.line)
            .collect();
        let agrees =
            |content: &LineValue| decided.iter().all(|one| content.0[one.word] == one.value);
        let contents: Vec<_> = open.candidates.into_iter().filter(agrees).collect();
        (!decided.is_empty()).then_some((open.line, contents))
    };
    open.into_iter().filter_map(narrow).collect()
}
