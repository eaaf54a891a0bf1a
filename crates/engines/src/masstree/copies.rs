//! The words that a tree keeps twice: those of its anchor, and the links of its external log.

use medium::Medium;
use pool::{Guard, LostCopy, Pool, TreeRoot};

use super::external_log::{SEGMENT_BYTES, SEGMENTS_MAX};
use super::layout::{
    Anchor, SHARDS_MAX, SHARDS_MIN, ShardArea, durable_anchor_of, load_twice, shard_area,
};
use super::shard::Own;
use crate::kit::copies::LostWord;
use crate::kit::epochs::PoolEpochs;
use crate::{Error, Result};

/// Writes a lost copy of the numbers of epochs anew, and returns the report of it: see
/// [`PoolEpochs::mend`]. The caller fences.
pub(crate) fn mend_epochs<M: Medium>(
    pool: &Pool<M>,
    guard: &Guard<'_, M>,
    was_lost: bool,
) -> Result<Option<LostCopy>> {
    PoolEpochs::<M, Own>::of(pool).mend(guard, was_lost)
}

/// Calls `visit` with each lost word of the tree at a root, and the name of its value. Parts that
/// damage has put out of reach are left out: a check reports them.
pub(crate) fn visit_lost_words<M: Medium>(
    guard: &Guard<'_, M>,
    root: &TreeRoot,
    visit: &mut dyn FnMut(&LostWord<'_>, &str),
) {
    let Some(anchor) = durable_anchor_of(root) else {
        return;
    };
    let name = &root.name;
    let Ok(cells) = guard.node::<Anchor>(anchor) else {
        return;
    };
    for (words, value) in [
        (&cells.shards, "the number of shards"),
        (
            &cells.restored,
            "the epoch up to which the log was restored",
        ),
        (&cells.swept, "the epoch up to which all was swept"),
    ] {
        if let Some(lost) = LostWord::of_pair(guard, words) {
            visit(&lost, &format!("{value} of tree {name:?}"));
        }
    }
    let damaged = || Error::corrupt(anchor, "its anchor");
    let shards = match load_twice(guard, cells.shards.each_ref(), damaged) {
        Ok(Some(shards)) if (SHARDS_MIN..=SHARDS_MAX).contains(&(shards as usize)) => {
            shards as usize
        }
        _ => return,
    };
    let what = format!("a link of the external log of tree {name:?}");
    for shard in 0..shards {
        let Ok(area) = guard.node::<ShardArea>(shard_area(anchor, shard)) else {
            return;
        };
        let mut link = &area.log;
        for _ in 0..SEGMENTS_MAX {
            if let Some(lost) = LostWord::of_pair(guard, link) {
                visit(&lost, &what);
            }
            let Ok(Some(segment)) = load_twice(guard, link.each_ref(), damaged) else {
                break;
            };
            let Ok(words) = guard.words(segment, SEGMENT_BYTES / 8) else {
                break;
            };
            link = &words.as_chunks().0[0];
        }
    }
}
