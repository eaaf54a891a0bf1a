//! The new values that a transaction of the comparison computes from those that it reads.

use crate::entries::{AccountState, EntryShape, mix};

/// Accounts that a transaction reads.
pub(crate) const READS: usize = 3;
/// Accounts that a transaction updates: the first ones of those that it reads.
pub(crate) const WRITES: usize = 2;
/// The keys of the accounts of a transaction. The transaction writes to the first ones of them.
pub(crate) type TransferKeys = [Vec<u8>; READS];

/// How a transaction computes the new values of its accounts from those that it has read.
pub(crate) struct AccountTransfer {
    shape: EntryShape,
    pub(crate) accounts: [u64; READS],
    states: [AccountState; READS],
    new_values: [Vec<u8>; WRITES],
    /// An account whose value is missing or that of no state.
    pub(crate) damaged: Option<u64>,
    expected: Vec<u8>,
}

impl AccountTransfer {
    pub(crate) fn new(shape: EntryShape) -> Self {
        Self {
            shape,
            accounts: [0; READS],
            states: [AccountState::default(); READS],
            new_values: Default::default(),
            damaged: None,
            expected: Vec::new(),
        }
    }

    /// Notes the value that the transaction has read of the key with this number; `None` if it is
    /// absent. All are noted before the new values are asked for, and again at each attempt.
    pub(crate) fn see(&mut self, number: usize, value: Option<&[u8]>) {
        let account = self.accounts[number];
        let state =
            value.and_then(|value| self.shape.account_state(account, value, &mut self.expected));
        match state {
            Some(state) => self.states[number] = state,
            None => self.damaged = Some(account),
        }
    }

    /// The new values of the accounts that are written, in the order of their keys. They depend on
    /// all values that were read.
    pub(crate) fn new_values(&mut self) -> &[Vec<u8>; WRITES] {
        let mut digest = 0;
        for state in &self.states {
            digest = mix(digest ^ state.updates);
            digest = mix(digest ^ state.digest);
        }
        for (number, value) in self.new_values.iter_mut().enumerate() {
            let state = AccountState {
                updates: self.states[number].updates + 1,
                digest,
            };
            self.shape
                .account_value(self.accounts[number], state, value);
        }
        &self.new_values
    }
}
