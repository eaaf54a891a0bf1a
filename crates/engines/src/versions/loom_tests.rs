//! Views beside a writer under every interleaving and every weak ordering. See `medium::sync` for
//! how to run it.

use std::sync::Arc;

use loom::thread;
use medium::sync::{AtomicU64, Ordering, SharedLock, model};
use medium::{Dax, Lsn, Process};

use super::{OldValue, StoreView, TreeVersions, Versions, WritesUnderWay};
use crate::index::{Observed, Value};

const KEY: &[u8] = b"key";

/// A tree of one word, and the stripe of its key.
struct Tree {
    versions: Arc<TreeVersions>,
    stripe: SharedLock,
    word: AtomicU64,
}

impl WritesUnderWay for Tree {
    fn wait_for_writes(&self) {
        drop(self.stripe.lock());
    }
}

impl Tree {
    fn new() -> Arc<Self> {
        let versions = Versions::new::<Dax>(usize::MAX, Process::current());
        let tree = Arc::new(Self {
            versions: TreeVersions::of_existing(&versions),
            stripe: SharedLock::default(),
            word: AtomicU64::new(0),
        });
        let weak: std::sync::Weak<Self> = Arc::downgrade(&tree);
        versions.add_tree(weak);
        tree
    }

    fn store(&self) -> &Arc<Versions> {
        self.versions.store()
    }

    fn word(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    fn write(&self, word: u64) {
        let _share = self.stripe.share();
        if !self.store().is_on() {
            self.word.store(word, Ordering::Release);
            return;
        }
        let _key = self.store().lock_key(&self.versions, KEY);
        let read_old = || {
            OldValue::of(Ok(Observed {
                value: Some(Value::from_slice(&self.word().to_be_bytes())),
                lsn: Lsn::DURABLE,
            }))
        };
        let _unpublished = self
            .store()
            .record_write(&self.versions, KEY, read_old)
            .unwrap();
        self.word.store(word, Ordering::Release);
    }

    fn read(&self, view: &StoreView) -> u64 {
        let word = self.word();
        match self.versions.value_at(KEY, view.stamp()) {
            None => word,
            Some(old) => {
                let value = old.into_read().unwrap().value.unwrap();
                u64::from_be_bytes(*value.first_chunk().unwrap())
            }
        }
    }
}

/// The grace period: a writer that has not seen the switch has published before the view begins.
#[test]
fn a_view_reads_the_same_twice_beside_a_writer() {
    model(|| {
        let tree = Tree::new();
        let writer = thread::spawn({
            let tree = Arc::clone(&tree);
            move || tree.write(1)
        });
        let view = tree.store().open().unwrap();
        let first = tree.read(&view);
        assert_eq!(tree.read(&view), first);
        drop(view);
        writer.join().unwrap();
        assert_eq!(tree.word(), 1);
    });
}

/// The drop of changes: one view closes while another one still needs the older value.
#[test]
fn a_view_keeps_its_value_while_another_closes() {
    model(|| {
        let tree = Tree::new();
        let old = tree.store().open().unwrap();
        tree.write(1);
        let young = tree.store().open().unwrap();
        let writer = thread::spawn({
            let tree = Arc::clone(&tree);
            move || {
                tree.write(2);
                drop(old);
            }
        });
        assert_eq!(tree.read(&young), 1);
        writer.join().unwrap();
        assert_eq!(tree.read(&young), 1);
        drop(young);
        assert_eq!(tree.store().stat().keys, 0);
    });
}
