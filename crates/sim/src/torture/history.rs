//! The operations of a round, from the records of its writer.

use std::collections::HashMap;

use super::contents::TreeKey;
use super::{
    ANNOUNCEMENT_BYTES, Announcement, OperationKind, Tally, TortureWorkload, ValueVersion,
};

/// The positions of records in the pipe order operations in time: a record says how one operation
/// ended, and which one begins. This position lies before all records. The content at the start of
/// the round has it.
pub(super) const BEFORE: u64 = 0;
/// An operation that was never acknowledged.
pub(super) const NEVER: u64 = u64::MAX;

/// An operation on a key, according to the records.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordedOperation {
    pub(super) kind: OperationKind,
    pub(super) version: ValueVersion,
    pub(super) expected: ValueVersion,
    /// The position of its announcement.
    pub(super) begin: u64,
    /// The position of its acknowledgement, or of that of a read that saw it; [`NEVER`] if there
    /// was neither.
    pub(super) end: u64,
    /// Whether it changed something; `None` if that is not known.
    pub(super) effective: Option<bool>,
    /// The version that a read returned.
    pub(super) seen: ValueVersion,
    /// Whether a wait or a read has shown that it is durable.
    pub(super) is_durable: bool,
}

impl RecordedOperation {
    fn announced(record: &Announcement, position: u64) -> Self {
        Self {
            kind: record.kind,
            version: record.version,
            expected: record.expected,
            begin: position,
            end: NEVER,
            effective: None,
            seen: 0,
            is_durable: false,
        }
    }

    /// Its answer, as text.
    pub(super) fn answer(&self) -> String {
        match self.effective {
            Some(answer) => answer.to_string(),
            None => "pending".to_owned(),
        }
    }
}

/// Where an operation stands in a history.
#[derive(Clone, Copy)]
struct OperationIndex {
    at: TreeKey,
    /// Its index in the operations on that key.
    index: usize,
}

/// The operations of one thread so far.
#[derive(Default)]
struct ThreadSoFar {
    /// The operation that is under way.
    current: Option<OperationIndex>,
    /// The operations that were acknowledged since its last sync.
    since_sync: Vec<OperationIndex>,
}

/// The operations of a round, from its records.
#[derive(Default)]
pub struct RoundHistory {
    pub(super) operations: HashMap<TreeKey, Vec<RecordedOperation>>,
    announced: u64,
    acknowledged: u64,
    /// The position at which the last acknowledged sync was announced.
    pub(super) synced_until: Option<u64>,
}

impl RoundHistory {
    /// How many operations were announced.
    pub fn announced(&self) -> u64 {
        self.announced
    }

    /// Adds the numbers of operations.
    pub fn add_to(&self, tally: &mut Tally) {
        tally.operations += self.announced;
        tally.acknowledged += self.acknowledged;
    }

    /// Reads the records of a round. The last one may be cut off, and zeros may follow: its
    /// operation had not begun.
    ///
    /// # Errors
    /// If no writer of this workload can have written these bytes.
    pub fn read(bytes: &[u8], workload: &TortureWorkload) -> Result<Self, String> {
        let mut history = Self::default();
        let mut threads: HashMap<u8, ThreadSoFar> = HashMap::new();
        let records = bytes.as_chunks::<ANNOUNCEMENT_BYTES>().0;
        for (number, record_bytes) in records.iter().enumerate() {
            let Some(record) = Announcement::decode_of(workload, record_bytes) else {
                let rest = &bytes[(number + 1) * ANNOUNCEMENT_BYTES..];
                if rest.iter().all(|byte| *byte == 0) {
                    break;
                }
                return Err(format!("record {number} of the writer makes no sense"));
            };
            let position = number as u64 + 1;
            let thread = threads.entry(record.thread).or_default();
            match (thread.current, record.answer) {
                (Some(ended), Some(answer)) => {
                    history.acknowledge(thread, ended, position, answer, record.seen);
                }
                (None, None) => {}
                (Some(_), None) | (None, Some(_)) => {
                    return Err(format!("record {number} of the writer does not follow"));
                }
            }
            thread.current = Some(history.announce(&record, position));
        }
        Ok(history)
    }

    /// Adds the operation that a record announces.
    fn announce(&mut self, record: &Announcement, position: u64) -> OperationIndex {
        self.announced += 1;
        let at = TreeKey {
            tree: record.tree,
            key: record.key,
        };
        let operations = self.operations.entry(at).or_default();
        operations.push(RecordedOperation::announced(record, position));
        OperationIndex {
            at,
            index: operations.len() - 1,
        }
    }

    /// Notes the answer of an operation. If it is a sync, the thread's operations before it are
    /// durable.
    fn acknowledge(
        &mut self,
        thread: &mut ThreadSoFar,
        ended: OperationIndex,
        position: u64,
        answer: bool,
        seen: ValueVersion,
    ) {
        self.acknowledged += 1;
        let Some(operation) = self.operation(ended) else {
            return;
        };
        operation.end = position;
        operation.effective = Some(answer);
        operation.seen = seen;
        if operation.kind != OperationKind::Sync {
            thread.since_sync.push(ended);
            return;
        }
        let begin = operation.begin;
        self.synced_until = self.synced_until.max(Some(begin));
        for synced in thread.since_sync.drain(..) {
            if let Some(operation) = self.operation(synced) {
                operation.is_durable = true;
            }
        }
    }

    fn operation(&mut self, of: OperationIndex) -> Option<&mut RecordedOperation> {
        self.operations.get_mut(&of.at)?.get_mut(of.index)
    }

    /// Takes the operations on a key out.
    pub(super) fn take(&mut self, tree: u8, key: u32) -> Vec<RecordedOperation> {
        let at = TreeKey { tree, key };
        self.operations.remove(&at).unwrap_or_default()
    }
}
