//! The words that trees and their epochs keep twice: which of them are lost, and how they are written
//! anew.
//!
//! The numbers of epochs have two copies in the pool's prefix. A tree of `masstree` has two copies of
//! the words of its anchor, and of each link of its external log. Other engines keep nothing twice but
//! [twin lines](medium::twin), whose second copy is an older content.

use medium::Medium;
use pool::{Guard, LostCopy, Pool};

use crate::kit::copies::LostWord;
use crate::kit::epochs;
use crate::{Result, masstree};

/// The lost copies of the numbers of epochs. The first open of a tree of `masstree` for writing mends
/// most of them, so this is asked before. O(1).
///
/// # Errors
/// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the file ends before them.
pub fn lost_of_epochs<M: Medium>(pool: &Pool<M>) -> Result<Vec<LostCopy>> {
    epochs::lost_copies(&pool.pin())
}

/// The lost copies of the numbers of epochs and of words of trees. No tree may be dropped meanwhile.
/// O(trees and segments of their logs).
///
/// # Errors
/// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the file ends inside of the root table.
pub fn lost_copies<M: Medium>(pool: &Pool<M>) -> Result<Vec<LostCopy>> {
    let guard = pool.pin();
    let mut lost = epochs::lost_copies(&guard)?;
    for_each_word(pool, &guard, &mut |word, what| {
        lost.push(word.report(&guard, what));
    })?;
    Ok(lost)
}

/// Writes these copies anew, each from the other copy, and returns those that it has written. Durable
/// when this returns, as are copies of the numbers of epochs that a tree has written anew, if there
/// were such lost copies before the open (`had_lost_epochs`). No tree may be dropped meanwhile.
/// O(trees and segments of their logs).
///
/// # Errors
/// Those of [`lost_copies`]; [`ErrorKind::Medium`](crate::ErrorKind::Medium) if the medium failed.
pub fn mend_copies<M: Medium>(pool: &Pool<M>, had_lost_epochs: bool) -> Result<Vec<LostCopy>> {
    let guard = pool.pin();
    let mut mended = Vec::new();
    mended.extend(masstree::mend_epochs(pool, &guard, had_lost_epochs)?);
    for_each_word(pool, &guard, &mut |word, what| {
        mended.push(word.report(&guard, what));
        word.mend(&guard);
    })?;
    if !mended.is_empty() || had_lost_epochs {
        let lsn = guard.fence();
        guard.settle(lsn)?;
    }
    Ok(mended)
}

/// Calls `visit` with each lost word of a tree, and the name of its value.
fn for_each_word<M: Medium>(
    pool: &Pool<M>,
    guard: &Guard<'_, M>,
    visit: &mut dyn FnMut(&LostWord<'_>, &str),
) -> Result<()> {
    for root in pool.roots()?.trees {
        masstree::visit_lost_words(guard, &root, visit);
    }
    Ok(())
}
