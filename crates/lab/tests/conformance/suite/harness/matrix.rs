//! The matrix: each engine on the media that make a difference to it, with both codecs, in small nodes and full ones.

use engines::registry::{Engine, Nodes};
use libtest_mimic::Trial;

use super::place::{DaxAvx512, DaxMovdir64b, DaxRtm, DaxTwin, InRam, LateSingle, LateTwin, OnFile, Place};
use super::{Cell, Kind, factor, trial};
use crate::TESTS;

/// A medium of the matrix.
struct Column {
    name: &'static str,
    /// Whether it is one for all engines, for those that users have, or only for engines that store lines.
    of: Of,
    is_available: fn() -> bool,
    cell: fn(Engine, Kind, Nodes) -> Cell,
    has_full_nodes: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    All,
    Users,
    LineStores,
}

const fn column<P: Place>(name: &'static str, of: Of) -> Column {
    Column {
        name,
        of,
        is_available: P::is_available,
        cell: Cell::new::<P>,
        has_full_nodes: P::HAS_FULL_NODES,
    }
}

const COLUMNS: [Column; 8] = [
    column::<InRam>("ram", Of::All),
    column::<OnFile>("file", Of::All),
    column::<LateSingle>("late_single", Of::All),
    column::<DaxTwin>("dax_twin", Of::Users),
    column::<LateTwin>("late_twin", Of::LineStores),
    column::<DaxAvx512>("dax_avx512", Of::LineStores),
    column::<DaxMovdir64b>("dax_direct_store", Of::LineStores),
    column::<DaxRtm>("dax_rtm", Of::LineStores),
];

/// All tests of an engine that this machine can run.
pub fn trials(engine: Engine) -> Vec<Trial> {
    let of = match Engine::from_name(engine.name) {
        Some(_) if engine.stores_lines => Of::LineStores,
        Some(_) => Of::Users,
        None => Of::All,
    };
    // Where both sizes are the same, as of CAWBT, the tests of small nodes are enough.
    let has_full = engine.full.leaf_entries > engine.small.leaf_entries || factor() > 1;
    let mut trials = Vec::new();
    for column in COLUMNS.iter().filter(|column| column.of <= of && (column.is_available)()) {
        for (kind, codec) in [(Kind::Word, "word"), (Kind::Record, "record")] {
            for (nodes, size) in [(engine.small, "narrow"), (engine.full, "wide")] {
                if size == "wide" && !(has_full && (column.has_full_nodes || factor() > 1)) {
                    continue;
                }
                let cell = (column.cell)(engine, kind, nodes);
                let name = format!("{}::{}::{codec}_{size}", engine.name.replace('-', "_"), column.name);
                let of_cell = |(test, body): (&str, _)| trial(format!("{name}::{test}"), cell, body);
                trials.extend(TESTS.into_iter().map(of_cell));
            }
        }
    }
    trials
}
