use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use medium::Dax;
use pool::{BATCH_SLOTS, Pool, PoolOptions};

use super::{Logged, publish, write_entry};
use crate::ErrorKind;
use crate::batch::{BatchRequest, BatchTree, StripedTree, Unfinished, Write, write};
use crate::engine::{AnyTree, CodecKind, Engine};
use crate::index::RecordCodec;
use crate::rntree::{RnTree, RnTreeOptions};
use crate::versions::TreeVersions;

/// A time that is longer than any test takes.
const EVER: Duration = Duration::from_secs(60);

/// Writes a batch to a new tree of a pool.
fn write_to_new_tree(pool: &Pool<Dax>) -> crate::Result<()> {
    let tree = RnTree::<Dax, RecordCodec>::create(pool, "tree", RnTreeOptions::default())?;
    let tree = StripedTree::new(
        pool,
        AnyTree::records(tree),
        TreeVersions::without_views(pool),
    );
    let target = BatchTree::new("tree", &tree, 1, CodecKind::Record, &Engine::RNTREE);
    let only = Write {
        tree: 0,
        key: b"key",
        value: Some(b"value"),
    };
    let batch = BatchRequest {
        trees: vec![target],
        writes: vec![only],
        conditions: Vec::new(),
        transaction: None,
    };
    write(pool, &batch).map(drop)
}

/// All slots hold batches of an earlier process, whose trees do not open. A further batch must not
/// wait for a slot: none becomes free.
#[test]
fn a_batch_does_not_wait_for_slots_that_only_an_open_can_free() {
    let pool = Pool::open(Dax::plain(64 << 20).unwrap(), PoolOptions::default()).unwrap();
    for slot in 0..BATCH_SLOTS {
        let guard = pool.pin();
        let left = Logged {
            anchor: 7,
            key: &b"key"[..],
            value: Some(&b"value"[..]),
            record: None,
        };
        let entry = write_entry(&guard, &[left], 0).unwrap();
        publish(&guard, slot, Some(entry)).unwrap();
    }
    let unfinished = Unfinished::read(&pool).unwrap();
    assert!(unfinished.damage.is_empty(), "{:?}", unfinished.damage);
    unfinished.finish(&pool, |_| None).unwrap();

    let (done, is_done) = channel();
    // The thread is not joined: if the batch waited for a slot, it would wait for ever.
    thread::spawn(move || done.send(write_to_new_tree(&pool)));
    let written = is_done
        .recv_timeout(EVER)
        .expect("the batch waits for a slot");
    let refused = written.unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::BatchUnfinished),
        "{refused}"
    );
}
