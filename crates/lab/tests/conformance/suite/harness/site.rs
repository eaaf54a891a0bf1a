//! A pool at a place, with its trees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use engines::Result;
use engines::engine::{Factory, Host, Opening, Settings};
use engines::index::{EpochLength, Index};
use medium::{Counts, Medium, Word};
use pool::{Evacuate, Evacuation, Pool, PoolOptions, PoolStat, TreeRoot};

use super::{Cell, Kind, MAIN, Place, World};

/// How a pool ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// It is closed.
    Clean,
    /// It is dropped as it is: the next open finds it unclean and marks.
    Crash,
}

/// A pool with trees. The trees are the first field, so that they are dropped first.
pub struct Site<P: Place> {
    trees: BTreeMap<String, Arc<dyn Index>>,
    pool: Option<Pool<P::Medium>>,
    place: P,
    cell: Cell,
}

impl<P: Place> Site<P> {
    /// A new pool with an empty tree.
    pub fn make(cell: &Cell, limit_bytes: u64) -> Result<Box<dyn World>> {
        let mut site = Self {
            trees: BTreeMap::new(),
            pool: None,
            place: P::new(limit_bytes),
            cell: *cell,
        };
        site.open()?;
        site.add(MAIN)?;
        Ok(Box::new(site))
    }

    fn factory(&self) -> &'static Factory<P::Medium> {
        P::Medium::factory(self.cell.engine.media())
    }

    /// Epochs end often, and every open is one after a crash.
    fn opening(settings: Settings) -> Opening {
        Opening {
            threads: 2,
            epoch: EpochLength::Every(Duration::from_millis(1)),
            close_cleanly: false,
            mark_later: false,
            settings,
        }
    }

    fn open_as(
        &self,
        pool: &Pool<P::Medium>,
        root: &TreeRoot,
        kind: Kind,
        settings: Settings,
    ) -> Result<Arc<dyn Index>> {
        let opened = (self.factory().open)(pool, root, kind.codec(), &Self::opening(settings))?;
        Ok(opened.index)
    }

    fn pool(&self) -> &Pool<P::Medium> {
        self.pool.as_ref().expect("an open pool")
    }

    /// Runs on all words of the closed pool.
    fn with_words<R>(
        &self,
        run: impl FnOnce(&medium::MediumGuard<'_, P::Medium>, &[Word]) -> R,
    ) -> R {
        assert!(self.pool.is_none());
        let medium = self.place.open();
        let guard = medium::MediumGuard::new(&medium);
        let length = medium.extent().length();
        run(
            &guard,
            guard.words(0, (length / 8) as usize).expect("in bounds"),
        )
    }
}

impl<P: Place> World for Site<P> {
    fn named(&self, name: &str) -> &dyn Index {
        &*self.trees[name]
    }

    fn add(&mut self, name: &str) -> Result<()> {
        let codec = self.cell.kind.codec();
        let opening = Self::opening(self.cell.settings);
        let tree = (self.factory().create)(self.pool(), name.into(), codec, &opening)?.index;
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

    fn try_open_as(&self, kind: Kind, settings: Settings) -> Result<()> {
        let roots = self.pool().trees()?;
        let root = roots
            .iter()
            .find(|root| root.name == MAIN)
            .expect("the main tree");
        self.open_as(self.pool(), root, kind, settings).map(drop)
    }

    fn close(&mut self, how: Closing) -> Result<()> {
        // An engine with epochs must keep the operations before this.
        let synced = self.trees.values().try_for_each(|tree| tree.sync());
        self.trees.clear();
        let pool = self.pool.take().expect("an open pool");
        if how == Closing::Clean {
            pool.close()?;
            return synced;
        }
        drop(pool);
        self.place.crash();
        synced
    }

    fn open(&mut self) -> Result<()> {
        let options = PoolOptions {
            close_on_drop: false,
            ..PoolOptions::default()
        };
        let pool = Pool::open(self.place.open(), options)?;
        let mut trees = BTreeMap::new();
        for root in pool.trees()? {
            trees.insert(
                root.name.clone(),
                self.open_as(&pool, &root, self.cell.kind, self.cell.settings)?,
            );
        }
        if pool.needs_mark() {
            pool.finish_marking();
        }
        self.pool = Some(pool);
        self.trees = trees;
        Ok(())
    }

    fn reclaim(&self) {
        self.pool().reclaim();
    }

    fn evacuate(&self, choice: Evacuate, excluded: &BTreeSet<u64>) -> Evacuation {
        self.pool().evacuate(choice, excluded)
    }

    fn stat(&self) -> PoolStat {
        self.pool().stat()
    }

    fn image(&self) -> Vec<u64> {
        self.with_words(|guard, words| words.iter().map(|word| word.load(guard)).collect())
    }

    fn set_image(&mut self, image: &[u64]) {
        // Closing cleanly may have shortened the file.
        self.place
            .open()
            .grow(8 * image.len() as u64)
            .expect("the length that it had");
        self.with_words(|guard, words| {
            // Most words have the right value already: a test of damage changes one after the
            // other.
            for (word, value) in words
                .iter()
                .zip(image)
                .filter(|(word, value)| word.load(guard) != **value)
            {
                word.store(guard, *value);
                guard.flush_words(std::slice::from_ref(word));
            }
            guard.drain().expect("a medium that works");
        });
    }

    fn counts(&self) -> Option<Counts> {
        P::counts(self.pool().medium())
    }
}
