//! Walks over all nodes: the survey behind opens and checks, salvage, giving back.

use std::ops::RangeInclusive;
use std::sync::OnceLock;

use medium::LINE_BYTES;
use medium::sync::{AtomicU64, Ordering};

use super::layout::{LEAF_ENTRIES, LoadedNode, NodeLine};
use super::record::entry_at;
use super::{CawbTree, LEVELS_MAX, TreeCounts};
use crate::kit::map_on_threads;
use crate::kit::prelude::*;
use crate::kit::salvage::{LedDamage, what_of};

/// The level whose nodes are distributed to threads, each with its subtree: some hundred nodes of a
/// large tree.
const SHARED_LEVEL: usize = 6;

pub(super) const NOT_FIRST: &str = "a separator that is not the first key to its right";

/// A node on a walk.
#[derive(Clone, Copy, Default)]
struct WalkedNode {
    offset: u64,
    /// Its level, from the root on.
    level: usize,
    /// The separator before it, 0 if there is none, and the node that has it.
    low: u32,
    low_at: u64,
}

/// Lines whose bits lie in one allocation of [`VisitedLines`]: 1 MiB of the pool.
const CHUNK_LINES: usize = 1 << 14;

/// The nodes that a walk has visited: a bit for each line of the pool, in chunks that are made
/// where nodes are.
struct VisitedLines(Vec<OnceLock<Box<[AtomicU64]>>>);

impl VisitedLines {
    fn new<M: Medium>(guard: &Guard<'_, M>) -> Self {
        let lines = guard.medium().extent().length() as usize / LINE_BYTES;
        Self(
            (0..lines.div_ceil(CHUNK_LINES))
                .map(|_| OnceLock::new())
                .collect(),
        )
    }

    /// Whether a node is visited for the first time. `true` for every offset outside of the pool.
    fn is_new(&self, offset: u64) -> bool {
        let line = offset as usize / LINE_BYTES;
        let Some(chunk) = self.0.get(line / CHUNK_LINES) else {
            return true;
        };
        let words =
            chunk.get_or_init(|| (0..CHUNK_LINES / 64).map(|_| AtomicU64::new(0)).collect());
        let bit = 1 << (line % 64);
        words[line % CHUNK_LINES / 64].fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}

/// A separator that is not the first key to its right.
pub(super) struct Stale {
    /// The node that has it.
    pub(super) offset: u64,
    pub(super) separator: u32,
    /// The first key to its right.
    pub(super) first: u32,
}

/// The content of a tree.
#[derive(Default)]
pub(super) struct NodeSurvey {
    pub(super) counts: TreeCounts,
    /// The leaves, in the order of their keys.
    pub(super) leaves: Vec<u64>,
    pub(super) stale: Vec<Stale>,
    pub(super) violations: Vec<LedDamage>,
    /// The leaf to which the last leaf links.
    next: u64,
}

impl NodeSurvey {
    fn found(&mut self, offset: u64, what: String) {
        self.push(LeftOut::unknown(Violation { offset, what }));
    }

    fn push(&mut self, left_out: LeftOut) {
        let leaves_before = self.leaves.len();
        self.violations.push(LedDamage {
            leaves_before,
            left_out,
        });
    }

    /// Adds a node, and verifies it.
    fn add(&mut self, at: WalkedNode, node: Result<LoadedNode>) {
        let node = match node {
            Ok(node) => node,
            Err(error) => {
                let what = what_of(&error);
                let left_out = LeftOut::new(at.offset, Part::Node, what);
                return self.push(left_out);
            }
        };
        *self.counts.of_kind(node.is_leaf()) += 1;
        if !node.is_leaf() {
            return;
        }
        self.follow(at.offset, at.level as u32);
        if node.count() > LEAF_ENTRIES || node.count() == 0 && at.level > 0 {
            self.found(at.offset, format!("a leaf with {} keys", node.count()));
        }
        if at.low != 0 && at.low != node.id(0) {
            self.stale.push(Stale {
                offset: at.low_at,
                separator: at.low,
                first: node.id(0),
            });
        }
        self.counts.keys += node.count() as u64;
        self.leaves.push(at.offset);
        self.next = node.next();
    }

    /// Verifies that a leaf may follow the last one.
    fn follow(&mut self, leaf: u64, level: u32) {
        if self.leaves.is_empty() {
            self.counts.levels = level;
        } else if self.next != leaf {
            self.found(leaf, "the leaf before links another one".to_owned());
        }
        if self.counts.levels != level {
            self.found(
                leaf,
                "a leaf that is not as far from the root as others".to_owned(),
            );
        }
    }

    /// Adds the survey of the part behind.
    fn join(&mut self, behind: Self) {
        if let Some(leaf) = behind.leaves.first() {
            self.follow(*leaf, behind.counts.levels);
            self.next = behind.next;
        }
        self.counts.keys += behind.counts.keys;
        self.counts.leaves += behind.counts.leaves;
        self.counts.inner += behind.counts.inner;
        let leaves_before = self.leaves.len();
        for mut violation in behind.violations {
            violation.leaves_before += leaves_before;
            self.violations.push(violation);
        }
        self.leaves.extend(behind.leaves);
        self.stale.extend(behind.stale);
    }
}

/// How a walk reads a node.
type Read<'r, M> = dyn Fn(&Guard<'_, M>, u64) -> Result<LoadedNode> + Sync + 'r;

impl<M: Medium, C: Codec> CawbTree<M, C> {
    /// Reads a node, or the other copy of a twin line if only that is sound.
    fn read_any(guard: &Guard<'_, M>, offset: u64) -> Result<LoadedNode> {
        LoadedNode::load(guard, offset)
            .and_then(|node| node.validated(offset))
            .or_else(|error| {
                let copies = guard.node::<NodeLine>(offset)?.line.copies(guard);
                copies
                    .map(LoadedNode)
                    .find_map(|node| node.validated(offset).ok())
                    .ok_or(error)
            })
    }

    /// Visits a node and its subtree, parents first, children in their order, each once. Nodes on
    /// level `end` are not visited, but returned. O(nodes), whatever the damage.
    fn walk(
        guard: &Guard<'_, M>,
        seen: &VisitedLines,
        from: WalkedNode,
        end: usize,
        read: &Read<'_, M>,
        visit: &mut dyn FnMut(WalkedNode, Result<LoadedNode>),
    ) -> Vec<WalkedNode> {
        let mut todo = vec![from];
        let mut left = Vec::new();
        while let Some(at) = todo.pop() {
            if at.level == end {
                left.push(at);
                continue;
            }
            let node = match seen.is_new(at.offset) && at.level <= LEVELS_MAX {
                true => read(guard, at.offset),
                false => Err(Error::corrupt(at.offset, "a node that is reached twice")),
            };
            if let Ok(node) = node.as_ref()
                && !node.is_leaf()
            {
                for (position, offset) in node.pointers().enumerate().rev() {
                    Self::prefetch_node(guard, offset);
                    let level = at.level + 1;
                    let before = position.checked_sub(1);
                    let (low, low_at) =
                        before.map_or((at.low, at.low_at), |before| (node.id(before), at.offset));
                    todo.push(WalkedNode {
                        offset,
                        level,
                        low,
                        low_at,
                    });
                }
            }
            visit(at, node);
        }
        left
    }

    /// Visits and verifies all nodes, but not the records that leaves lead to, on `threads`
    /// threads.
    pub(super) fn survey(&self, threads: usize, read: &Read<'_, M>) -> Result<NodeSurvey> {
        let seen = VisitedLines::new(&self.pool.peek());
        let part = |from, end| {
            let guard = self.pool.pin();
            let mut survey = NodeSurvey::default();
            let left = Self::walk(&guard, &seen, from, end, read, &mut |at, node| {
                survey.add(at, node);
            });
            Ok((survey, left))
        };
        let (mut survey, left) = part(
            WalkedNode {
                offset: self.root,
                ..WalkedNode::default()
            },
            SHARED_LEVEL,
        )?;
        for (behind, _) in map_on_threads(threads, left, |from| part(from, usize::MAX))? {
            survey.join(behind);
        }
        if survey.next != 0 {
            survey.found(self.root, "the last leaf links another one".to_owned());
        }
        Ok(survey)
    }

    /// Verifies all nodes, records, and the table.
    pub(super) fn verify(&self) -> Result<Vec<Violation>> {
        let guard = self.pool.pin();
        let state = self.lock(&guard)?;
        let NodeSurvey {
            counts,
            leaves,
            stale,
            violations,
            ..
        } = self.survey(1, &LoadedNode::load_sound)?;
        let mut violations: Vec<Violation> = violations
            .into_iter()
            .map(|found| Violation::from(found.left_out))
            .collect();
        let mut found = |offset: u64, what: String| violations.push(Violation { offset, what });
        for separator in stale {
            found(separator.offset, NOT_FIRST.to_owned());
        }
        let mut last_key = None;
        for offset in leaves {
            let node = LoadedNode::load(&guard, offset)?;
            for (position, record) in node.pointers().enumerate() {
                match self.verify_record(&guard, node.id(position), record, &mut last_key) {
                    Ok(what) => {
                        if let Some(what) = what {
                            found(offset, what.to_owned());
                        }
                    }
                    Err(error) => found(offset, what_of(&error)),
                }
            }
        }
        if let Err(error) = LoadedNode::load_sound(&guard, self.log) {
            found(self.log, what_of(&error));
        }
        if violations.is_empty() && counts != state.counts {
            let what = format!("the tree has {counts:?}, and it counted {:?}", state.counts);
            violations.push(Violation {
                offset: self.root,
                what,
            });
        }
        Ok(violations)
    }

    fn verify_record(
        &self,
        guard: &Guard<'_, M>,
        id: u32,
        record: u64,
        last: &mut Option<Vec<u8>>,
    ) -> Result<Option<&'static str>> {
        let words = entry_at::<M, C>(guard, record, &mut Vec::new())?;
        if words != self.ids.entry(id) {
            return Ok(Some("an entry that is not the one in the table"));
        }
        verify_entry::<M, C>(guard, words, last)
    }

    /// Gives back all space. Nodes that cannot be visited stay taken.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "other engines' fail where damage stops the walk"
    )]
    pub(super) fn give_back(&self) -> Result<()> {
        let guard = self.pool.pin();
        let seen = VisitedLines::new(&guard);
        let from = WalkedNode {
            offset: self.root,
            ..WalkedNode::default()
        };
        Self::walk(
            &guard,
            &seen,
            from,
            usize::MAX,
            &LoadedNode::load_sound,
            &mut |at, node| {
                let Ok(node) = node else { return };
                if node.is_leaf() {
                    node.pointers().for_each(|record| guard.free(record));
                }
                guard.free_node(at.offset);
            },
        );
        guard.free_node(self.log);
        Ok(())
    }
}

impl<M: Medium, C: Codec> Leafy<M, C> for CawbTree<M, C> {
    const IS_CHECKED: bool = true;
    const ARE_SORTED: bool = true;
    const HAS_LINE: bool = true;

    fn at_root(pool: &Pool<M>, root: &TreeRoot) -> Result<Self> {
        root.demand(Self::ENGINE.0, C::ID, &[String::new(), String::new()])?;
        Self::unopened(pool, &root.words)
    }

    fn leaf_bytes(&self) -> RangeInclusive<usize> {
        LINE_BYTES..=LINE_BYTES
    }

    fn leaves(&self, guard: &Guard<'_, M>) -> Led {
        let NodeSurvey {
            leaves,
            violations: damage,
            ..
        } = self.survey(1, &Self::read_any).unwrap_or_else(|error| {
            let mut survey = NodeSurvey::default();
            survey.push(LeftOut::new(self.root, Part::Node, what_of(&error)));
            survey
        });
        let mut led = Led {
            damage,
            ..Led::default()
        };
        for offset in &leaves {
            if let Err(error) = LoadedNode::load_sound(guard, *offset) {
                led.note(*offset, Part::Unknown, "perhaps its last change", &error);
            }
        }
        Led { leaves, ..led }
    }

    fn entries(&self, guard: &Guard<'_, M>, leaf: u64) -> Result<Vec<Result<EntryWords>>> {
        let node = Self::read_any(guard, leaf)?;
        if !node.is_leaf() {
            return Ok(Vec::new());
        }
        Ok(node
            .pointers()
            .map(|record| entry_at::<M, C>(guard, record, &mut Vec::new()))
            .collect())
    }
}
