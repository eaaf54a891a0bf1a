//! The operations of the stand-in.

use engines::index::{
    Bounds, Codec, Condition, Direction, Index, IndexStat, NextEntry, RecordCodec, Scan, Value, Violation,
    WordCodec, WordIndex,
};
use medium::Medium;
use pool::record::{self, Record};
use pool::{Error, Guard, Result};

use super::scan::StandinScan;
use super::{Flaw, Standin, Table, lock};

impl<M: Medium, C: Codec> Standin<M, C> {
    /// The key as the stand-in compares it.
    fn key(&self, key: &[u8]) -> Result<Vec<u8>> {
        if self.flaw != Flaw::LongKeysAreTaken || key.len() != record::KEY_BYTES_MAX + 1 {
            C::key(key)?;
        }
        let length = if self.flaw == Flaw::KeysAreCut { key.len().min(16) } else { key.len() };
        Ok(key[..length].to_vec())
    }

    fn read(guard: &Guard<'_, M>, offset: u64, value: &mut Vec<u8>) -> Result<()> {
        Record::at(guard, offset)?.copy_value(guard, value)
    }

    fn holds(
        &self,
        guard: &Guard<'_, M>,
        current: Option<u64>,
        has_new: bool,
        condition: Condition<&[u8]>,
    ) -> Result<bool> {
        Ok(match condition {
            Condition::Always => true,
            Condition::Absent => current.is_none() || self.flaw == Flaw::InsertReplaces,
            Condition::Present => current.is_some() || self.flaw == Flaw::UpdateInserts && has_new,
            Condition::Equals(wanted) => {
                let Some(offset) = current else { return Ok(false) };
                let mut value = Vec::new();
                Self::read(guard, offset, &mut value)?;
                value == wanted || self.flaw == Flaw::ComparisonIsIgnored
            }
        })
    }

    fn full(&self, guard: &Guard<'_, M>, table: &mut Table, error: Error) -> Error {
        if self.flaw == Flaw::FullPoolLoses {
            let _ = table.remove_last(guard);
        }
        error
    }

    /// Writes the value as a record and points the key to it; returns the old record.
    fn put(
        &self,
        guard: &Guard<'_, M>,
        table: &mut Table,
        key: Vec<u8>,
        value: &[u8],
    ) -> Result<Option<u64>> {
        table.reserve(guard)?;
        if self.flaw == Flaw::Hoards {
            table.add_block(guard)?;
        }
        let cut = key.len().min(record::KEY_BYTES_MAX);
        let record = record::write(guard, &key[..cut], value)?;
        if self.flaw != Flaw::OneFenceLess {
            guard.fence();
        }
        let old = table.put(guard, key, record);
        guard.fence();
        if self.flaw == Flaw::OneFenceMore {
            guard.fence();
        }
        old
    }

    /// What a refused condition costs.
    fn refuse(&self, guard: &Guard<'_, M>) -> Result<bool> {
        if self.flaw == Flaw::FailedConditionLeaks {
            guard.allocate(100)?;
        }
        Ok(false)
    }
}

impl<M: Medium, C: Codec> Index for Standin<M, C> {
    fn engine(&self) -> &'static str {
        "stand-in"
    }

    fn codec(&self) -> &'static str {
        C::NAME
    }

    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let (key, guard) = (self.key(key)?, self.pool.pin());
        if self.flaw != Flaw::GetIntoAppends {
            value.clear();
        }
        let Some(held) = lock(&self.state).records.get(&key).copied() else { return Ok(false) };
        Self::read(&guard, held.record, value)?;
        Ok(true)
    }

    fn write(&self, key: &[u8], value: Option<&[u8]>, condition: Condition<&[u8]>) -> Result<bool> {
        let (key, guard) = (self.key(key)?, self.pool.pin());
        value.map(C::value).transpose()?;
        let mut table = lock(&self.state);
        if !self.holds(&guard, table.records.get(&key).map(|held| held.record), value.is_some(), condition)? {
            return self.refuse(&guard);
        }
        let is_comparison = matches!(condition, Condition::Equals(_));
        if self.flaw == Flaw::ComparisonIsNotAtomic && is_comparison || self.flaw == Flaw::WritesRace {
            drop(table);
            std::thread::yield_now();
            table = lock(&self.state);
        }
        let old = match value {
            None => {
                let old = table.remove(&guard, &key)?;
                if old.is_some() {
                    guard.fence();
                }
                old
            }
            Some(value) => self
                .put(&guard, &mut table, key, value)
                .map_err(|error| self.full(&guard, &mut table, error))?,
        };
        if let Some(old) = old.filter(|_| self.flaw != Flaw::RemoveLeaks || value.is_some()) {
            guard.retire(old);
        }
        Ok(true)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        let mut keys = keys.to_vec();
        if self.flaw == Flaw::GetManySorts {
            keys.sort_unstable();
        }
        keys.into_iter().map(|key| Index::get(self, key)).collect()
    }

    fn range<'i>(&'i self, bounds: Bounds, direction: Direction) -> Result<Box<dyn Scan + 'i>> {
        Ok(Box::new(StandinScan::new(self, bounds, direction)))
    }

    fn len(&self) -> Result<u64> {
        Ok(lock(&self.state).records.len() as u64)
    }

    fn bulk_load(&self, next: &mut NextEntry<'_>, _fill: f64) -> Result<u64> {
        let (guard, mut table) = (self.pool.pin(), lock(&self.state));
        if !table.records.is_empty() {
            return Err(Error::NotEmpty);
        }
        let outcome = self.load(&guard, &mut table, next);
        if outcome.is_err() && self.flaw != Flaw::BulkLoadKeepsAPart {
            while let Some(record) = table.remove_last(&guard)? {
                guard.free(record);
            }
            table.cut(&guard)?;
        }
        outcome
    }

    fn check(&self) -> Result<Vec<Violation>> {
        Ok(Vec::new())
    }

    fn stat(&self) -> Result<IndexStat> {
        let keys = self.len()?;
        Ok(IndexStat { keys, leaves: keys.div_ceil(4), ..IndexStat::default() })
    }

    fn destroy(&self) -> Result<()> {
        if self.flaw == Flaw::DestroyLeaks {
            return Ok(());
        }
        lock(&self.state).retire_all(&self.pool.pin());
        Ok(())
    }

    fn words(&self) -> Option<&dyn WordIndex> {
        (C::ID == WordCodec::ID && C::ID != RecordCodec::ID).then_some(self)
    }
}

impl<M: Medium, C: Codec> Standin<M, C> {
    fn load(&self, guard: &Guard<'_, M>, table: &mut Table, next: &mut NextEntry<'_>) -> Result<u64> {
        let (mut key, mut value, mut index) = (Vec::new(), Vec::new(), 0);
        while next(&mut key, &mut value)? {
            let key = self.key(&key)?;
            C::value(&value)?;
            let above = table.records.last_key_value().is_none_or(|(last, _)| *last < key);
            if !above && self.flaw != Flaw::BulkLoadTakesAnyOrder {
                return Err(Error::NotSorted { index });
            }
            if let Some(old) = self.put(guard, table, key, &value)? {
                guard.free(old);
            }
            index += 1;
        }
        Ok(index)
    }
}

impl<M: Medium, C: Codec> WordIndex for Standin<M, C> {
    fn get(&self, key: u64) -> Result<Option<u64>> {
        let value = Index::get(self, &key.to_be_bytes())?;
        Ok(value.map(|value| crate::model::word(&value)))
    }

    fn write(&self, key: u64, value: Option<u64>, condition: Condition<u64>) -> Result<bool> {
        let (key, value) = (key.to_be_bytes(), value.map(u64::to_be_bytes));
        let wanted;
        let condition = match condition {
            Condition::Always => Condition::Always,
            Condition::Absent => Condition::Absent,
            Condition::Present => Condition::Present,
            Condition::Equals(word) => {
                wanted = word.to_be_bytes();
                Condition::Equals(&wanted[..])
            }
        };
        Index::write(self, &key, value.as_ref().map(|value| &value[..]), condition)
    }

    fn get_many(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        for (key, value) in keys.iter().zip(values) {
            *value = WordIndex::get(self, *key)?;
        }
        Ok(())
    }

    fn scan(&self, from: u64, visit: &mut dyn FnMut(&[[u64; 2]]) -> bool) -> Result<()> {
        let mut scan = self.range(Bounds::of(&(from.to_be_bytes()..)), Direction::Forward)?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while scan.next_into(&mut key, &mut value)? {
            if !visit(&[[crate::model::word(&key), crate::model::word(&value)]]) {
                break;
            }
        }
        Ok(())
    }
}
