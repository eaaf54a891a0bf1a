//! How trees of an engine are made and opened, on each medium.

use std::sync::Arc;

#[cfg(feature = "sim")]
use medium::Sim;
use medium::{Dax, File, Instrumented, Medium};
use pool::{NewTree, Pool, TreeRoot};

use super::{CodecKind, Settings};
use crate::Result;
use crate::index::{EpochLength, Index, LeftOut, WordIndex};

/// An open tree, whatever its engine, codec and medium. It does not keep single writes and batches
/// apart; [`StripedTree`](crate::batch::StripedTree) does.
#[derive(Clone)]
pub struct AnyTree {
    /// The tree.
    pub index: Arc<dyn Index>,
    /// The same tree as a tree of words, if it is one. Callers reach the engine through it with a
    /// single virtual call.
    pub words: Option<Arc<dyn WordIndex>>,
}

impl AnyTree {
    /// A tree of records.
    pub fn records(tree: impl Index) -> Self {
        Self {
            index: Arc::new(tree),
            words: None,
        }
    }

    /// A tree of words.
    pub fn words<T: Index + WordIndex>(tree: T) -> Self {
        let tree = Arc::new(tree);
        Self {
            index: Arc::clone(&tree) as _,
            words: Some(tree),
        }
    }
}

/// How trees are opened.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Threads that recover a tree.
    pub threads: usize,
    /// When epochs end.
    pub epoch: EpochLength,
    /// Whether dropping a tree ends its epoch. If not, the tree is left as a crash leaves it.
    pub close_cleanly: bool,
    /// Whether an open after a crash may leave the mark to [`Index::mark`].
    pub mark_later: bool,
    /// The engine's own settings.
    pub settings: Settings,
}

impl Default for Opening {
    fn default() -> Self {
        Self {
            threads: crate::cores(),
            epoch: EpochLength::default(),
            close_cleanly: true,
            mark_later: false,
            settings: Settings::NONE,
        }
    }
}

/// Takes the entries of a damaged tree, until it returns `false`.
pub type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> bool + 'v;

/// The damage that a salvage found; `None` if the engine cannot read a tree without opening it.
pub type Salvaged = Result<Option<Vec<LeftOut>>>;

/// The functions that a type of trees gives to its engine.
pub trait Build<M: Medium>: Index + Sized {
    /// Makes an empty tree and enters it in the pool's root table. Durable when this returns.
    fn create(pool: &Pool<M>, tree: NewTree<'_>, opening: &Opening) -> Result<Self>;

    /// Opens a tree: recovers it after a crash.
    fn open(pool: &Pool<M>, root: &TreeRoot, opening: &Opening) -> Result<Self>;

    /// Reads all readable entries of a tree, without opening it, in ascending order of keys.
    /// `None`, and nothing is read, for engines that can read only an open tree.
    fn salvage_at(pool: &Pool<M>, root: &TreeRoot, visit: &mut Visit<'_>) -> Salvaged {
        let _ = (pool, root, visit);
        Ok(None)
    }
}

/// The functions of one engine on one medium.
pub struct Factory<M: Medium> {
    /// Makes an empty tree: see [`Build::create`].
    pub create: fn(&Pool<M>, NewTree<'_>, CodecKind, &Opening) -> Result<AnyTree>,
    /// Opens a tree: see [`Build::open`].
    pub open: fn(&Pool<M>, &TreeRoot, CodecKind, &Opening) -> Result<AnyTree>,
    /// Reads all readable entries of a damaged tree: see [`Build::salvage_at`].
    pub salvage: fn(&Pool<M>, &TreeRoot, CodecKind, &mut Visit<'_>) -> Salvaged,
}

impl<M: Medium> Factory<M> {
    /// The functions of an engine with trees of records `R` and trees of words `W`.
    pub const fn of<R: Build<M>, W: Build<M> + WordIndex>() -> Self {
        Self {
            create: |pool, tree, codec, opening| match codec {
                CodecKind::Record => R::create(pool, tree, opening).map(AnyTree::records),
                CodecKind::Word => W::create(pool, tree, opening).map(AnyTree::words),
            },
            open: |pool, root, codec, opening| match codec {
                CodecKind::Record => R::open(pool, root, opening).map(AnyTree::records),
                CodecKind::Word => W::open(pool, root, opening).map(AnyTree::words),
            },
            salvage: |pool, root, codec, visit| match codec {
                CodecKind::Record => R::salvage_at(pool, root, visit),
                CodecKind::Word => W::salvage_at(pool, root, visit),
            },
        }
    }
}

/// The functions of one engine, on each medium that engines are compiled for.
pub struct Media {
    /// Mapped persistent memory, or plain memory.
    pub dax: Factory<Dax>,
    /// An ordinary file with a log.
    pub file: Factory<File>,
    /// Any of the media above, instrumented. Without the feature `instrumented` no tree is made there.
    pub instrumented: Factory<Instrumented>,
    /// The crash explorer's.
    #[cfg(feature = "sim")]
    pub sim: Factory<Sim>,
}

/// A medium that engines are compiled for.
pub trait Host: Medium {
    /// An engine's functions on this medium.
    fn factory(media: &Media) -> &Factory<Self>
    where
        Self: Sized;

    /// The file medium, if this is one: it has figures of its log, and can be copied while it is in
    /// use.
    fn file(&self) -> Option<&File> {
        None
    }

    /// The pool's file, if the medium has one and knows it.
    fn pool_file(&self) -> Option<&std::fs::File> {
        None
    }
}

impl Host for File {
    fn factory(media: &Media) -> &Factory<Self> {
        &media.file
    }

    fn file(&self) -> Option<&File> {
        Some(self)
    }

    fn pool_file(&self) -> Option<&std::fs::File> {
        Some(Self::pool_file(self))
    }
}

impl Host for Dax {
    fn factory(media: &Media) -> &Factory<Self> {
        &media.dax
    }

    fn pool_file(&self) -> Option<&std::fs::File> {
        Self::pool_file(self)
    }
}

macro_rules! hosts {
    ($($(#[$attribute:meta])* $medium:ident: $field:ident;)*) => { $(
        $(#[$attribute])*
        impl Host for $medium {
            fn factory(media: &Media) -> &Factory<Self> {
                &media.$field
            }
        }
    )* };
}

hosts! {
    Instrumented: instrumented;
    #[cfg(feature = "sim")]
    Sim: sim;
}

/// The [`Media`] of an engine whose trees are `$tree<medium, codec>`, compiled where this is
/// written. In unit tests an engine is compiled only for the media that the tests name.
#[macro_export]
macro_rules! media_of {
    ($tree:ident) => {{
        #[cfg(test)]
        const MEDIA: $crate::engine::Media = $crate::engine::Media::ABSENT;
        #[cfg(not(test))]
        const MEDIA: $crate::engine::Media = $crate::all_media_of!($tree);
        MEDIA
    }};
}

#[doc(hidden)]
impl Media {
    /// Media on which no tree is made.
    pub const ABSENT: Self = Self {
        dax: Factory::ABSENT,
        file: Factory::ABSENT,
        instrumented: Factory::ABSENT,
        #[cfg(feature = "sim")]
        sim: Factory::ABSENT,
    };
}

impl<M: Medium> Factory<M> {
    #[doc(hidden)]
    pub const ABSENT: Self = Self {
        create: |_, _, _, _| unreachable!("the engine is not compiled for this medium"),
        open: |_, _, _, _| unreachable!("the engine is not compiled for this medium"),
        salvage: |_, _, _, _| unreachable!("the engine is not compiled for this medium"),
    };
}

/// Does the same as [`media_of`], but compiles all media in tests, too.
#[cfg(not(feature = "sim"))]
#[macro_export]
macro_rules! all_media_of {
    ($tree:ident) => {
        $crate::engine::Media {
            dax: $crate::factory_of!($tree, Dax),
            file: $crate::factory_of!($tree, File),
            instrumented: $crate::instrumented_factory_of!($tree),
        }
    };
}

/// Does the same as [`media_of`], but compiles all media in tests, too.
#[cfg(feature = "sim")]
#[macro_export]
macro_rules! all_media_of {
    ($tree:ident) => {
        $crate::engine::Media {
            dax: $crate::factory_of!($tree, Dax),
            file: $crate::factory_of!($tree, File),
            instrumented: $crate::instrumented_factory_of!($tree),
            sim: $crate::factory_of!($tree, Sim),
        }
    };
}

/// The [`Factory`] of an engine on one medium.
#[doc(hidden)]
#[macro_export]
macro_rules! factory_of {
    ($tree:ident, $medium:ident) => {
        $crate::engine::Factory::of::<
            $tree<$crate::medium::$medium, $crate::index::RecordCodec>,
            $tree<$crate::medium::$medium, $crate::index::WordCodec>,
        >()
    };
}

/// The [`Factory`] of an engine on the instrumented medium.
#[doc(hidden)]
#[cfg(feature = "instrumented")]
#[macro_export]
macro_rules! instrumented_factory_of {
    ($tree:ident) => {
        $crate::factory_of!($tree, Instrumented)
    };
}

/// The [`Factory`] of an engine on the instrumented medium, which this build has not.
#[doc(hidden)]
#[cfg(not(feature = "instrumented"))]
#[macro_export]
macro_rules! instrumented_factory_of {
    ($tree:ident) => {
        $crate::engine::Factory::ABSENT
    };
}

/// A module `instrumented` with functions that make and open trees `$tree<Instrumented, codec>`,
/// without stripes, from options of their own type. The trees are compiled where this is written:
/// integration tests link them, and do not compile them again. A build for unit tests has no such
/// module, as it compiles only the media that the tests name.
macro_rules! instrumented_trees {
    ($tree:ident, $options:ident) => {
        /// Trees on an instrumented medium, for integration tests.
        #[doc(hidden)]
        #[cfg(all(feature = "instrumented", not(test)))]
        pub mod instrumented {
            use medium::Instrumented;
            use pool::{Pool, TreeRoot};

            use super::{$options, $tree};
            use $crate::Result;
            use $crate::engine::CodecKind;
            use $crate::index::{Index, RecordCodec, WordCodec};

            type Records = $tree<Instrumented, RecordCodec>;
            type Words = $tree<Instrumented, WordCodec>;

            /// Makes an empty tree and enters it in the pool's root table.
            pub fn create(
                pool: &Pool<Instrumented>,
                name: &str,
                codec: CodecKind,
                options: $options,
            ) -> Result<Box<dyn Index>> {
                Ok(match codec {
                    CodecKind::Record => Box::new(Records::create(pool, name, options)?),
                    CodecKind::Word => Box::new(Words::create(pool, name, options)?),
                })
            }

            /// Opens a tree.
            pub fn open(
                pool: &Pool<Instrumented>,
                root: &TreeRoot,
                codec: CodecKind,
                options: $options,
            ) -> Result<Box<dyn Index>> {
                Ok(match codec {
                    CodecKind::Record => Box::new(Records::open(pool, root, options)?),
                    CodecKind::Word => Box::new(Words::open(pool, root, options)?),
                })
            }
        }
    };
}

pub(crate) use instrumented_trees;
