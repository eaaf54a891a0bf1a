//! A check of line stores: stores whose order no processor guarantees.

use std::collections::BTreeMap;

use medium::sim::{Event, Site, Trace};

/// How a line was written since its thread last fenced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteKind {
    Words,
    Whole,
}

/// A line, if there is one, that was stored as a whole and also by other stores, without a fence in
/// between. Only a fence orders a line store, so either store may win; the models here apply them
/// in program order.
pub(crate) fn misused(trace: &Trace) -> Option<String> {
    let mut written: BTreeMap<u32, (WriteKind, u16, Site)> = BTreeMap::new();
    for event in &trace.events {
        let (line, kind, thread, site) = match *event {
            Event::Store {
                word, thread, site, ..
            } => (word / 8, WriteKind::Words, thread, site),
            Event::StoreLine {
                line, thread, site, ..
            } => (line, WriteKind::Whole, thread, site),
            Event::Fence { thread, .. } => {
                written.retain(|_, (_, owner, _)| *owner != thread);
                continue;
            }
            _ => continue,
        };
        let site = Site::from(site);
        if let Some((earlier, _, at)) = written.insert(line, (kind, thread, site))
            && (earlier, kind) != (WriteKind::Words, WriteKind::Words)
        {
            let offset = u64::from(line) * 64;
            return Some(format!(
                "line {offset:#x} was stored at {at} and again at {site}, at least once whole, without a fence between"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests;
