//! A pool at a place, with its trees.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use engines::index::{Codec, Index, RecordCodec, WordCodec};
use medium::{Counts, Medium, Word};
use pool::{Pool, PoolOptions, PoolStat, Result, TreeRoot};

use super::{Kind, MAIN, Place, World};

/// An engine with a codec, as the suite sees it. [`conformance!`] implements it.
pub trait Engine<C: Codec>: 'static {
    /// A new tree.
    fn create<M: Medium, const N: usize>(pool: &Pool<M>, name: &str) -> Result<Box<dyn Index>>;

    /// A tree that exists.
    fn open<M: Medium, const N: usize>(pool: &Pool<M>, root: &TreeRoot) -> Result<Box<dyn Index>>;

    /// Whether it opens. (Builds less than [`Engine::open`].)
    fn try_open<M: Medium, const N: usize>(pool: &Pool<M>, root: &TreeRoot) -> Result<()>;
}

/// An engine with every codec.
pub trait AnyCodec: Engine<WordCodec> + Engine<RecordCodec> {}

impl<E: Engine<WordCodec> + Engine<RecordCodec>> AnyCodec for E {}

/// How a pool ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// It is closed.
    Clean,
    /// It is dropped as it is: the next open finds it unclean and marks.
    Crash,
}

/// A pool with trees. Trees come first, for they are dropped first.
pub struct Site<E, P: Place, C, const N: usize, const OTHER: usize> {
    trees: BTreeMap<String, Box<dyn Index>>,
    pool: Option<Pool<P::Medium>>,
    place: P,
    types: PhantomData<fn() -> (E, C)>,
}

impl<E: AnyCodec + Engine<C>, P: Place, C: Codec, const N: usize, const OTHER: usize>
    Site<E, P, C, N, OTHER>
{
    /// A new pool with an empty tree.
    pub fn make(limit_bytes: u64) -> Result<Option<Box<dyn World>>> {
        let Some(place) = P::new(limit_bytes) else { return Ok(None) };
        let mut site = Self { trees: BTreeMap::new(), pool: None, place, types: PhantomData };
        site.open()?;
        site.add(MAIN)?;
        Ok(Some(Box::new(site)))
    }

    fn pool(&self) -> &Pool<P::Medium> {
        self.pool.as_ref().expect("an open pool")
    }

    /// Runs on all words of the closed pool.
    fn with_words<R>(&self, run: impl FnOnce(&medium::Guard<'_, P::Medium>, &[Word]) -> R) -> R {
        assert!(self.pool.is_none());
        let medium = self.place.open();
        let guard = medium::Guard::new(&medium);
        let length = medium.extent().length();
        run(&guard, guard.words(0, (length / 8) as usize).expect("in bounds"))
    }
}

impl<E: AnyCodec + Engine<C>, P: Place, C: Codec, const N: usize, const OTHER: usize> World
    for Site<E, P, C, N, OTHER>
{
    fn named(&self, name: &str) -> &dyn Index {
        &*self.trees[name]
    }

    fn add(&mut self, name: &str) -> Result<()> {
        let tree = <E as Engine<C>>::create::<_, N>(self.pool(), name)?;
        self.trees.insert(name.to_owned(), tree);
        Ok(())
    }

    fn destroy(&mut self, name: &str) -> Result<()> {
        let tree = self.trees.remove(name).expect("a tree of this world");
        for root in self.pool().trees()?.iter().filter(|root| root.name == name) {
            self.pool().remove_tree(root)?;
        }
        tree.destroy()
    }

    fn try_open_as(&self, kind: Kind, capacity: usize) -> Result<()> {
        let roots = self.pool().trees()?;
        let root = roots.iter().find(|root| root.name == MAIN).expect("the main tree");
        match (kind, capacity == N) {
            (Kind::Word, true) => <E as Engine<WordCodec>>::try_open::<_, N>(self.pool(), root),
            (Kind::Word, false) => <E as Engine<WordCodec>>::try_open::<_, OTHER>(self.pool(), root),
            (Kind::Record, true) => <E as Engine<RecordCodec>>::try_open::<_, N>(self.pool(), root),
            (Kind::Record, false) => <E as Engine<RecordCodec>>::try_open::<_, OTHER>(self.pool(), root),
        }
    }

    fn close(&mut self, how: Closing) -> Result<()> {
        // What an engine that is durable by epochs has to keep is what was done before this.
        let synced = self.trees.values().try_for_each(|tree| tree.sync());
        self.trees.clear();
        let pool = self.pool.take().expect("an open pool");
        if how == Closing::Clean {
            return pool.close().and(synced);
        }
        drop(pool);
        self.place.crash();
        synced
    }

    fn open(&mut self) -> Result<()> {
        let options = PoolOptions { close_on_drop: false, ..PoolOptions::default() };
        let pool = Pool::open(self.place.open(), options)?;
        let mut trees = BTreeMap::new();
        for root in pool.trees()? {
            trees.insert(root.name.clone(), <E as Engine<C>>::open::<_, N>(&pool, &root)?);
        }
        if pool.needs_mark() {
            pool.finish_marking();
        }
        (self.pool, self.trees) = (Some(pool), trees);
        Ok(())
    }

    fn reclaim(&self) {
        self.pool().reclaim();
    }

    fn stat(&self) -> PoolStat {
        self.pool().stat()
    }

    fn image(&self) -> Vec<u64> {
        self.with_words(|guard, words| words.iter().map(|word| word.load(guard)).collect())
    }

    fn set_image(&mut self, image: &[u64]) {
        // Closing cleanly may have shortened the file.
        self.place.open().grow(8 * image.len() as u64).expect("the length that it had");
        self.with_words(|guard, words| {
            for (word, value) in words.iter().zip(image) {
                word.store(guard, *value);
            }
            guard.flush_words(words);
            guard.drain().expect("a medium that works");
        });
    }

    fn counts(&self) -> Option<Counts> {
        P::counts(self.pool().medium())
    }
}
