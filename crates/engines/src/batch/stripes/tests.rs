//! Which shares single writes hold.

use medium::Dax;
use pool::PoolOptions;

use super::*;

fn gate() -> Gate {
    let pool = Pool::open(Dax::plain(4 << 20).unwrap(), PoolOptions::default()).unwrap();
    Gate {
        stripes: Stripes::new::<Dax>(),
        batch_slots: Arc::clone(pool.batch_slots()),
        throttled: None,
        versions: TreeVersions::without_views(&pool),
    }
}

/// A transaction does not wait for announced shares.
#[test]
fn a_write_beside_a_view_holds_a_locked_share() {
    let gate = gate();
    let entered = gate.enter(7).unwrap();
    assert!(entered.share.is_announced() && !entered.is_recorded);
    drop(entered);

    let view = gate.versions.store().open().unwrap();
    let entered = gate.enter(7).unwrap();
    assert!(!entered.share.is_announced() && entered.is_recorded);
    assert!(gate.stripes.stripes[7].try_lock().is_none());
    drop(entered);
    assert!(gate.stripes.stripes[7].try_lock().is_some());
    drop(view);
}
