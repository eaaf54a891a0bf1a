//! The matrix: each engine on the media that make a difference to it, with both codecs, in small
//! nodes and full ones.

use engines::engine::{Engine, Nodes};
use libtest_mimic::Trial;

use super::place::{
    DaxAvx512, DaxMovdir64b, DaxRtm, DaxTwin, InRam, LateSingle, LateTwin, OnFile, Place,
};
use super::{Cell, Kind, Seed, factor, trial};
use crate::TESTS;

/// A medium of the matrix.
struct Column {
    name: &'static str,
    is_available: fn() -> bool,
    has_full_nodes: bool,
    cell: fn(Engine, Kind, Nodes) -> Cell,
    /// For which engines.
    is_for: fn(Engine) -> bool,
}

const fn column<P: Place>(name: &'static str, is_for: fn(Engine) -> bool) -> Column {
    let has_full_nodes = P::HAS_FULL_NODES;
    Column {
        name,
        is_available: P::is_available,
        has_full_nodes,
        cell: Cell::new::<P>,
        is_for,
    }
}

/// All engines: for one medium of each kind.
const fn all(_: Engine) -> bool {
    true
}

/// Engines for comparison only are left out. They are found by name, because the designs of one
/// engine share its id.
fn of_users(engine: Engine) -> bool {
    Engine::from_name(engine.name).is_some()
}

/// To engines that store no lines the forms of lines make no difference.
fn line_stores(engine: Engine) -> bool {
    of_users(engine) && engine.stores_lines
}

const COLUMNS: [Column; 8] = [
    column::<InRam>("ram", all),
    column::<OnFile>("file", all),
    column::<LateSingle>("late_single", all),
    column::<DaxTwin>("dax_twin", of_users),
    column::<LateTwin>("late_twin", line_stores),
    column::<DaxAvx512>("dax_avx512", line_stores),
    column::<DaxMovdir64b>("dax_direct_store", line_stores),
    column::<DaxRtm>("dax_rtm", line_stores),
];

/// The media that this machine lacks.
pub fn lacking() -> impl Iterator<Item = &'static str> {
    COLUMNS
        .iter()
        .filter(|column| !(column.is_available)())
        .map(|column| column.name)
}

/// All tests of an engine that this machine can run. Ordinary runs leave out nodes of full size on
/// most media.
pub fn trials(engine: Engine) -> Vec<Trial> {
    let is_thorough = factor() > 1;
    // If both sizes are the same, as for CAWBT, ordinary runs have small nodes only.
    let full_is_larger = engine.full.leaf_entries > engine.small.leaf_entries;
    let mut trials = Vec::new();
    let engine_name = engine.name.replace('-', "_");
    for column in COLUMNS
        .iter()
        .filter(|column| (column.is_for)(engine) && (column.is_available)())
    {
        let has_full = is_thorough || full_is_larger && column.has_full_nodes;
        let full = has_full.then_some((engine.full, "wide"));
        for (nodes, size) in std::iter::once((engine.small, "narrow")).chain(full) {
            for kind in [Kind::Word, Kind::Record] {
                let cell = (column.cell)(engine, kind, nodes);
                let codec = kind.codec().name();
                for &(test, body) in TESTS {
                    let name = format!("{engine_name}::{}::{codec}_{size}::{test}", column.name);
                    let seed = Seed::of(&name);
                    trials.push(trial(name, seed, cell, body));
                }
            }
        }
    }
    trials
}
