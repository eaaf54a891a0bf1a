use std::sync::atomic::{AtomicBool, AtomicU64};

use super::*;

#[test]
fn a_share_and_the_lock_alone_exclude_each_other() {
    let locks = [SharedLock::default(), SharedLock::default()];
    let value = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let Some(_share) = locks[0].announce() else {
                        continue;
                    };
                    let before = value.load(Ordering::Relaxed);
                    std::hint::spin_loop();
                    assert_eq!(before, value.load(Ordering::Relaxed));
                }
            });
        }
        for _ in 0..2000 {
            let _alone = [locks[0].lock(), locks[1].lock()];
            wait_for_announced(locks.iter());
            value.fetch_add(1, Ordering::Relaxed);
            assert!(locks[1].announce().is_none());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(
        locks[0].announce().is_some() && locks[1].announce().is_some(),
        "each share was dropped"
    );
}

#[test]
fn a_thread_announces_one_share_at_a_time() {
    let locks = [SharedLock::default(), SharedLock::default()];
    let share = locks[0].announce();
    assert!(share.is_some() && locks[1].announce().is_none());
    drop(share);
    assert!(locks[1].announce().is_some());
}
