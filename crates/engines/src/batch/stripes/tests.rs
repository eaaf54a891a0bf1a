//! Which shares single writes hold.

use medium::Dax;
use pool::PoolOptions;

use super::*;

fn gate() -> Gate {
    let pool = Pool::open(Dax::plain(4 << 20).unwrap(), PoolOptions::default()).unwrap();
    let versions = TreeVersions::without_views(&pool);
    Gate {
        stripes: Stripes::new::<Dax>(),
        batch_slots: Arc::clone(pool.batch_slots()),
        throttled: None,
        store_versions: Arc::clone(versions.store()),
        versions,
    }
}

/// A transaction does not wait for announced shares.
#[test]
fn a_write_beside_a_view_holds_a_locked_share() {
    let gate = gate();
    let share = gate.enter_unrecorded(7).unwrap();
    assert!(share.expect("no view is open").is_announced());

    let view = gate.versions.store().open().unwrap();
    assert!(gate.enter_unrecorded(7).unwrap().is_none());
    let entered = gate.enter_by_lock(7).unwrap();
    assert!(!entered.share.is_announced() && entered.is_recorded);
    assert!(gate.stripes.stripes[7].try_lock().is_none());
    drop(entered);
    assert!(gate.stripes.stripes[7].try_lock().is_some());
    drop(view);
}
