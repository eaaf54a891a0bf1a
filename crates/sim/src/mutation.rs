//! Faults that are planted on a trace: the same operations, durable in another order.
//!
//! The program itself ran unchanged, with the same stores. Only the order changes in which the
//! model applies the events. Nothing moves across a mark, growth, a wait, a decision about open
//! lines or another thread's event, and no store moves across another one to the same word.

use std::collections::BTreeSet;
use std::ops::Range;

use medium::sim::{Event, Mutation, Site, SiteKind, Trace};

/// A move: the events at `from` go to `to`, which lies before them.
struct Move {
    mutation: Mutation,
    to: usize,
    from: Range<usize>,
}

fn thread(event: &Event) -> Option<u16> {
    match event {
        Event::Store { thread, .. }
        | Event::StoreLine { thread, .. }
        | Event::Flush { thread, .. }
        | Event::Fence { thread, .. } => Some(*thread),
        Event::Wait { .. }
        | Event::Grow { .. }
        | Event::Release { .. }
        | Event::Narrow { .. }
        | Event::Mark(_) => None,
    }
}

/// Runs of events within which events may move.
fn stretches(events: &[Event]) -> Vec<Range<usize>> {
    let mut stretches = Vec::new();
    let mut next = 0;
    while next < events.len() {
        let start = next;
        let owner = thread(&events[start]);
        while next < events.len() && thread(&events[next]) == owner {
            next += 1;
        }
        if owner.is_some() {
            stretches.push(start..next);
        }
    }
    stretches
}

fn is_store(event: &Event) -> bool {
    matches!(event, Event::Store { .. } | Event::StoreLine { .. })
}

/// The words that an event stores to.
fn stored(event: &Event) -> Range<u32> {
    match event {
        Event::Store { word, .. } => *word..*word + 1,
        Event::StoreLine { line, .. } => 8 * line..8 * line + 8,
        _ => 0..0,
    }
}

fn conflict(events: &[Event], others: &[Event]) -> bool {
    let meets = |one: &Event, other: &Event| {
        let one = stored(one);
        let other = stored(other);
        one.start.max(other.start) < one.end.min(other.end)
    };
    events
        .iter()
        .any(|event| others.iter().any(|other| meets(event, other)))
}

/// The stores and the flush of a publish: all from one place in the source. `end` is behind the
/// flush.
fn publish_before(
    events: &[Event],
    stretch: &Range<usize>,
    end: usize,
) -> Option<(Site, Range<usize>)> {
    let Some((SiteKind::Flush, site)) = events[end - 1].site() else {
        return None;
    };
    let same =
        |event: &&Event| is_store(event) && event.site().is_some_and(|(_, other)| other == site);
    let stores = events[stretch.start..end - 1]
        .iter()
        .rev()
        .take_while(same)
        .count();
    (stores > 0).then_some((site, end - 1 - stores..end))
}

/// Publishes that could be done before the persist that comes before them.
fn early_publishes(events: &[Event], stretch: Range<usize>, moves: &mut Vec<Move>) {
    // The starts of the last two persists.
    let mut before = stretch.start;
    let mut last = stretch.start;
    for index in stretch.clone() {
        if matches!(events[index], Event::Fence { .. }) {
            before = last;
            last = index + 1;
        }
        // The persist of a publish begins with the publish, or with earlier stores if no fence lies
        // between. A compare-exchange is flushed later, together with others: it moves before the
        // whole preceding persist.
        let (site, from, mut to) = if let Event::Store {
            exchanged: true,
            site,
            ..
        } = events[index]
        {
            (Site::from(site), index..index + 1, before)
        } else if let Some((site, from)) = publish_before(events, &stretch, index + 1) {
            let began = if events[last..from.start].iter().any(is_store) {
                last
            } else {
                before
            };
            (site, from, began)
        } else {
            continue;
        };
        while to < from.start && conflict(&events[from.clone()], &events[to..from.start]) {
            to += 1;
        }
        if events[to..from.start].iter().any(is_store) {
            moves.push(Move {
                mutation: Mutation::PublishEarly(site),
                to,
                from,
            });
        }
    }
}

/// Adjacent persists that could be swapped.
fn swaps(events: &[Event], stretch: Range<usize>, moves: &mut Vec<Move>) {
    let is_fence = |index: &usize| matches!(events[*index], Event::Fence { .. });
    let fences: Vec<usize> = stretch.clone().filter(is_fence).collect();
    let mut start = stretch.start;
    for pair in fences.windows(2) {
        let first = start..pair[0] + 1;
        let second = pair[0] + 1..pair[1] + 1;
        start = second.start;
        let both_store = [&first, &second]
            .iter()
            .all(|part| events[(*part).clone()].iter().any(is_store));
        let sites = events[pair[0]].site().zip(events[pair[1]].site());
        if both_store
            && let Some(((_, one), (_, other))) = sites
            && !conflict(&events[first.clone()], &events[second.clone()])
        {
            let mutation = Mutation::SwapPersists(one, other);
            moves.push(Move {
                mutation,
                to: first.start,
                from: second,
            });
        }
    }
}

/// All possible moves, in the order of the trace.
fn all_moves(trace: &Trace) -> Vec<Move> {
    let mut moves = Vec::new();
    for stretch in stretches(&trace.events) {
        early_publishes(&trace.events, stretch.clone(), &mut moves);
        swaps(&trace.events, stretch, &mut moves);
    }
    moves
}

/// The mutations that would change this trace.
pub(crate) fn moves(trace: &Trace) -> BTreeSet<Mutation> {
    all_moves(trace)
        .into_iter()
        .map(|found| found.mutation)
        .collect()
}

/// Moves events according to the mutation, wherever it applies.
pub(crate) fn rearrange(trace: &mut Trace, mutation: &Mutation) {
    if !matches!(
        mutation,
        Mutation::PublishEarly(_) | Mutation::SwapPersists(..)
    ) {
        return;
    }
    let mut end = 0;
    for Move { to, from, .. } in all_moves(trace)
        .into_iter()
        .filter(|found| found.mutation == *mutation)
    {
        // If a second move overlaps the first one, only the first is made.
        if to >= end {
            end = from.end;
            trace.events[to..from.end].rotate_right(from.len());
        }
    }
    renumber(trace);
}

/// Renumbers LSNs in the order of fences.
fn renumber(trace: &mut Trace) {
    let mut lsns: Vec<u64> = Vec::new();
    for event in &trace.events {
        lsns.extend(if let Event::Fence { lsn, .. } = event {
            Some(*lsn)
        } else {
            None
        });
    }
    lsns.sort_unstable();
    let mut lsns = lsns.into_iter();
    for event in &mut trace.events {
        if let Event::Fence { lsn, .. } = event {
            *lsn = lsns.next().expect("as many as there are fences");
        }
    }
}
