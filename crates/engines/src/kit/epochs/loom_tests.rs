//! The barrier between epochs under every interleaving and every weak ordering. See `medium::sync`
//! for how to run it.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use medium::sync::{Mutex, SharedLock, model};

use super::barrier::Barrier;
use super::note_lines;

/// The list of a shard: pairs of a node, of which there are two here, and its changed lines.
type Shard = Vec<(usize, u64)>;

/// A node of two lines: the content of each in memory and on the medium, and the word in which a
/// tree's node notes the changed lines and the phase.
struct Node {
    lock: Mutex<()>,
    lines: [AtomicU64; 2],
    durable: [AtomicU64; 2],
    listed: AtomicU64,
}

struct Tree {
    barrier: Barrier<Shard>,
    batches: SharedLock,
    nodes: [Node; 2],
}

impl Tree {
    /// A tree with `shards` shards.
    fn new(shards: usize) -> Arc<Self> {
        let words = || std::array::from_fn(|_| AtomicU64::new(0));
        let node = |_| Node {
            lock: Mutex::new(()),
            lines: words(),
            durable: words(),
            listed: AtomicU64::new(0),
        };
        let barrier = Barrier::new(1, (0..shards).map(|_| Shard::new()), shards);
        Arc::new(Self {
            barrier,
            batches: SharedLock::default(),
            nodes: std::array::from_fn(node),
        })
    }

    /// Changes a line of a node; returns the epoch in which that was.
    fn write(&self, thread: usize, node: usize, line: usize, value: u64) -> u64 {
        let mut pass = self.barrier.enter(thread);
        let Node {
            lock,
            lines,
            listed,
            ..
        } = &self.nodes[node];
        let locked = lock.lock();
        lines[line].fetch_add(value, Ordering::Release);
        let (new, due) = note_lines(listed.load(Ordering::Relaxed), pass.phase, 1 << line);
        listed.store(new, Ordering::Relaxed);
        if due != 0 {
            pass.shard.push((node, due));
        }
        drop(locked);
        pass.epoch
    }

    fn flush(&self, listed: &mut Shard) {
        for (node, due) in listed.drain(..) {
            let Node { lines, durable, .. } = &self.nodes[node];
            for line in (0..2).filter(|line| due >> line & 1 == 1) {
                durable[line].store(lines[line].load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// Ends the epoch, in the steps of `Core::advance`. Returns the content of the medium.
    fn advance(&self) -> [[u64; 2]; 2] {
        let mut listed = Shard::new();
        for _ in 0..2 {
            self.barrier.begin_phase(|shard| listed.append(shard));
            self.flush(&mut listed);
        }
        let _no_batch = self.batches.lock();
        let mut shards = self.barrier.stop();
        shards.iter_mut().for_each(|shard| listed.append(shard));
        self.flush(&mut listed);
        let of_node = |node: &Node| {
            node.durable
                .each_ref()
                .map(|line| line.load(Ordering::Relaxed))
        };
        let durable = self.nodes.each_ref().map(of_node);
        self.barrier.begin(self.barrier.running() + 1);
        durable
    }
}

#[test]
fn what_is_changed_in_an_epoch_is_durable_at_its_end_and_nothing_later() {
    model(|| {
        let tree = Tree::new(2);
        let writer = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || [tree.write(0, 0, 0, 1), tree.write(0, 0, 1, 2)])
        };
        let other = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || tree.write(1, 0, 0, 4))
        };
        let durable = tree.advance();
        let [first, second] = writer.join().unwrap();
        let third = other.join().unwrap();
        let of_line = |writes: &[(u64, u64)]| -> u64 {
            writes
                .iter()
                .filter(|(epoch, _)| *epoch == 1)
                .map(|(_, value)| value)
                .sum()
        };
        assert_eq!(
            durable[0],
            [of_line(&[(first, 1), (third, 4)]), of_line(&[(second, 2)])]
        );
    });
}

#[test]
fn a_reader_without_a_shard_never_takes_what_was_reused() {
    model(|| {
        let tree = Tree::new(1);
        let writer = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                tree.advance();
                // Memory that was freed in epoch 1 is reused.
                let pass = tree.barrier.enter(0);
                assert_eq!(pass.epoch, 2);
                tree.nodes[0].lines[0].store(7, Ordering::Release);
            })
        };
        let epoch = tree.barrier.running();
        let found = tree.nodes[0].lines[0].load(Ordering::Relaxed);
        if tree.barrier.is_running(epoch) && epoch == 1 {
            assert_eq!(found, 0);
        }
        writer.join().unwrap();
    });
}

#[test]
fn an_epoch_does_not_end_while_a_shard_is_held() {
    model(|| {
        let tree = Tree::new(2);
        let worker = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                let pass = tree.barrier.enter(1);
                tree.nodes[1].lines[0].store(1, Ordering::Relaxed);
                assert_eq!(tree.barrier.running(), pass.epoch);
                tree.nodes[1].lines[0].store(0, Ordering::Relaxed);
            })
        };
        let shards = tree.barrier.stop();
        assert_eq!(tree.nodes[1].lines[0].load(Ordering::Relaxed), 0);
        tree.barrier.begin(2);
        drop(shards);
        worker.join().unwrap();
    });
}

/// A batch holds a lock in shared mode that the end of an epoch takes in exclusive mode, and enters
/// the barrier for each of its writes.
#[test]
fn the_writes_of_a_batch_lie_in_one_epoch() {
    model(|| {
        let tree = Tree::new(1);
        let batch = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                let _share = tree.batches.share();
                [tree.write(0, 0, 0, 1), tree.write(0, 1, 0, 2)]
            })
        };
        let durable = tree.advance();
        let [first, second] = batch.join().unwrap();
        assert_eq!(first, second);
        let is_durable = first == 1;
        assert_eq!(
            [durable[0][0], durable[1][0]],
            if is_durable { [1, 2] } else { [0, 0] }
        );
    });
}

/// Two trees of a pool: one that was idle, and one that is written to all the time.
struct TwoTrees {
    trees: [Arc<Tree>; 2],
    running: AtomicU64,
    /// The trees that are busy, by their indices.
    busy: Mutex<Vec<usize>>,
}

impl TwoTrees {
    /// The first tree is idle, and has stayed in epoch 1. Epoch 2 runs.
    fn new() -> Arc<Self> {
        let trees = [Tree::new(1), Tree::new(1)];
        trees[0].barrier.rest();
        trees[1].barrier.begin(2);
        Arc::new(Self {
            trees,
            running: AtomicU64::new(2),
            busy: Mutex::new(vec![1]),
        })
    }

    /// Makes a tree busy, in the steps of `PoolEpochs::wake`.
    fn wake(&self, tree: usize) {
        let mut busy = self.busy.lock();
        let barrier = &self.trees[tree].barrier;
        let _shards = barrier.stop();
        if barrier.is_idle() {
            barrier.wake(self.running.load(Ordering::Acquire));
            busy.push(tree);
        }
    }

    /// Writes to a tree, and wakes it first if that is needed. Returns the epoch in which that was.
    fn write(&self, tree: usize, value: u64) -> u64 {
        loop {
            let mut pass = self.trees[tree].barrier.enter(0);
            if !self.trees[tree].barrier.is_idle() {
                self.trees[tree].nodes[0].lines[0].fetch_add(value, Ordering::Release);
                pass.shard.push((0, 1));
                return pass.epoch;
            }
            drop(pass);
            self.wake(tree);
        }
    }

    /// Ends the running epoch of the busy trees, in the steps of `PoolEpochs::end`. Returns the
    /// content of the media.
    fn end(&self) -> [u64; 2] {
        let mut busy = self.busy.lock();
        let mut stopped = Vec::new();
        let mut left = Vec::new();
        for index in busy.iter().copied() {
            let tree = &self.trees[index];
            let mut shards = tree.barrier.stop();
            if shards.iter().any(|shard| !shard.is_empty()) {
                left.push(index);
            }
            shards.iter_mut().for_each(|shard| tree.flush(shard));
            stopped.push(shards);
        }
        let of_tree = |tree: &Arc<Tree>| tree.nodes[0].durable[0].load(Ordering::Relaxed);
        let durable = self.trees.each_ref().map(of_tree);
        let next = self.running.load(Ordering::Relaxed) + 1;
        self.running.store(next, Ordering::Release);
        for index in busy.iter().copied() {
            self.trees[index].barrier.begin(next);
            if !left.contains(&index) {
                self.trees[index].barrier.rest();
            }
        }
        *busy = left;
        drop(stopped);
        durable
    }
}

/// A tree that wakes up while an epoch ends is written in that epoch and part of its end, or is written
/// in the next one.
#[test]
fn a_write_to_an_idle_tree_lies_in_an_epoch_whose_end_flushes_it() {
    model(|| {
        let trees = TwoTrees::new();
        let writer = {
            let trees = Arc::clone(&trees);
            thread::spawn(move || [trees.write(0, 1), trees.write(1, 2)])
        };
        let ends = [trees.end(), trees.end()];
        let [idle, busy] = writer.join().unwrap();
        let last = trees.end();
        for (epoch, durable) in (2..).zip(ends) {
            let is_in = |written: u64, value: u64| if written <= epoch { value } else { 0 };
            assert_eq!(durable, [is_in(idle, 1), is_in(busy, 2)]);
        }
        assert_eq!(last, [1, 2]);
    });
}

/// A reader of an idle tree finds its number as it was, and sees that it changes before memory is
/// reused.
#[test]
fn a_reader_of_an_idle_tree_never_takes_what_was_reused() {
    model(|| {
        let trees = TwoTrees::new();
        let writer = {
            let trees = Arc::clone(&trees);
            thread::spawn(move || trees.write(0, 7))
        };
        let tree = &trees.trees[0];
        let epoch = tree.barrier.running();
        let found = tree.nodes[0].lines[0].load(Ordering::Relaxed);
        if tree.barrier.is_running(epoch) && epoch == 1 {
            assert_eq!(found, 0);
        }
        writer.join().unwrap();
    });
}
