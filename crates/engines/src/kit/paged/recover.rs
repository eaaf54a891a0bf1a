//! Making and opening trees.

use std::time::Instant;

use crate::Result;
use medium::Medium;
use pool::{NewTree, Pool, ROOT_WORDS, TreeRoot};

use super::log::{Anchor, Redo};
use super::{Format, NodeKind, Paged, ROOT_ANCHOR, ROOT_FORMAT};
use crate::engine::{Build, Opening, Salvaged, Visit};
use crate::index::{Codec, MaybeWords};
use crate::kit::salvage::salvage_leaves;
use crate::kit::write::Unpublished;

impl<M: Medium, C: Codec, F: Format> Build<M> for Paged<M, C, F>
where
    Self: MaybeWords,
{
    fn create(pool: &Pool<M>, new: NewTree<'_>, opening: &Opening) -> Result<Self> {
        let guard = pool.pin();
        let mut words = [0; ROOT_WORDS];
        let mut space = Unpublished::new(&guard);
        words[ROOT_ANCHOR] = space.allocate_lines(Anchor::bytes(F::LOG_WRITES_MAX))?;
        words[ROOT_FORMAT] = F::of_settings(&opening.settings)?.to_root();
        let tree = Self::unopened(pool, &words)?;
        let leaf = tree.allocate(&mut space, NodeKind::Leaf)?;
        tree.write_node(&guard, leaf, NodeKind::Leaf, 0, &[])?;
        tree.anchor(&guard)?
            .start(&guard, Self::root_word(leaf, 0)?);
        // PERSIST: anchor and leaf are ordered before the root that leads to them; if this is lost, there is
        // no tree.
        guard.fence();
        pool.create_tree(new, F::ENGINE.0, C::ID, &words)?;
        space.published();
        Ok(tree)
    }

    fn open(pool: &Pool<M>, root: &TreeRoot, opening: &Opening) -> Result<Self> {
        let start = Instant::now();
        let mut tree = Self::unopened(pool, &root.words)?;
        let wanted = F::of_settings(&opening.settings.or(tree.format.to_settings()))?;
        root.demand(
            F::ENGINE.0,
            C::ID,
            &[format!("{:?}", tree.format), format!("{wanted:?}")],
        )?;
        let guard = pool.pin();
        Redo::recover(&guard, &tree.anchor(&guard)?)?;
        tree.root(&guard)?;
        drop(guard);
        if pool.needs_mark() {
            tree.recovered_from_crash = true;
            if !opening.mark_later {
                tree.mark_reached(&|| true)?;
            }
        }
        tree.recovery_ns = start.elapsed().as_nanos() as u64;
        Ok(tree)
    }

    fn salvage_at(pool: &Pool<M>, root: &TreeRoot, visit: &mut Visit<'_>) -> Salvaged {
        salvage_leaves::<M, C, Self>(pool, root, visit)
    }
}
