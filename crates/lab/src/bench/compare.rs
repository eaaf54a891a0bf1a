//! The yardstick: the standard library's `BTreeMap<u64, u64>` with the same keys, on one thread, in
//! the same process.

use std::collections::BTreeMap;
use std::time::Instant;

use super::args::{Args, Distribution, Workload};
use super::keys::Keys;
use super::report::Report;
use super::workload::{Script, WorkloadStep};

/// The map, if it is needed.
pub(crate) struct Baseline {
    map: BTreeMap<u64, u64>,
}

impl Baseline {
    pub(crate) fn load(args: &Args, keys: &Keys, count: u64) -> Self {
        let count = if args.workload == Workload::Load {
            0
        } else {
            count
        };
        let mut map = BTreeMap::new();
        // Keys are inserted one by one, as into the tree: `collect` would sort first.
        for key in (0..count).map(|index| keys.key(index)) {
            map.insert(key, key);
        }
        Self { map }
    }

    /// Runs the same operations and finds, and undoes them.
    pub(crate) fn measure(&mut self, args: &Args, script: &Script, report: &mut Report) {
        let steps: Vec<WorkloadStep> = script.steps().collect();
        let ns = match &script.finds {
            Some(finds) => self.run_finds(finds),
            None => self.run(&steps),
        };
        report.baseline_ns.push(ns);
        let finds = Script::finds(args, &args.keys_drawn(), 1000 + args.runs)
            .finds
            .unwrap_or_default();
        if args.workload.only_adds() {
            report.baseline_find_ns.push(self.run_finds(&finds));
        }
        for step in &steps {
            match step {
                WorkloadStep::Insert(key) => {
                    self.map.remove(key);
                }
                WorkloadStep::Remove(key) => {
                    self.map.insert(*key, *key);
                }
                WorkloadStep::Put(key) if args.distribution() == Distribution::Monotonic => {
                    self.map.remove(key);
                }
                _ => {}
            }
        }
        if !args.workload.only_adds() {
            report.baseline_find_ns.push(self.run_finds(&finds));
        }
    }

    /// Nanoseconds of one find.
    fn run_finds(&self, finds: &[Vec<u64>]) -> f64 {
        let mut sum = 0_u64;
        let start = Instant::now();
        for key in finds.iter().flatten() {
            sum = sum.wrapping_add(self.map.get(key).copied().unwrap_or_default());
        }
        let ns =
            start.elapsed().as_nanos() as f64 / finds.iter().map(Vec::len).sum::<usize>() as f64;
        std::hint::black_box(sum);
        ns
    }

    /// Nanoseconds of one operation.
    fn run(&mut self, steps: &[WorkloadStep]) -> f64 {
        let map = &mut self.map;
        let mut sum = 0_u64;
        let start = Instant::now();
        for step in steps {
            sum = sum.wrapping_add(match *step {
                WorkloadStep::Find(key) => map.get(&key).copied().unwrap_or_default(),
                WorkloadStep::Insert(key) => map.insert(key, key).unwrap_or_default(),
                WorkloadStep::Update(key) => map
                    .get_mut(&key)
                    .map_or(0, |value| std::mem::replace(value, key)),
                WorkloadStep::Remove(key) => map.remove(&key).unwrap_or_default(),
                WorkloadStep::Put(key) => map.insert(key, key).unwrap_or_default(),
                WorkloadStep::Scan(key, entries) => map
                    .range(key..)
                    .take(entries as usize)
                    .fold(0, |sum, (key, value)| sum ^ key ^ value),
                WorkloadStep::ReadModifyWrite(key) => map.get_mut(&key).map_or(0, |value| {
                    *value = value.wrapping_add(1);
                    *value
                }),
            });
        }
        let ns = start.elapsed().as_nanos() as f64 / steps.len() as f64;
        std::hint::black_box(sum);
        ns
    }
}
