//! Every operation of a store, in a child that is refused.

use std::fmt::Debug;
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use everleaf::{
    Batch, Bounds, Condition, Direction, Error, ErrorKind, Pending, Range, Result, Store,
    Transaction, Tree, TreeOptions, TypedTree, View, WordTree,
};

use crate::handles::Handles;

/// The operations of a store are refused, and its handles still answer from memory.
pub fn expect_all(handles: Handles, ranges: Vec<Range<'_>>) {
    let Handles {
        store,
        trees,
        words,
        typed,
        batch,
        pending,
        snapshot,
        transaction,
    } = handles;
    let refused = Refusals {
        path: store.path().to_owned(),
    };
    for range in ranges {
        refused.range(range);
    }
    for tree in &trees {
        refused.tree(tree);
        refused.pending_forms(tree);
        refused.index(tree);
    }
    refused.words(&words);
    refused.typed(&typed);
    for pending in pending {
        refused.pending(pending);
    }
    refused.store(&store, &batch);
    refused.view(&snapshot, &trees[0]);
    refused.view(&transaction, &trees[0]);
    refused.transaction(transaction, &trees[0]);
    drop(snapshot);
    drop((trees, words, typed, batch));
    refused.expect(store.close().map_err(Error::from));
}

struct Refusals {
    path: PathBuf,
}

impl Refusals {
    #[track_caller]
    fn expect<T>(&self, result: Result<T>) {
        let Err(error) = result else {
            panic!("it was not refused");
        };
        assert!(matches!(error.kind(), ErrorKind::Forked), "{error}");
        assert_eq!(error.path(), Some(&*self.path));
        assert!(error.to_string().contains("after the fork"), "{error}");
    }

    /// A range is refused once, and has ended then.
    fn range(&self, mut range: Range<'_>) {
        let next = range.next().expect("an error");
        self.expect(next);
        assert!(range.next().is_none() && range.next_back().is_none());
        range.seek("key");
        self.expect(range.next_entry().map(|_| ()));
        range.seek_back("key");
        self.expect(range.next_entry_back().map(|_| ()));
    }

    fn tree(&self, tree: &Tree) {
        self.range(tree.iter());
        self.expect(tree.get("key 001"));
        self.expect(tree.get_into("key 001", &mut Vec::new()));
        self.expect(tree.get_with("key 001", <[u8]>::len));
        self.expect(tree.contains("key 001"));
        self.expect(tree.insert("key", ""));
        self.expect(tree.update("key 001", ""));
        self.expect(tree.put("key 001", ""));
        self.expect(tree.remove("key 001"));
        self.expect(tree.compare_exchange("key", None, None));
        self.expect(tree.compare_exchange("key 001", Some(b"value"), None));
        self.expect(tree.get_many(&["key 001", "key 002"]));
        self.expect(tree.len());
        self.expect(tree.is_empty());
        self.expect(tree.bulk_load([("key", "value")], 1.0));
        self.expect(tree.check());
        self.expect(tree.stat());
        self.expect(tree.replace("key 001", ""));
        self.expect(tree.take("key 001"));
        self.expect(tree.fetch_update("key 001", |_| None::<Vec<u8>>));
        self.expect(tree.first());
        self.expect(tree.last());
        self.expect(tree.next_above("key 001"));
        self.expect(tree.next_below("key 002"));
        self.expect(tree.pop_first());
        self.expect(tree.pop_last());
        self.expect(tree.remove_range("key 001"..));
        self.expect(tree.clear());
        assert!(tree.epoch_stat().is_none());
        assert!(tree.counters().is_empty());
        assert_eq!(tree.name(), tree.kind().engine.name);
        assert!(format!("{tree:?}").contains(tree.name()));
    }

    fn pending_forms(&self, tree: &Tree) {
        let pending = tree.pending();
        self.expect(pending.get("key 001"));
        self.expect(pending.get_many(&["key 001"]));
        self.expect(pending.insert("key", ""));
        self.expect(pending.update("key 001", ""));
        self.expect(pending.put("key 001", ""));
        self.expect(pending.remove("key 001"));
        self.expect(pending.compare_exchange("key", None, None));
    }

    /// Errors of the engine have no path.
    fn index(&self, tree: &Tree) {
        let index = tree.index();
        let with_path =
            |result: Result<()>| self.expect(result.map_err(|error| error.at(&self.path)));
        with_path(index.put(b"key", b""));
        with_path(index.get(b"key").map(drop));
        with_path(index.range(Bounds::all(), Direction::Forward).map(drop));
        with_path(index.mark(&|| true).map(drop));
        with_path(index.destroy());
        with_path(index.salvage(&mut |_, _| true).map(drop));
        index.reclaim();
        assert!(index.epochs().is_none() && index.measured().is_none());
    }

    fn words(&self, words: &WordTree) {
        self.expect(words.get(1));
        self.expect(words.insert(1, 2));
        self.expect(words.update(1, 2));
        self.expect(words.put(1, 2));
        self.expect(words.remove(1));
        self.expect(words.compare_exchange(1, None, None));
        self.expect(words.compare_exchange(1, Some(1), Some(2)));
        self.expect(words.get_many(&[1, 2]));
        self.expect(words.scan(0, |_, _| true));
        self.expect(words.range(..).next().expect("an error"));
        self.expect(words.len());
        self.expect(words.bulk_load([(1, 2)], 1.0));
        self.expect(words.pending().get(1));
        self.expect(words.pending().get_many(&[1]));
        self.expect(words.pending().put(1, 2));
        self.expect(words.pending().remove(1));
        let index = words.as_tree().index().words().expect("a tree of words");
        let written = index.write(1, None, Condition::Always);
        self.expect(written.map_err(|error| error.at(&self.path)));
    }

    fn typed(&self, typed: &TypedTree<String, u64>) {
        self.expect(typed.get("1"));
        self.expect(typed.put("1", &2));
        self.expect(typed.first());
        self.expect(typed.iter().next().expect("an error"));
        self.expect(typed.pending().put("1", &2));
    }

    fn view(&self, view: &impl View, tree: &Tree) {
        self.expect(view.get(tree, "key 001"));
        self.expect(view.get_many(tree, &["key 001"]));
        self.expect(view.contains(tree, "key 001"));
        self.expect(view.first(tree));
        self.expect(view.iter(tree).next().expect("an error"));
        self.expect(view.iter(tree).next_back().expect("an error"));
    }

    fn transaction(&self, mut transaction: Transaction, tree: &Tree) {
        self.expect(transaction.put(tree, "key 001", "value"));
        self.expect(transaction.insert(tree, "key", "value"));
        self.expect(transaction.remove(tree, "key 001"));
        self.expect(transaction.commit());
    }

    fn pending<T: Clone + Debug>(&self, pending: Pending<T>) {
        assert!(!pending.is_durable());
        assert!(pending.peek().is_some());
        let _ = pending.lsn();
        self.expect(Pending::wait_all([pending.clone()]));
        self.expect(pending.clone().wait());
        let mut polled = pin!(pending);
        match polled
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(result) => self.expect(result),
            Poll::Pending => panic!("no thread of this process would wake the task"),
        }
    }

    fn store(&self, store: &Store, batch: &Batch) {
        let name = "rntree";
        let beside = |name: &str| self.path.with_file_name(name);
        store.finish_recovery();
        self.expect(store.tree(name));
        self.expect(store.tree("new"));
        self.expect(store.tree_with(name, TreeOptions::RECORDS));
        self.expect(store.word_tree("words"));
        self.expect(store.typed::<String, u64>("typed"));
        self.expect(store.typed_with::<String, u64>("typed", TreeOptions::RECORDS));
        self.expect(store.adopt::<String, u64>("typed"));
        self.expect(store.adopt_as_bytes("typed"));
        self.expect(store.open_tree(name));
        self.expect(store.salvage(name, |_, _| true));
        self.expect(store.trees());
        self.expect(store.drop_tree(name));
        self.expect(store.rename_tree(name, "other"));
        self.expect(store.sync());
        self.expect(store.compact());
        self.expect(store.stat());
        self.expect(store.check());
        self.expect(store.lost_copies());
        self.expect(store.mend_copies());
        self.expect(store.backup(beside("copy.pool")));
        self.expect(store.write(batch));
        self.expect(store.write_pending(batch));
        self.expect(store.write(&Batch::new()));
        self.expect(store.snapshot());
        self.expect(store.begin());
        self.expect(store.transaction(|_| Ok::<_, Error>(())));
        self.expect(store.clone().close().map_err(Error::from));
        self.expect(store.clone().close_and_replace(beside("new.pool")));
        assert_eq!(store.path(), self.path);
        let _ = store.survives();
        let _ = store.recovery();
        assert!(!beside("copy.pool").exists());
        assert!(!format!("{store:?}").is_empty());
    }
}
