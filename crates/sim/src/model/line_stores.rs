//! How lines are stored whole: what no processor promises to keep in order.

use std::collections::BTreeMap;

use medium::sim::{Event, Site, Trace};

/// How a line was written since its thread last fenced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Words,
    Whole,
}

/// A line that was stored whole, and also otherwise without a fence between, if there is one. A line store is ordered after
/// nothing but a fence, so which of the two is there afterwards is open; the models here have them in program order.
pub(crate) fn misused(trace: &Trace) -> Option<String> {
    let mut written: BTreeMap<u32, (Kind, u16, Site)> = BTreeMap::new();
    for event in &trace.events {
        let (line, kind, thread, site) = match *event {
            Event::Store { word, thread, site, .. } => (word / 8, Kind::Words, thread, site),
            Event::StoreLine { line, thread, site, .. } => (line, Kind::Whole, thread, site),
            Event::Fence { thread, .. } => {
                written.retain(|_, (_, owner, _)| *owner != thread);
                continue;
            }
            _ => continue,
        };
        let site = Site::from(site);
        if let Some((earlier, _, at)) = written.insert(line, (kind, thread, site))
            && (earlier, kind) != (Kind::Words, Kind::Words)
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
mod tests {
    use std::panic::Location;

    use super::*;

    #[test]
    fn a_line_store_and_another_store_have_a_fence_between() {
        let site = Location::caller();
        let word =
            |line: u32, thread| Event::Store { word: 8 * line + 3, value: 1, exchanged: false, thread, site };
        let whole = |line, thread| Event::StoreLine { line, value: 0, thread, site };
        let fence = |thread| Event::Fence { notes: 0, lsn: 0, thread, site };
        let is_misused =
            |events: &[Event]| misused(&Trace { events: events.to_vec(), ..Trace::default() }).is_some();
        assert!(is_misused(&[whole(1, 0), whole(1, 0)]));
        assert!(is_misused(&[whole(1, 0), word(1, 0)]) && is_misused(&[word(1, 0), whole(1, 0)]));
        assert!(is_misused(&[whole(1, 0), fence(1), whole(1, 1)]), "a fence of another thread");
        assert!(!is_misused(&[word(1, 0), word(1, 0), whole(2, 0), word(3, 0)]));
        assert!(!is_misused(&[whole(1, 0), fence(0), whole(1, 1), fence(1), word(1, 0)]));
    }
}
