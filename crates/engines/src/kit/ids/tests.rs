use medium::Dax;
use pool::{Pool, PoolOptions};

use super::*;

#[test]
fn the_counter_comes_first_then_what_was_given_back_then_growth() {
    let ids = Ids::<Dax>::new(20).unwrap();
    let claim = |count: usize| (0..count).map(|_| ids.claim().unwrap()).collect::<Vec<_>>();
    assert_eq!(claim(3), [1, 2, 3]);
    ids.give_back(2);
    assert_eq!(claim(4), [4, 5, 6, 7]);
    assert_eq!(claim(2), [2, 8]);
    assert_eq!(claim(12), (9..=20).collect::<Vec<_>>());
    let full = ids.claim().unwrap_err();
    assert!(matches!(full.kind(), ErrorKind::TreeFull { limit: 20 }));
    ids.give_back(9);
    assert_eq!(claim(1), [9]);
    assert!(ids.claim().is_err());
}

#[test]
fn a_table_goes_on_from_the_ids_in_use() {
    let ids = Ids::<Dax>::new(100).unwrap();
    assert!(!ids.resume([3, 7, 3].into_iter()));
    assert!(ids.resume([3, 7, 5].into_iter()));
    ids.set(7, [70, 71]).unwrap();
    assert_eq!(ids.entry(7), [70, 71]);
    let claimed: Vec<_> = (0..5).map(|_| ids.claim().unwrap()).collect();
    assert_eq!(claimed, [1, 2, 4, 6, 8]);
    assert!(ids.resume([].into_iter()));
    assert_eq!(ids.claim().unwrap(), 1);
}

#[test]
fn a_retired_id_waits_for_readers() {
    let pool = Pool::open(Dax::plain(1 << 20).unwrap(), PoolOptions::default()).unwrap();
    let ids = Ids::<Dax>::new(1000).unwrap();
    let used: Vec<_> = (0..BATCH + 7).map(|_| ids.claim().unwrap()).collect();
    let reader = pool.pin();
    used[..BATCH]
        .iter()
        .for_each(|id| ids.retire(&pool.pin(), *id));
    assert!(ids.state.lock().free.is_empty());
    drop(reader);
    pool.reclaim();
    // Other tests' readers may hold it up.
    for _ in 0..20_000 {
        if !ids.state.lock().free.is_empty() {
            return;
        }
        medium::pin().flush();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("no retired ID is free");
}
