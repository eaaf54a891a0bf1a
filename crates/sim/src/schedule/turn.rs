//! The scheduler as the running thread calls it: decides which thread runs.

use std::cell::{Cell, RefCell};

use medium::sim::Sim;
use medium::sync::schedule::{Access, AccessKind, Scheduler};

use super::crew::give_way;
use super::order::{Choice, RandomPriorities, Schedule, ScheduleTree, ThreadChoice};
use super::states::{Conflicts, Sleepers, StateDigest, mix};
use crate::model::Rules;

/// How the next thread is chosen.
pub(super) enum ScheduleOrder {
    /// All schedules.
    All(ScheduleTree),
    /// A random one.
    Random(RandomPriorities),
    /// A given one.
    Again(Schedule),
}

/// The reason why a run ended before its threads were done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Everything from here on was tried before. The threads run on to their ends, unrecorded.
    Known,
    /// Only sleeping threads could run, which other schedules cover. The threads run on to their
    /// ends, unrecorded.
    Asleep,
    /// A thread failed. The others run on to their ends, unrecorded.
    Failure,
    /// Every thread waits. They are never resumed.
    Deadlock,
    /// The threads do not end. They are not resumed any more.
    Livelock,
    /// The run did not repeat an earlier one.
    Astray,
}

impl End {
    fn is_final(self) -> bool {
        !matches!(self, Self::Known | Self::Asleep | Self::Failure)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    Ready,
    /// Waits for another thread; the number of changes when it began to wait.
    Waiting(u64),
    Done,
}

/// How often every waiting thread tries again without a visible change before the run counts as a
/// deadlock: the release of a mutex is not visible.
const LOOKS_MAX: u32 = 3;

/// One run.
struct Run {
    order: ScheduleOrder,
    rules: Rules,
    /// Whether threads are stopped only at accesses in conflict.
    is_reduced: bool,
    conflicts: Conflicts,
    state: StateDigest,
    sleepers: Sleepers,
    status: Vec<Status>,
    current: usize,
    steps: u32,
    steps_max: u32,
    /// Stores so far, and threads that are done.
    changes: u64,
    /// Threads whose last access was a store, or a compare-exchange that failed: the next access
    /// tells which.
    unsure: u64,
    /// Threads that are not done.
    live: u64,
    /// Threads that are never preempted.
    uninterrupted: u64,
    looks: u32,
    end: Option<End>,
    /// Whether the threads are not resumed any more, though they are not done.
    is_stuck: bool,
    schedule: Schedule,
    /// Events recorded before each switch.
    switch_events: Vec<usize>,
    /// Operations that have returned.
    returned: u64,
}

/// Decides which thread runs; shared by the threads of a run, which run one at a time.
pub(super) struct Turn {
    run: RefCell<Run>,
    /// The addresses of the object that the threads share.
    home: Cell<(usize, usize)>,
    sim: Sim,
}

impl Run {
    fn others(&self) -> impl Iterator<Item = usize> {
        let can_go = |thread: &usize| match self.status[*thread] {
            Status::Ready => true,
            Status::Waiting(since) => since < self.changes,
            Status::Done => false,
        };
        (0..self.status.len()).filter(move |thread| *thread != self.current && can_go(thread))
    }

    /// Chooses the next thread. `stays` says whether the current thread can go on, whose next
    /// access is `pending`.
    fn choose(&mut self, stays: bool, pending: Option<Access>, event: usize) {
        let current = stays.then_some(self.current as u16);
        let mut options: Vec<u16> = current
            .into_iter()
            .chain(self.others().map(|other| other as u16))
            .collect();
        let Some(&first) = options.first() else {
            return self.choose_among_waiting(event);
        };
        if self.end.is_some() {
            return self.switch_to(usize::from(first), event);
        }
        let step = self.steps;
        let next = match &mut self.order {
            ScheduleOrder::All(tree) => {
                let asleep = self.sleepers.asleep();
                options.retain(|option| asleep & 1 << option == 0);
                if options.is_empty() {
                    self.end = Some(End::Asleep);
                    return self.switch_to(usize::from(first), event);
                }
                let prunes = tree.prunes();
                let state = &self.state;
                let waiting = self.status.iter().fold(0, |bits, status| {
                    bits << 2
                        | u64::from(
                            matches!(status, Status::Waiting(since) if *since >= self.changes),
                        )
                });
                let decision = ThreadChoice {
                    options: &options,
                    asleep,
                    preempts: stays,
                    step,
                    event,
                };
                match tree.choose(&decision, || mix(state.number(), waiting)) {
                    Choice::Go(next) => {
                        if prunes && stays && next != options[0] {
                            self.sleepers.add(self.current, pending);
                        }
                        next
                    }
                    Choice::Known => {
                        self.end = Some(End::Known);
                        options[0]
                    }
                    Choice::Astray => return self.stop(End::Astray),
                }
            }
            ScheduleOrder::Random(random) => random.choose(self.current as u16, &options, step),
            ScheduleOrder::Again(schedule) => {
                let switch = schedule.switches.iter().find(|switch| switch.0 == step);
                switch
                    .map(|switch| switch.1)
                    .filter(|next| options.contains(next))
                    .unwrap_or(options[0])
            }
        };
        self.switch_to(usize::from(next), event);
    }

    fn switch_to(&mut self, next: usize, event: usize) {
        if next != self.current {
            self.schedule.switches.push((self.steps, next as u16));
            self.switch_events.push(event);
            self.current = next;
        }
        self.status[next] = Status::Ready;
    }

    /// Lets each waiting thread try once more, in turn, although there was no visible change.
    fn choose_among_waiting(&mut self, event: usize) {
        let count = self.status.len();
        let turn = (1..=count).map(|distance| (self.current + distance) % count);
        let mut waiting = turn.filter(|thread| matches!(self.status[*thread], Status::Waiting(_)));
        let Some(next) = waiting.next() else { return };
        self.looks += 1;
        if self.looks > LOOKS_MAX * count as u32 {
            return self.stop(End::Deadlock);
        }
        self.switch_to(next, event);
    }

    fn step(&mut self) {
        self.steps += 1;
        if self.steps > self.steps_max {
            self.stop(End::Livelock);
        }
    }

    /// Ends the run. The first reason stays, except that a run which was cut and then gets stuck is
    /// reported as stuck.
    fn stop(&mut self, end: End) {
        let is_cut = matches!(self.end, Some(End::Known | End::Asleep));
        if self.end.is_none() || is_cut && end.is_final() {
            self.end = Some(end);
        }
        self.is_stuck |= end.is_final();
    }

    fn change(&mut self) {
        self.changes += 1;
        self.looks = 0;
    }
}

impl Turn {
    /// `is_reduced`: whether threads are stopped only at accesses in conflict.
    pub(super) fn new(sim: Sim, order: ScheduleOrder, rules: Rules, is_reduced: bool) -> Self {
        let run = Run {
            order,
            rules,
            is_reduced,
            conflicts: Conflicts::default(),
            state: StateDigest::default(),
            sleepers: Sleepers::default(),
            status: Vec::new(),
            current: 0,
            steps: 0,
            steps_max: 0,
            changes: 0,
            unsure: 0,
            live: 0,
            uninterrupted: 0,
            looks: 0,
            end: None,
            is_stuck: false,
            schedule: Schedule::default(),
            switch_events: Vec::new(),
            returned: 0,
        };
        Self {
            run: RefCell::new(run),
            home: Cell::default(),
            sim,
        }
    }

    /// Sets the addresses of the object that the threads of the next run share.
    pub(super) fn set_home<T>(&self, object: &T) {
        let start = std::ptr::from_ref(object).addr();
        self.home.set((start, start + size_of::<T>()));
    }

    /// Begins a run: chooses the first thread.
    pub(super) fn begin(&self, threads: usize, uninterrupted: &[usize], steps_max: u32) {
        let event = self.sim.recorded();
        let run = &mut *self.run.borrow_mut();
        run.steps = 0;
        run.steps_max = steps_max;
        run.changes = 1;
        run.looks = 0;
        run.returned = 0;
        run.end = None;
        run.is_stuck = false;
        run.unsure = 0;
        run.live = u64::MAX >> (64 - threads);
        run.uninterrupted = uninterrupted
            .iter()
            .fold(0, |bits, thread| bits | 1 << thread);
        run.schedule = Schedule::default();
        run.switch_events.clear();
        run.status.clear();
        run.status.resize(threads, Status::Ready);
        run.state.reset(threads);
        run.sleepers.reset(threads);
        run.current = match &mut run.order {
            ScheduleOrder::All(tree) => {
                tree.begin_run();
                0
            }
            ScheduleOrder::Random(_) => 0,
            ScheduleOrder::Again(schedule) => usize::from(schedule.first).min(threads - 1),
        };
        if !matches!(run.order, ScheduleOrder::Again(_)) {
            // The choice of the first thread is no preemption. No thread runs yet: the current one
            // is a placeholder that is done.
            run.status.push(Status::Done);
            run.current = threads;
            run.choose(false, None, event);
            run.status.pop();
            run.schedule.switches.clear();
            run.switch_events.clear();
        }
        run.schedule.first = run.current as u16;
    }

    /// Whether the threads are not resumed any more, though they are not done.
    pub(super) fn is_stuck(&self) -> bool {
        self.run.borrow().is_stuck
    }

    /// The reason why the run ended before its threads were done.
    pub(super) fn end(&self) -> Option<End> {
        self.run.borrow().end
    }

    /// Steps of the run.
    pub(super) fn steps(&self) -> u32 {
        self.run.borrow().steps
    }

    /// The schedule of the run, and how many events were recorded before each switch.
    pub(super) fn schedule(&self) -> (Schedule, Vec<usize>) {
        let run = self.run.borrow();
        (run.schedule.clone(), run.switch_events.clone())
    }

    /// Uses another order from the next run on.
    pub(super) fn set_order(&self, order: ScheduleOrder) {
        self.run.borrow_mut().order = order;
    }

    /// Starts all schedules with at most `preemptions_max` preemptions again, with the conflicts
    /// known by now. Returns `false` if the last round was the same.
    pub(super) fn begin_round(&self, preemptions_max: u32) -> bool {
        let run = &mut *self.run.borrow_mut();
        let found = run.conflicts.next_round();
        match &mut run.order {
            ScheduleOrder::All(tree) => tree.begin_round(preemptions_max) || found,
            ScheduleOrder::Random(_) | ScheduleOrder::Again(_) => false,
        }
    }

    /// The preemptions of the run, if they are counted.
    pub(super) fn preemptions(&self) -> u32 {
        match &self.run.borrow().order {
            ScheduleOrder::All(tree) => tree.preemptions(),
            ScheduleOrder::Random(_) | ScheduleOrder::Again(_) => 0,
        }
    }

    /// Prepares the next run of all; `false` if that was the last one.
    pub(super) fn advance(&self) -> bool {
        match &mut self.run.borrow_mut().order {
            ScheduleOrder::All(tree) => tree.advance(),
            ScheduleOrder::Random(_) | ScheduleOrder::Again(_) => false,
        }
    }

    /// The number of events that earlier runs have recorded in the same way as this one.
    pub(super) fn known_events(&self) -> usize {
        match &self.run.borrow().order {
            ScheduleOrder::All(tree) => tree.known_events(),
            ScheduleOrder::Random(_) | ScheduleOrder::Again(_) => 0,
        }
    }

    /// The thread that runs next; `None` once the run is over.
    pub(super) fn next(&self) -> Option<usize> {
        let run = self.run.borrow();
        let is_over = run.is_stuck || run.status.iter().all(|status| *status == Status::Done);
        (!is_over).then_some(run.current)
    }

    /// Notes that the current thread has no operations left.
    pub(super) fn finish(&self, thread: usize) {
        let event = self.sim.recorded();
        let run = &mut *self.run.borrow_mut();
        run.status[thread] = Status::Done;
        run.live &= !(1 << thread);
        // This is a step of its own, to distinguish this choice of a thread from that at the last
        // access.
        run.step();
        run.change();
        run.choose(false, None, event);
        self.stop_recording(run);
    }

    /// A thread failed.
    pub(super) fn fail(&self) {
        let run = &mut *self.run.borrow_mut();
        run.stop(End::Failure);
        self.stop_recording(run);
    }

    fn stop_recording(&self, run: &Run) {
        if run.end.is_some() {
            self.sim.set_recording(false);
        }
    }

    /// Notes that the current thread begins an operation. Operations that have returned by now came
    /// before it.
    pub(super) fn invoke(&self, is_first: bool) {
        if !is_first {
            self.pass(None);
        }
        let run = &mut *self.run.borrow_mut();
        let returned = run.returned;
        run.state.see(run.current, returned);
    }

    /// Notes that an operation has returned.
    pub(super) fn respond(&self, number: u32) {
        let run = &mut *self.run.borrow_mut();
        run.returned ^= mix(1, u64::from(number));
        run.sleepers.respond();
        run.state.see(run.current, u64::from(number));
    }

    /// A yield point.
    fn pass(&self, access: Option<Access>) {
        if std::thread::panicking() {
            return;
        }
        let event = self.sim.recorded();
        let stays = {
            let run = &mut *self.run.borrow_mut();
            let current = run.current;
            run.step();
            if run.unsure & 1 << current != 0 {
                run.unsure &= !(1 << current);
                run.change();
            }
            if let Some(access) = &access {
                run.state.approach(&run.conflicts, current, access);
            }
            if run.end.is_none()
                && run.uninterrupted & 1 << current == 0
                && access.is_none_or(|access| is_point(run, &access))
            {
                run.choose(true, access, event);
                self.stop_recording(run);
            }
            run.current == current && !run.is_stuck
        };
        if !stays {
            give_way();
        }
        if let Some(access) = access {
            let run = &mut *self.run.borrow_mut();
            run.state
                .note(&mut run.conflicts, run.current, &access, run.rules);
            run.sleepers.note(&access, run.rules);
            if access.kind == AccessKind::Store {
                run.unsure |= 1 << run.current;
            }
        }
    }
}

/// Whether another thread may go on before this access.
fn is_point(run: &Run, access: &Access) -> bool {
    match &run.order {
        ScheduleOrder::All(_) if run.is_reduced => {
            run.conflicts
                .concerns(access, run.live & !(1 << run.current), run.rules)
        }
        _ => true,
    }
}

impl Scheduler for Turn {
    fn reach(&self, access: Access) {
        let (start, end) = self.home.get();
        self.pass(Some(access.named(&(start..end))));
    }

    fn contend(&self) {
        // This also runs during a panic: a value that the thread drops while it unwinds may wait
        // for a lock.
        let event = self.sim.recorded();
        let stays = {
            let run = &mut *self.run.borrow_mut();
            let current = run.current;
            run.step();
            if !run.is_stuck {
                // The last compare-exchange failed, so it changed nothing.
                run.unsure &= !(1 << current);
                run.state.see(current, u64::MAX);
                run.status[current] = Status::Waiting(run.changes);
                run.choose(false, None, event);
                self.stop_recording(run);
            }
            run.current == current && !run.is_stuck
        };
        if !stays {
            give_way();
        }
    }
}
