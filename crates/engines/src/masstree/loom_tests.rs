//! The barrier between epochs under every interleaving and every weak ordering. See `medium::sync` for how to run it.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use medium::sync::{Mutex, model};

use super::barrier::Barrier;
use super::epoch::note_lines;

/// What a share lists: nodes, of which there are two here, and lines of them.
type Share = Vec<(usize, u64)>;

/// A node of two lines, each as memory has it and as the medium has it; and which of them changed, and when, as a tree's
/// nodes note it.
struct Node {
    lock: Mutex<()>,
    lines: [AtomicU64; 2],
    durable: [AtomicU64; 2],
    listed: AtomicU64,
}

struct Tree {
    barrier: Barrier<Share>,
    nodes: [Node; 2],
}

impl Tree {
    fn new(shares: usize) -> Arc<Self> {
        let words = || std::array::from_fn(|_| AtomicU64::new(0));
        let node =
            |_| Node { lock: Mutex::new(()), lines: words(), durable: words(), listed: AtomicU64::new(0) };
        let barrier = Barrier::new(1, (0..shares).map(|_| Share::new()), shares);
        Arc::new(Self { barrier, nodes: std::array::from_fn(node) })
    }

    /// Changes a line of a node; returns the epoch in which that was.
    fn write(&self, thread: usize, node: usize, line: usize, value: u64) -> u64 {
        let mut pass = self.barrier.enter(thread);
        let Node { lock, lines, listed, .. } = &self.nodes[node];
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

    fn flush(&self, listed: &mut Share) {
        for (node, due) in listed.drain(..) {
            let Node { lines, durable, .. } = &self.nodes[node];
            for line in (0..2).filter(|line| due >> line & 1 == 1) {
                durable[line].store(lines[line].load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// As `Core::advance`.
    fn advance(&self) -> [[u64; 2]; 2] {
        let mut listed = Share::new();
        for _ in 0..2 {
            self.barrier.begin_phase(|share| listed.append(share));
            self.flush(&mut listed);
        }
        let mut shares = self.barrier.stop(self.barrier.close_gate());
        shares.iter_mut().for_each(|share| listed.append(share));
        self.flush(&mut listed);
        let of_node = |node: &Node| node.durable.each_ref().map(|line| line.load(Ordering::Relaxed));
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
            writes.iter().filter(|(epoch, _)| *epoch == 1).map(|(_, value)| value).sum()
        };
        assert_eq!(durable[0], [of_line(&[(first, 1), (third, 4)]), of_line(&[(second, 2)])]);
    });
}

#[test]
fn a_reader_without_a_share_never_takes_what_was_reused() {
    model(|| {
        let tree = Tree::new(1);
        let writer = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                tree.advance();
                // What was freed in epoch 1 becomes something else.
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
fn an_epoch_does_not_end_while_a_share_is_held() {
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
        let shares = tree.barrier.stop(tree.barrier.close_gate());
        assert_eq!(tree.nodes[1].lines[0].load(Ordering::Relaxed), 0);
        tree.barrier.begin(2);
        drop(shares);
        worker.join().unwrap();
    });
}

#[test]
fn who_holds_a_share_for_long_may_wait_for_those_who_work() {
    model(|| {
        let tree = Tree::new(2);
        let holder = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                let (pass, long) = tree.barrier.enter_for_long(1);
                let worker = {
                    let tree = Arc::clone(&tree);
                    thread::spawn(move || drop(tree.barrier.enter(0)))
                };
                worker.join().unwrap();
                assert_eq!(tree.barrier.running(), pass.epoch);
                drop((long, pass));
            })
        };
        let shares = tree.barrier.stop(tree.barrier.close_gate());
        tree.barrier.begin(2);
        drop(shares);
        holder.join().unwrap();
    });
}

#[test]
fn nobody_waits_for_ever_where_each_share_is_held_for_long() {
    model(|| {
        let tree = Tree::new(1);
        let hold = |tree: &Arc<Tree>| {
            let tree = Arc::clone(tree);
            thread::spawn(move || {
                let (pass, long) = tree.barrier.enter_for_long(0);
                assert_eq!(tree.barrier.running(), pass.epoch);
                drop((long, pass));
            })
        };
        let holders = [hold(&tree), hold(&tree)];
        let shares = tree.barrier.stop(tree.barrier.close_gate());
        tree.barrier.begin(2);
        drop(shares);
        holders.into_iter().for_each(|holder| holder.join().unwrap());
    });
}

/// The worker looks for a share before any is held for long: if all are busy just then, it may wait for the one that is held
/// for long next. (From there on: to loom, who tries a lock waits for who takes it meanwhile.)
#[test]
fn who_works_does_not_wait_for_who_holds_a_share_for_long_since() {
    model(|| {
        let tree = Tree::new(2);
        let busy = [tree.barrier.enter(0), tree.barrier.enter(1)];
        let worker = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || drop(tree.barrier.enter_busy(0)))
        };
        let holder = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                let (pass, long) = tree.barrier.enter_for_long(0);
                worker.join().unwrap();
                drop((long, pass));
            })
        };
        drop(busy);
        holder.join().unwrap();
    });
}

/// As above, of one that looks for a share that suits.
#[test]
fn who_looks_for_a_share_that_suits_takes_those_that_are_held_for_long_last() {
    model(|| {
        let tree = Tree::new(2);
        let busy = tree.barrier.enter(0);
        let worker = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || drop(tree.barrier.enter_suitable(|_| true)))
        };
        let holder = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                let (pass, long) = tree.barrier.enter_for_long(0);
                worker.join().unwrap();
                drop((long, pass));
            })
        };
        drop(busy);
        holder.join().unwrap();
    });
}

/// Who saw that shares are being taken may go on only when an epoch is to end again, which a share is held for long before.
#[test]
fn who_waits_while_shares_are_taken_waits_for_nobody_who_holds_one_for_long() {
    model(|| {
        let tree = Tree::new(2);
        let worker = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || drop(tree.barrier.enter(0)))
        };
        drop(tree.barrier.stop(tree.barrier.close_gate()));
        let holder = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                let (pass, long) = tree.barrier.enter_for_long(1);
                worker.join().unwrap();
                drop((long, pass));
            })
        };
        drop(tree.barrier.stop(tree.barrier.close_gate()));
        holder.join().unwrap();
    });
}
