//! The proof: acknowledged paths are present, paths under way wholly or not at all, and there are
//! no others.

use std::collections::HashMap;

use everleaf::Tree;

use super::listing::Listing;
use super::writer::{ACKNOWLEDGED_TOGETHER, THREADS, part};
use terminal::failure::Failure;
use terminal::violations::Violations;

/// The acknowledgements of a writer.
pub(super) struct Acknowledgements {
    flags: Vec<bool>,
    pub(super) count: usize,
}

impl Acknowledgements {
    pub(super) fn none(paths: usize) -> Self {
        Self {
            flags: vec![false; paths],
            count: 0,
        }
    }

    /// Notes an acknowledgement.
    pub(super) fn note(&mut self, index: u32) -> Result<(), Failure> {
        match self.flags.get_mut(index as usize) {
            Some(flag) if !*flag => {
                *flag = true;
                self.count += 1;
                Ok(())
            }
            _ => Err(Failure::Refused(format!(
                "the writer acknowledged path number {index} out of turn; this is a fault of everleaf, please report it"
            ))),
        }
    }
}

/// The result.
#[derive(Default)]
pub(super) struct Proof {
    /// Paths that were under way when the writer was killed, and are present.
    pub(super) in_flight_done: usize,
    /// The most paths that can have been stored without being acknowledged.
    pub(super) in_flight_max: usize,
    pub(super) violations: Violations,
}

/// Looks up every acknowledged path, then scans everything. Calls `tick` with the progress.
pub(super) fn prove(
    tree: &Tree,
    listing: &Listing,
    acknowledged: &Acknowledgements,
    tick: impl Fn(u64),
) -> Result<Proof, Failure> {
    let mut proof = Proof {
        in_flight_max: THREADS * ACKNOWLEDGED_TOGETHER,
        ..Proof::default()
    };
    let mut value = Vec::new();
    for index in (0..listing.len()).filter(|index| acknowledged.flags[*index]) {
        let found = tree.get_into(listing.path(index), &mut value)?;
        if !found || value != listing.value(index).as_bytes() {
            let what = if found {
                "has another value"
            } else {
                "is lost"
            };
            proof.violations.add(format!(
                "acknowledged path {} {what}",
                listing.path(index).escape_ascii()
            ));
        }
        if index % 1024 == 0 {
            tick(1024);
        }
    }
    let known: HashMap<&[u8], usize> = (0..listing.len())
        .map(|index| (listing.path(index), index))
        .collect();
    let mut range = tree.iter();
    let mut last = Vec::new();
    let mut first = true;
    while let Some((path, value)) = range.next_entry()? {
        let Some(&index) = known.get(path) else {
            proof.violations.add(format!(
                "{} is there, but was never sent",
                path.escape_ascii()
            ));
            continue;
        };
        if !first && path <= last.as_slice() {
            proof
                .violations
                .add(format!("{} is out of order", path.escape_ascii()));
        }
        first = false;
        last.clear();
        last.extend_from_slice(path);
        if acknowledged.flags[index] {
            continue;
        }
        proof.in_flight_done += 1;
        if value != listing.value(index).as_bytes() {
            proof.violations.add(format!(
                "{} was under way and has a value never sent",
                path.escape_ascii()
            ));
        }
        if !can_be_in_flight(index, listing.len(), acknowledged) {
            proof.violations.add(format!(
                "{} is there, but its turn had not come",
                path.escape_ascii()
            ));
        }
    }
    Ok(proof)
}

/// Whether a path can have been written without being acknowledged: it comes right behind its
/// thread's last acknowledgement.
fn can_be_in_flight(index: usize, paths: usize, acknowledged: &Acknowledgements) -> bool {
    let part = (0..THREADS)
        .map(|thread| part(thread, paths))
        .find(|part| part.contains(&index));
    part.is_some_and(|part| {
        let done = acknowledged.flags[part.clone()]
            .iter()
            .take_while(|flag| **flag)
            .count();
        index <= part.start + done + ACKNOWLEDGED_TOGETHER
    })
}
