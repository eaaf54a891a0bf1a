//! STAND-IN, for building what lies above. Replaced by the engine.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Bound;

use medium::Medium;
use parking_lot::RwLock;
use pool::record::{self, Record};
use pool::{Guard, Pool, ROOT_WORDS, Result, TreeRoot};

use crate::index::{
    Bounds, Codec, Condition, Direction, Index, IndexStat, NextEntry, Scan, Value, Violation, WordCodec,
    WordIndex,
};

/// Options.
#[derive(Clone, Copy, Debug, Default)]
pub struct RnTreeOptions {
    /// Threads.
    pub recovery_threads: usize,
}

const CELLS: usize = 60;

struct State {
    map: BTreeMap<Vec<u8>, u64>,
    free: Vec<u64>,
    head: u64,
}

/// The stand-in: chained pages of record offsets.
pub struct RnTree<M: Medium, C: Codec, const N: usize = 56> {
    pool: Pool<M>,
    state: RwLock<State>,
    leaves: u64,
    codec: PhantomData<C>,
}

impl<M: Medium, C: Codec, const N: usize> RnTree<M, C, N> {
    /// Number and name.
    pub const ENGINE: (u16, &'static str) = (1, "rntree");

    fn page(guard: &Guard<'_, M>, next: u64) -> Result<u64> {
        let page = guard.allocate((CELLS + 1) * 8)?;
        let words = guard.words(page, CELLS + 1)?;
        words.iter().for_each(|word| word.store(guard, 0));
        words[0].store(guard, next);
        guard.flush_words(words);
        guard.fence();
        Ok(page)
    }

    /// New.
    pub fn create(pool: &Pool<M>, name: &str, options: RnTreeOptions) -> Result<Self> {
        let guard = pool.pin();
        let anchor = Self::page(&guard, 0)?;
        let mut words = [0; ROOT_WORDS];
        words[0] = anchor;
        drop(guard);
        let root = pool.create_tree(name, (Self::ENGINE.0, C::ID), &words)?;
        Self::open(pool, &root, options)
    }

    /// Old.
    pub fn open(pool: &Pool<M>, root: &TreeRoot, _options: RnTreeOptions) -> Result<Self> {
        let guard = pool.pin();
        let mut state = State { map: BTreeMap::new(), free: Vec::new(), head: root.words[0] };
        let (mut page, mut leaves) = (root.words[0], 0);
        while page != 0 {
            leaves += 1;
            if pool.needs_mark() {
                pool.mark(page)?;
            }
            let words = guard.words(page, CELLS + 1)?;
            for index in 1..=CELLS {
                let cell = page + 8 * index as u64;
                let offset = words[index].load(&guard);
                if offset == 0 {
                    state.free.push(cell);
                    continue;
                }
                if pool.needs_mark() {
                    pool.mark(offset)?;
                }
                let mut key = Vec::new();
                Record::at(&guard, offset)?.copy_key(&guard, &mut key)?;
                state.map.insert(key, cell);
            }
            page = words[0].load(&guard);
        }
        drop(guard);
        Ok(Self { pool: pool.clone(), state: RwLock::new(state), leaves, codec: PhantomData })
    }

    fn value(guard: &Guard<'_, M>, cell: u64, value: &mut Vec<u8>) -> Result<()> {
        let offset = guard.words(cell, 1)?[0].load(guard);
        value.clear();
        Record::at(guard, offset)?.copy_value(guard, value)
    }
}

struct StandInScan<'i, M: Medium, C: Codec, const N: usize> {
    tree: &'i RnTree<M, C, N>,
    bounds: Bounds,
    direction: Direction,
}

impl<M: Medium, C: Codec, const N: usize> Scan for StandInScan<'_, M, C, N> {
    fn next_into(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool> {
        let state = self.tree.state.read();
        let empty = match (&self.bounds.lower, &self.bounds.upper) {
            (Bound::Included(a), Bound::Included(b)) => a > b,
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
            _ => false,
        };
        if empty {
            return Ok(false);
        }
        let mut range = state.map.range::<Vec<u8>, _>((self.bounds.lower.as_ref(), self.bounds.upper.as_ref()));
        let found = if self.direction == Direction::Forward { range.next() } else { range.next_back() };
        let Some((found, cell)) = found else { return Ok(false) };
        key.clone_from(found);
        RnTree::<M, C, N>::value(&self.tree.pool.pin(), *cell, value)?;
        if self.direction == Direction::Forward {
            self.bounds.lower = Bound::Excluded(key.clone());
        } else {
            self.bounds.upper = Bound::Excluded(key.clone());
        }
        Ok(true)
    }
}

impl<M: Medium, C: Codec, const N: usize> Index for RnTree<M, C, N> {
    fn engine(&self) -> &'static str {
        Self::ENGINE.1
    }

    fn codec(&self) -> &'static str {
        C::NAME
    }

    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        C::key(key)?;
        value.clear();
        let state = self.state.read();
        let Some(cell) = state.map.get(key) else { return Ok(false) };
        Self::value(&self.pool.pin(), *cell, value)?;
        Ok(true)
    }

    fn write(&self, key: &[u8], value: Option<&[u8]>, condition: Condition<&[u8]>) -> Result<bool> {
        C::key(key)?;
        value.map(C::value).transpose()?;
        let mut state = self.state.write();
        let guard = self.pool.pin();
        let cell = state.map.get(key).copied();
        let holds = match condition {
            Condition::Always => true,
            Condition::Absent => cell.is_none(),
            Condition::Present => cell.is_some(),
            Condition::Equals(expected) => match cell {
                None => false,
                Some(cell) => {
                    let mut current = Vec::new();
                    Self::value(&guard, cell, &mut current)?;
                    current == expected
                }
            },
        };
        if !holds {
            return Ok(false);
        }
        let Some(value) = value else {
            if let Some(cell) = cell {
                let word = &guard.words(cell, 1)?[0];
                let old = word.load(&guard);
                word.publish(&guard, 0);
                guard.drain()?;
                guard.retire(old);
                state.map.remove(key);
                state.free.push(cell);
            }
            return Ok(true);
        };
        if state.free.is_empty() {
            let anchor = &guard.words(state.head, 1)?[0];
            let page = Self::page(&guard, anchor.load(&guard))?;
            anchor.publish(&guard, page);
            guard.drain()?;
            state.free.extend((1..=CELLS as u64).map(|index| page + 8 * index));
        }
        let record = record::write(&guard, key, value)?;
        guard.fence();
        let target = cell.unwrap_or_else(|| state.free.pop().unwrap());
        let word = &guard.words(target, 1)?[0];
        let old = word.load(&guard);
        word.publish(&guard, record);
        guard.drain()?;
        if old != 0 {
            guard.retire(old);
        }
        state.map.insert(key.to_vec(), target);
        Ok(true)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        keys.iter().map(|key| Index::get(self, key)).collect()
    }

    fn range<'i>(&'i self, bounds: Bounds, direction: Direction) -> Result<Box<dyn Scan + 'i>> {
        Ok(Box::new(StandInScan { tree: self, bounds, direction }))
    }

    fn len(&self) -> Result<u64> {
        Ok(self.state.read().map.len() as u64)
    }

    fn bulk_load(&self, next: &mut NextEntry<'_>, _fill: f64) -> Result<u64> {
        if !self.is_empty()? {
            return Err(pool::Error::NotEmpty);
        }
        let (mut key, mut value, mut all) = (Vec::new(), Vec::new(), Vec::new());
        while next(&mut key, &mut value)? {
            if all.last().is_some_and(|(last, _)| *last >= key) {
                return Err(pool::Error::NotSorted { index: all.len() as u64 });
            }
            all.push((key.clone(), value.clone()));
        }
        for (key, value) in &all {
            self.insert(key, value)?;
        }
        Ok(all.len() as u64)
    }

    fn check(&self) -> Result<Vec<Violation>> {
        Ok(Vec::new())
    }

    fn stat(&self) -> Result<IndexStat> {
        Ok(IndexStat { keys: self.len()?, leaves: self.leaves, ..IndexStat::default() })
    }

    fn words(&self) -> Option<&dyn WordIndex> {
        (C::ID == WordCodec::ID).then_some(self)
    }
}

impl<M: Medium, C: Codec, const N: usize> WordIndex for RnTree<M, C, N> {
    fn get(&self, key: u64) -> Result<Option<u64>> {
        let mut value = Vec::new();
        let found = self.get_into(&key.to_be_bytes(), &mut value)?;
        Ok(found.then(|| u64::from_be_bytes(value.try_into().unwrap())))
    }

    fn write(&self, key: u64, value: Option<u64>, condition: Condition<u64>) -> Result<bool> {
        let value = value.map(u64::to_be_bytes);
        let value = value.as_ref().map(|value| value.as_slice());
        let expected;
        let condition = match condition {
            Condition::Always => Condition::Always,
            Condition::Absent => Condition::Absent,
            Condition::Present => Condition::Present,
            Condition::Equals(value) => {
                expected = value.to_be_bytes();
                Condition::Equals(expected.as_slice())
            }
        };
        Index::write(self, &key.to_be_bytes(), value, condition)
    }

    fn get_many(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        for (key, value) in keys.iter().zip(values) {
            *value = WordIndex::get(self, *key)?;
        }
        Ok(())
    }

    fn scan(&self, from: u64, visit: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        let bounds =
            Bounds { lower: Bound::Included(from.to_be_bytes().to_vec()), upper: Bound::Unbounded };
        let mut scan = self.range(bounds, Direction::Forward)?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while scan.next_into(&mut key, &mut value)? {
            let word = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
            if !visit(word(&key), word(&value)) {
                break;
            }
        }
        Ok(())
    }
}
