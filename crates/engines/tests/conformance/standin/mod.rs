//! A stand-in for an engine: a table of records in the pool and a `BTreeMap` over it, behind one lock. Wrong in one way
//! if asked.
//!
//! The table is a chain of blocks of words, each zero or the offset of a record, the last word of a block the next
//! block; the tree's second root word leads to the first. So a stand-in fills a pool, leaks, marks and meets damage as
//! an engine does.

mod flaw;
mod index;
mod scan;
mod table;

use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engines::index::{Codec, Index};
use medium::Medium;
use pool::{Error, Pool, Result, TreeRoot};

use crate::harness::Engine;

pub use flaw::Flaw;
use table::{Held, Table};

/// The number of the stand-in as an engine.
const ID: u16 = 999;

/// The stand-in as an engine of the suite; `FLAW` is a [`Flaw`] by number.
pub enum StandinEngine<const FLAW: usize> {}

/// A tree that is none.
struct Standin<M: Medium, C> {
    pool: Pool<M>,
    state: Mutex<Table>,
    flaw: Flaw,
    codec: PhantomData<fn() -> C>,
}

fn lock(state: &Mutex<Table>) -> MutexGuard<'_, Table> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: Medium, C: Codec> Standin<M, C> {
    fn open(pool: &Pool<M>, first_block: u64, flaw: Flaw) -> Result<Self> {
        let guard = pool.pin();
        let loaded = Table::load(&guard, first_block);
        assert!(loaded.is_ok() || flaw != Flaw::DamagePanics, "damage");
        let mut table = loaded?;
        let loses = if pool.needs_mark() { Flaw::CrashLosesOne } else { Flaw::CleanCloseLosesOne };
        if flaw == loses
            && let Some(record) = table.remove_last(&guard)?
            && !pool.needs_mark()
        {
            guard.free(record);
        }
        if pool.needs_mark() {
            table.mark(pool)?;
        }
        drop(guard);
        Ok(Self { pool: pool.clone(), state: Mutex::new(table), flaw, codec: PhantomData })
    }
}

impl<C: Codec, const FLAW: usize> Engine<C> for StandinEngine<FLAW> {
    fn create<M: Medium, const N: usize>(pool: &Pool<M>, name: &str) -> Result<Box<dyn Index>> {
        let flaw = Flaw::ALL[FLAW];
        let mut words = [0; pool::ROOT_WORDS];
        words[0] = N as u64;
        words[1] = match pool.trees()?.first() {
            Some(root) if flaw == Flaw::TreesMix => root.words[1],
            _ => table::create_block(&pool.pin())?,
        };
        pool.create_tree(name, (ID, C::ID), &words)?;
        Ok(Box::new(Standin::<M, C>::open(pool, words[1], flaw)?))
    }

    fn open<M: Medium, const N: usize>(pool: &Pool<M>, root: &TreeRoot) -> Result<Box<dyn Index>> {
        let flaw = Flaw::ALL[FLAW];
        let (is, wanted) = ((root.engine, root.codec, root.words[0]), (ID, C::ID, N as u64));
        if is != wanted && flaw != Flaw::OpensAsAnything {
            let [found, wanted] = [is, wanted].map(|what| format!("{what:?}"));
            return Err(Error::TreeMismatch { name: root.name.clone(), found, wanted });
        }
        Ok(Box::new(Standin::<M, C>::open(pool, root.words[1], flaw)?))
    }

    fn try_open<M: Medium, const N: usize>(pool: &Pool<M>, root: &TreeRoot) -> Result<()> {
        <Self as Engine<C>>::open::<M, N>(pool, root).map(drop)
    }
}
