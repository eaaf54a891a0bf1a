//! The cost of the crate `everleaf`: finds through `Store` beside finds through the engine, in the
//! same tree, in turns.

use std::path::Path;
use std::time::Instant;

use everleaf::{MediumChoice, Store};

use super::args::{self, Args, Workload};
use super::keys::Keys;
use super::subject::{KeyForm, NAME};
use super::workload::Script;
use crate::comparison::median;
use terminal::failure::Result;

/// Whether this cost is measured. It is for finds by an engine for users, in a pool that a store
/// opens without options.
pub(crate) fn is_measured(args: &Args) -> bool {
    args.workload == Workload::Find
        && engines::engine::Engine::ALL.contains(&args.engine)
        && args.medium == args::PoolMedium::Dax
        && args.persist_delay_ns.is_none()
        && !args.is_transient()
}

/// The most finds of one turn: short turns, so that other load on the machine affects both alike.
const TURN_MAX: usize = 1 << 15;

/// The time of a find through the store over the time of a find through its engine, in the closed
/// pool at `path`: the median over runs, in each of which they take turns.
pub(crate) fn store_over_engine(args: &Args, keys: &Keys, path: &Path) -> Result<f64> {
    let mut options = Store::options().create(false).medium(MediumChoice::Dax);
    if let Some(line_store) = args.line_store {
        options = options.line_store(line_store);
    }
    let store = options.open(path)?;
    let tree = store.open_tree(NAME)?;
    let words = tree.as_words();
    let form = KeyForm::of(args);
    let bytes = |key| form.bytes(key);
    let index = tree.index();
    let engine = |finds: &[u64]| match index.words() {
        Some(words) => time(finds, |key, _| Ok(words.get(key)?.unwrap_or_default())),
        None => time(finds, |key, value| {
            Ok(u64::from(index.get_into(&bytes(key), value)?))
        }),
    };
    let face = |finds: &[u64]| match &words {
        Some(words) => time(finds, |key, _| Ok(words.get(key)?.unwrap_or_default())),
        None => time(finds, |key, value| {
            Ok(u64::from(tree.get_into(bytes(key), value)?))
        }),
    };
    let mut ratios = Vec::new();
    for run in 0..2 * args.runs {
        let script = Script::finds(args, keys, 2000 + run);
        let finds = script.finds.as_ref().map_or(&[][..], |finds| &finds[0]);
        let turn_length = (finds.len() / 2).clamp(1, TURN_MAX);
        let mut engine_ns = 0.0;
        let mut face_ns = 0.0;
        for (turn, finds) in finds.chunks_exact(2 * turn_length).enumerate() {
            let (first, second) = finds.split_at(turn_length);
            if turn % 2 == 0 {
                engine_ns += engine(first)?;
                face_ns += face(second)?;
            } else {
                face_ns += face(first)?;
                engine_ns += engine(second)?;
            }
        }
        ratios.push(face_ns / engine_ns);
    }
    Ok(median(&ratios))
}

/// Nanoseconds of all finds.
#[inline(never)]
fn time(
    keys: &[u64],
    mut find: impl FnMut(u64, &mut Vec<u8>) -> everleaf::Result<u64>,
) -> Result<f64> {
    let mut sum = 0_u64;
    let mut value = Vec::new();
    let start = Instant::now();
    for key in keys {
        sum = sum.wrapping_add(find(*key, &mut value)?);
    }
    let elapsed = start.elapsed();
    std::hint::black_box(sum);
    Ok(elapsed.as_nanos() as f64)
}
