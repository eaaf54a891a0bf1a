//! The sweep: touches what a crash has left untouched, so that the set of failed epochs can be emptied.
//!
//! It goes from border node to border node as a scan does, but remembers separators instead of keys: so it knows where to go
//! on behind a node that is damaged. Such a node stays as it is, for `check` to name; of what lies below it nothing can be
//! reached, so nothing of it has to be recovered.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use crate::index::record::KEY_BYTES_MAX;
use medium::Medium;

use super::Core;
use super::access::{HEIGHT_MAX, NodeRef, Stop, View, Walk};
use super::bound::Met;
use super::find::{Neighbours, Origin};
use super::layout::{Anchor, Interior};
use super::slice::{LAYER, LONGER, Slice, Target};
use super::version::Version;
use crate::Result;

/// Border nodes that are touched with one pass.
const NODES_TOGETHER: u32 = 128;

/// A place in the order of keys: in the layer that these slices lead to, at a slice.
struct Position {
    layers: Vec<u64>,
    at: Slice,
}

/// How far a sweep has come.
pub(super) struct Sweep {
    /// The first node that is not touched; `None` when all are.
    position: Option<Position>,
    /// Nodes that were touched.
    met: Met,
    /// The first nodes of layers that were gone into since more nodes were touched than there are: so several entries lead to
    /// one layer, which is gone into once from then on.
    entered: Option<HashSet<u64>>,
    /// Shards whose free queues were swept.
    shards: usize,
}

impl Default for Sweep {
    fn default() -> Self {
        let position = Some(Position { layers: Vec::new(), at: Slice::FIRST });
        Self { position, met: Met::default(), entered: None, shards: 0 }
    }
}

/// What a layer has at a slice.
struct Step<'v> {
    /// The next entry that leads to a layer: its slice, that layer's root and where it stands.
    below: Option<(u64, u64, Origin<'v>)>,
    /// Where the layer goes on when that is done.
    after: Option<Slice>,
    /// Keys up to there.
    keys: u64,
}

/// Damage is no error of a sweep.
pub(super) fn unless_damaged(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.is_corrupt() => Ok(()),
        other => other,
    }
}

impl<M: Medium> Core<M> {
    /// Touches every node and every link, makes that durable, and empties the set of failed epochs. Usable meanwhile.
    pub(super) fn sweep(&self) -> Result<()> {
        let mut sweep = Sweep::default();
        while self.sweep_on(&mut sweep)? {}
        Ok(())
    }

    /// Goes on with a sweep, for some nodes; returns whether there is more to do. After an error it may be called again.
    pub(super) fn sweep_on(&self, sweep: &mut Sweep) -> Result<bool> {
        if !self.any_failed.load(Ordering::Acquire) || self.is_gone.load(Ordering::Acquire) {
            return Ok(false);
        }
        if sweep.position.is_some() {
            self.find_slowly(|view, _| view.touch_some(sweep))?;
            return Ok(true);
        }
        if let Some(shard) = self.barrier.shards().nth(sweep.shards) {
            let mut shard = shard.lock();
            // The tree is removed under the locks of all shards.
            if self.is_gone.load(Ordering::Acquire) {
                return Ok(false);
            }
            let mut view = self.look();
            view.has_pass = true;
            if !self.sweep_links(&view, &mut shard)? {
                sweep.shards += 1;
            }
            return Ok(true);
        }
        self.advance()?;
        self.forget_failed()?;
        Ok(false)
    }

    fn forget_failed(&self) -> Result<()> {
        let _ended = self.ended.lock();
        if self.is_gone.load(Ordering::Acquire) {
            return Ok(());
        }
        let guard = self.pool.peek();
        let cells = &guard.node::<Anchor>(self.anchor)?.failed;
        for range in cells {
            // PERSIST: no node and no link of a failed epoch is left; lost, they are looked for once more.
            range[0].publish(&guard, 0);
        }
        guard.drain()?;
        self.any_failed.store(false, Ordering::Release);
        Ok(())
    }
}

impl<M: Medium> View<'_, M> {
    /// Touches some border nodes and whatever leads there.
    fn touch_some(&self, sweep: &mut Sweep) -> Walk<()> {
        for _ in 0..NODES_TOGETHER {
            let Some(position) = &sweep.position else { break };
            sweep.position = self.touch_from(position, &mut sweep.entered)?;
            // What is in the way next is something else.
            self.begin_operation();
            sweep.met.keep(sweep.met.nodes() + 1);
            if sweep.entered.is_none() && self.meet(&sweep.met, sweep.met.nodes(), self.core.anchor).is_err()
            {
                sweep.entered = Some(HashSet::new());
            }
        }
        Ok(())
    }

    /// Touches the border nodes on the way to a position; returns the next position. A layer that was `entered` before is passed by.
    fn touch_from(&self, from: &Position, entered: &mut Option<HashSet<u64>>) -> Walk<Option<Position>> {
        let mut entering = Vec::new();
        let (mut root, mut origin) = (self.anchor()?.root.value.load(&self.guard), Origin::Anchor);
        let (mut layers, mut rests) = (Vec::new(), Vec::new());
        // Whether this is still the layer of the position, or leads there: it may be gone.
        let mut is_along = true;
        loop {
            let way = from.layers.get(layers.len()).filter(|_| is_along);
            let at = match way {
                Some(word) => Slice { word: *word, class: LONGER },
                None if is_along => from.at,
                None => Slice::FIRST,
            };
            let step = self.touch_layer(root, origin, at)?;
            if way.is_none() {
                self.core.figures.swept_keys.fetch_add(step.keys, Ordering::Relaxed);
            }
            rests.push(step.after.filter(|after| *after > at));
            match step.below.filter(|_| 8 * layers.len() <= KEY_BYTES_MAX) {
                Some((word, below, place)) => {
                    is_along = way == Some(&word);
                    if !is_along && let Some(entered) = entered {
                        if entered.contains(&below) || entering.contains(&below) {
                            break;
                        }
                        entering.push(below);
                    }
                    layers.push(word);
                    (root, origin) = (below, place);
                }
                None => break,
            }
        }
        // Not before: who has to start again meets them again.
        entered.iter_mut().for_each(|entered| entered.extend(&entering));
        while let Some(rest) = rests.pop() {
            if let Some(at) = rest {
                layers.truncate(rests.len());
                return Ok(Some(Position { layers, at }));
            }
        }
        Ok(None)
    }

    /// Touches the border node of a layer that covers a slice.
    fn touch_layer<'v>(&'v self, root: u64, origin: Origin<'v>, at: Slice) -> Walk<Step<'v>> {
        let mut leaf = match self.descend::<Neighbours<'_>>(root, origin, Target::At(at)) {
            Err(stop) if self.is_damage(&stop)? => {
                return Ok(Step { below: None, after: self.behind_damage(root, origin, at)?, keys: 0 });
            }
            leaf => leaf?,
        };
        let (mut entries, sound) = match self.entries_of(&mut leaf, true) {
            Err(stop) if self.is_damage(&stop)? => {
                return Ok(Step { below: None, after: leaf.trail.high, keys: 0 });
            }
            entries => entries?,
        };
        entries.retain(|(slice, ..)| *slice >= at);
        if sound.is_some() {
            // Damaged; what lies in its range is touched all the same.
            entries.sort_unstable();
        }
        let mut below = entries.iter().enumerate().filter(|(_, (_, class, _))| *class == LAYER);
        let (first, is_last) = (below.next(), below.next().is_none());
        let after = match first {
            Some((_, (slice, ..))) if !is_last => Some(Slice { class: LAYER, ..*slice }),
            _ => leaf.trail.high,
        };
        let passed = if is_last { entries.len() } else { first.map_or(0, |(index, _)| index) };
        let keys = (passed - usize::from(is_last && first.is_some())) as u64;
        let place = Origin::Entry(leaf.node, leaf.version);
        Ok(Step { below: first.map(|(_, (slice, _, root))| (slice.word, *root, place)), after, keys })
    }

    /// Whether a walk met damage; so it did if it has been told to start again for ever.
    fn is_damage(&self, stop: &Stop) -> Walk<bool> {
        let is_damage = match stop {
            Stop::Again => match self.retry() {
                Err(stop) if !stop.is_corrupt() => return Err(stop),
                retried => retried.is_err(),
            },
            stop => stop.is_corrupt(),
        };
        if is_damage {
            // What is in the way next is something else.
            self.begin_operation();
        }
        Ok(is_damage)
    }

    /// The end of what the damaged node covers that a descent to a slice meets, as far as what leads there tells.
    fn behind_damage(&self, root: u64, origin: Origin<'_>, at: Slice) -> Walk<Option<Slice>> {
        let (mut pointer, mut high) = (root, None);
        let mut above: Option<(&Interior, Version)> = None;
        for _ in 0..HEIGHT_MAX {
            let node = match self.node(pointer) {
                Ok(NodeRef::Interior(node)) => node,
                Ok(NodeRef::Border(_)) | Err(Stop::Failed(_)) => break,
                Err(stop) => return Err(stop),
            };
            let version = match self.stable(&node.version) {
                Err(stop) if self.is_damage(&stop)? => break,
                version => version?,
            };
            // Deleted, and yet something leads there.
            if version.is_deleted()
                && above.is_none_or(|(above, version)| version.is_still(&self.guard, &above.version))
            {
                break;
            }
            let shape = node.shape.load(&self.guard);
            let rank = self.rank(node, shape, Target::At(at));
            if rank < Interior::separators(shape) {
                high = Some(self.separator(node, shape, rank));
            }
            pointer = node.child(rank).load(&self.guard);
            above = Some((node, version));
            if version.is_deleted() || !version.is_still(&self.guard, &node.version) {
                return Err(Stop::Again);
            }
        }
        if self.is_root(origin, root)? { Ok(high) } else { Err(Stop::Again) }
    }
}

#[cfg(test)]
mod tests {
    use medium::Instrumented;
    use std::collections::BTreeMap;

    use medium::Ram;
    use pool::{Pool, PoolOptions};

    use super::super::layout::SHARDS;
    use super::super::{EpochLength, MassTree, MassTreeOptions};
    use super::*;
    use crate::index::{Bounds, Direction, Epochs, Index, RecordCodec};

    type Tree = MassTree<Instrumented, RecordCodec>;

    const OPTIONS: fn() -> MassTreeOptions = || MassTreeOptions {
        epoch: EpochLength::Manual,
        width: Some(4),
        recovery_threads: 1,
        // As after a crash that came when all was written back.
        close_cleanly: false,
        ..MassTreeOptions::default()
    };

    fn put(tree: &Tree, key: u64, value: u64) {
        tree.put(&key.to_be_bytes(), &value.to_be_bytes()).unwrap();
    }

    fn remove(tree: &Tree, key: u64) {
        assert!(tree.remove(&key.to_be_bytes()).unwrap());
    }

    fn content(tree: &Tree) -> BTreeMap<u64, u64> {
        let mut scan = tree.range(Bounds::all(), Direction::Forward).unwrap();
        let (mut key, mut value, mut found) = (Vec::new(), Vec::new(), BTreeMap::new());
        let number = |bytes: &[u8]| u64::from_be_bytes(*bytes.first_chunk().unwrap());
        while scan.next_into(&mut key, &mut value).unwrap() {
            found.insert(number(&key), number(&value));
        }
        found
    }

    fn reopen(pool: &Pool<Instrumented>) -> Tree {
        Tree::open(pool, &pool.trees().unwrap()[0], OPTIONS()).unwrap()
    }

    /// A tree whose last epoch failed, with many free objects whose links are of that epoch.
    fn crashed(pool: &Pool<Instrumented>) -> Tree {
        let tree = Tree::create(pool, "tree", OPTIONS()).unwrap();
        (0..20_000).for_each(|key| put(&tree, key, key));
        tree.sync().unwrap();
        (100..20_000).for_each(|key| remove(&tree, key));
        tree.sync().unwrap();
        (100..9_000).for_each(|key| put(&tree, key, 7));
        (100..9_000).rev().for_each(|key| remove(&tree, key));
        drop(tree);
        reopen(pool)
    }

    fn pool() -> Pool<Instrumented> {
        let options = PoolOptions { step_slabs_min: 1, close_on_drop: false, ..PoolOptions::default() };
        Pool::open(Instrumented::new(Ram::new(64 << 20).unwrap()), options).unwrap()
    }

    /// The thread that ends epochs also sweeps, a step at a time, so a step is short.
    #[test]
    fn a_step_goes_through_some_free_objects_not_through_all_of_them() {
        let pool = pool();
        let tree = crashed(&pool);
        let mut sweep = Sweep { position: None, ..Sweep::default() };
        let mut steps = 0;
        while tree.core.sweep_on(&mut sweep).unwrap() {
            steps += 1;
        }
        assert!(steps > 20_000 / 1024 + SHARDS, "{steps} steps");
        assert!(!tree.epoch_stat().is_sweeping && tree.check().unwrap().is_empty());
    }

    /// Between two steps others take what the next one would go on with.
    #[test]
    fn free_objects_are_taken_and_given_back_between_the_steps_of_a_sweep() {
        let pool = pool();
        let mut tree = crashed(&pool);
        let mut model: BTreeMap<u64, u64> = (0..100).map(|key| (key, key)).collect();
        let (mut sweep, mut round) = (Sweep::default(), 0_u64);
        while tree.core.sweep_on(&mut sweep).unwrap() {
            round += 1;
            let first = 30_000 + round * 1000;
            for key in first..first + 1000 * (round % 3) {
                put(&tree, key, round);
                model.insert(key, round);
            }
            let last = model.len().saturating_sub(1500);
            for key in model.keys().copied().skip(100).take(last.min(900)).collect::<Vec<_>>() {
                remove(&tree, key);
                model.remove(&key);
            }
            if round % 4 == 0 {
                tree.sync().unwrap();
            }
        }
        assert!(round > 20, "{round} rounds");
        for _ in 0..3 {
            assert!(tree.check().unwrap().is_empty());
            assert_eq!(content(&tree), model);
            (50_000..53_000).for_each(|key| put(&tree, key, 1));
            drop(tree);
            tree = reopen(&pool);
        }
    }
}
