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

use engines::index::Codec;
use medium::Medium;
use pool::{Error, Pool, Result, TreeRoot};

use engines::media_of;
use engines::registry::{
    Build, Contract, Engine, Entry, Nodes, Opening, Persists, Setting, Settings, Values,
};

pub use flaw::Flaw;
use table::{Held, Table};

/// The stand-in as an engine.
pub const STANDIN: Engine = Engine::new(&ENTRY);

// Positions of settings.
const ENTRIES: usize = 0;
const FLAW: usize = 1;

static ENTRY: Entry = Entry {
    id: 0xffff,
    name: "stand-in",
    paper: "none",
    contract: Contract::Immediate(Persists { insert: 2, update: 2, remove: 1 }),
    notices_damage: false,
    marks_later: false,
    stores_lines: false,
    is_trie: false,
    settings: &[
        Setting {
            name: "entries",
            help: "what stands in for the size of a node",
            values: Values::Number(4, 56),
            is_fixed: true,
            is_hidden: true,
        },
        Setting {
            name: "flaw",
            help: "what is wrong, by number",
            values: Values::Number(0, Flaw::ALL.len() as u64 - 1),
            is_fixed: false,
            is_hidden: true,
        },
    ],
    full: Nodes { leaf_entries: 56, children: 1, settings: &[("entries", 56)] },
    small: Nodes { leaf_entries: 4, children: 1, settings: &[("entries", 4)] },
    explored: &[],
    settings_of: |root| Ok(Settings::NONE.with(ENTRIES, root.words[0])),
    media: media_of!(Standin),
};

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

/// What the settings say: entries of a node, and what is wrong.
fn parts(settings: &Settings) -> (u64, Flaw) {
    (settings.get(ENTRIES).unwrap_or(4), Flaw::ALL[settings.get(FLAW).unwrap_or(0) as usize])
}

impl<M: Medium, C: Codec> Build<M> for Standin<M, C> {
    fn create(pool: &Pool<M>, name: &str, opening: &Opening) -> Result<Self> {
        let (entries, flaw) = parts(&opening.settings);
        let mut words = [0; pool::ROOT_WORDS];
        words[0] = entries;
        words[1] = match pool.trees()?.first() {
            Some(root) if flaw == Flaw::TreesMix => root.words[1],
            _ => table::create_block(&pool.pin())?,
        };
        pool.create_tree(name, (ENTRY.id, C::ID), &words)?;
        Self::open(pool, words[1], flaw)
    }

    fn open(pool: &Pool<M>, root: &TreeRoot, opening: &Opening) -> Result<Self> {
        let (entries, flaw) = parts(&opening.settings);
        let (is, wanted) = ((root.engine, root.codec, root.words[0]), (ENTRY.id, C::ID, entries));
        if is != wanted && flaw != Flaw::OpensAsAnything {
            let [found, wanted] = [is, wanted].map(|what| format!("{what:?}"));
            return Err(Error::TreeMismatch { name: root.name.clone(), found, wanted });
        }
        Self::open(pool, root.words[1], flaw)
    }
}
