//! The engines under exploration, each behind one type: what explores them is compiled once.

use std::marker::PhantomData;
use std::sync::Arc;

use engines::bztree::{BzTree, BzTreeOptions, NodeSizes};
use engines::index::{Codec, Index, MaybeWords, RecordCodec, WordCodec};
use engines::masstree::{EpochLength, MassTree, MassTreeOptions, Mode};
use engines::rntree::{RnTree, RnTreeOptions};
use medium::sim::Sim;
use pool::{Pool, Result, TreeRoot};

use super::KeyShape;
use crate::subject::Durability;

/// An engine under exploration: makes and opens trees.
pub trait Engine: Send + Sync {
    /// Its name, for reports.
    fn name(&self) -> &'static str;

    /// The name of its codec, for reports.
    fn codec(&self) -> &'static str;

    /// How its keys and values are made of numbers.
    fn keys(&self) -> KeyShape {
        if self.codec() == WordCodec::NAME { KeyShape::Words } else { KeyShape::Records }
    }

    /// Makes a tree.
    fn create(&self, pool: &Pool<Sim>, name: &str) -> Result<Box<dyn EngineTree>>;

    /// Opens a tree: recovers it after a crash. On the calling thread.
    fn open(&self, pool: &Pool<Sim>, root: &TreeRoot) -> Result<Box<dyn EngineTree>>;

    /// Entries of a leaf: so many inserts side by side force a split.
    fn leaf_entries(&self) -> usize;

    /// The most children of an inner node: so many leaves and one more force it to split.
    fn children_max(&self) -> usize {
        32
    }

    /// Whether an open after a crash leaves the mark to [`IndexOperation::Mark`](super::IndexOperation::Mark).
    fn marks_later(&self) -> bool {
        false
    }

    /// The contract of a write. [`Durability::WithEpoch`] asks for [`Index::sync`].
    fn durability(&self) -> Durability {
        Durability::OnReturn
    }
}

/// A tree under exploration.
pub trait EngineTree: Index {
    /// How many allocations a tree with so many keys has; `None` if that is not known.
    fn allocations(&self, keys: u64) -> Result<Option<u64>>;
}

/// An engine, shared by those who explore it.
pub type AnyEngine = Arc<dyn Engine>;

/// The engines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineName {
    /// `rntree`.
    RnTree,
    /// `bztree`.
    BzTree,
    /// `masstree`.
    MassTree,
}

/// How entries are coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodecName {
    /// Numbers of 64 bits.
    Word,
    /// Byte strings.
    Record,
    /// Byte strings as [`KeyShape::Layers`] has them.
    Layers,
}

/// How many entries a leaf has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// Four, so that splits and merges are near.
    Small,
    /// As many as in use.
    Full,
}

/// For types that are known here, so that the engine is compiled here, and not wherever it is explored.
macro_rules! shared {
    ($engine:ty) => {
        impl $engine {
            /// The engine, shared by those who explore it.
            pub fn shared(self) -> AnyEngine {
                Arc::new(self)
            }
        }
    };
}

/// Engines, each by a line: its name, its type, the entries of a leaf in small scopes and at full size.
macro_rules! engines {
    ($($name:ident: $engine:ident, $small:literal, $full:literal;)*) => {
        /// An engine as it is usually explored.
        pub fn engine(name: EngineName, codec: CodecName, size: Size) -> AnyEngine {
            match (name, codec, size) {
                (_, CodecName::Layers, _) => layered(engine(name, CodecName::Record, size)),
                $(
                    (EngineName::$name, CodecName::Word, Size::Small) => {
                        Arc::new($engine::<WordCodec, $small>::default())
                    }
                    (EngineName::$name, CodecName::Word, Size::Full) => {
                        Arc::new($engine::<WordCodec, $full>::default())
                    }
                    (EngineName::$name, CodecName::Record, Size::Small) => {
                        Arc::new($engine::<RecordCodec, $small>::default())
                    }
                    (EngineName::$name, CodecName::Record, Size::Full) => {
                        Arc::new($engine::<RecordCodec, $full>::default())
                    }
                )*
            }
        }

        $(
            shared!($engine<WordCodec, $small>);
            shared!($engine<RecordCodec, $small>);
        )*
    };
}

engines! {
    RnTree: RnTreeEngine, 4, 56;
    BzTree: BzTreeEngine, 4, 56;
    MassTree: MassTreeEngine, 4, 14;
}

/// An engine of byte strings, with keys as [`KeyShape::Layers`] has them.
struct Layered(AnyEngine);

/// The same engine, which has byte strings, with keys as [`KeyShape::Layers`] has them.
pub fn layered(engine: AnyEngine) -> AnyEngine {
    Arc::new(Layered(engine))
}

impl Engine for Layered {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn codec(&self) -> &'static str {
        "layers"
    }

    fn keys(&self) -> KeyShape {
        KeyShape::Layers
    }

    fn create(&self, pool: &Pool<Sim>, name: &str) -> Result<Box<dyn EngineTree>> {
        self.0.create(pool, name)
    }

    fn open(&self, pool: &Pool<Sim>, root: &TreeRoot) -> Result<Box<dyn EngineTree>> {
        self.0.open(pool, root)
    }

    fn leaf_entries(&self) -> usize {
        self.0.leaf_entries()
    }

    fn children_max(&self) -> usize {
        self.0.children_max()
    }

    fn marks_later(&self) -> bool {
        self.0.marks_later()
    }

    fn durability(&self) -> Durability {
        self.0.durability()
    }
}

/// `rntree` with `N` entries a leaf.
pub struct RnTreeEngine<C, const N: usize>(PhantomData<fn() -> C>);

impl<C, const N: usize> Default for RnTreeEngine<C, N> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

const ONE_THREAD: RnTreeOptions = RnTreeOptions { recovery_threads: 1 };

impl<C: Codec, const N: usize> Engine for RnTreeEngine<C, N>
where
    RnTree<Sim, C, N>: MaybeWords,
{
    fn name(&self) -> &'static str {
        "rntree"
    }

    fn codec(&self) -> &'static str {
        C::NAME
    }

    fn create(&self, pool: &Pool<Sim>, name: &str) -> Result<Box<dyn EngineTree>> {
        Ok(Box::new(RnTree::<Sim, C, N>::create(pool, name, ONE_THREAD)?))
    }

    fn open(&self, pool: &Pool<Sim>, root: &TreeRoot) -> Result<Box<dyn EngineTree>> {
        Ok(Box::new(RnTree::<Sim, C, N>::open(pool, root, ONE_THREAD)?))
    }

    fn leaf_entries(&self) -> usize {
        N
    }
}

impl<C: Codec, const N: usize> EngineTree for RnTree<Sim, C, N>
where
    Self: MaybeWords,
{
    fn allocations(&self, keys: u64) -> Result<Option<u64>> {
        Ok(Some(self.stat()?.leaves + if C::TIES { keys } else { 0 }))
    }
}

/// `bztree` with `N` entries a leaf, and descriptors for two operations at a time.
pub struct BzTreeEngine<C, const N: usize> {
    options: BzTreeOptions,
    codec: PhantomData<fn() -> C>,
}

impl<C, const N: usize> BzTreeEngine<C, N> {
    /// An engine whose trees are opened before they have marked what they reach.
    pub fn marking_later() -> Self {
        let usual = Self::default();
        Self { options: BzTreeOptions { mark_later: true, ..usual.options }, ..usual }
    }

    /// An engine whose inserts end the reservations of others at once, instead of waiting for them.
    pub fn impatient() -> Self {
        let usual = Self::default();
        Self { options: BzTreeOptions { patience: 0, ..usual.options }, ..usual }
    }
}

impl<C, const N: usize> Default for BzTreeEngine<C, N> {
    fn default() -> Self {
        Self { options: BzTreeOptions { operations_max: 2, ..BzTreeOptions::default() }, codec: PhantomData }
    }
}

impl<C: Codec, const N: usize> Engine for BzTreeEngine<C, N>
where
    BzTree<Sim, C, N>: MaybeWords,
{
    fn name(&self) -> &'static str {
        "bztree"
    }

    fn codec(&self) -> &'static str {
        C::NAME
    }

    fn create(&self, pool: &Pool<Sim>, name: &str) -> Result<Box<dyn EngineTree>> {
        Ok(Box::new(BzTree::<Sim, C, N>::create(pool, name, self.options)?))
    }

    fn open(&self, pool: &Pool<Sim>, root: &TreeRoot) -> Result<Box<dyn EngineTree>> {
        Ok(Box::new(BzTree::<Sim, C, N>::open(pool, root, self.options)?))
    }

    fn leaf_entries(&self) -> usize {
        N
    }

    fn children_max(&self) -> usize {
        NodeSizes::of_leaf(N).inner_children
    }

    fn marks_later(&self) -> bool {
        self.options.mark_later
    }
}

impl<C: Codec, const N: usize> EngineTree for BzTree<Sim, C, N>
where
    Self: MaybeWords,
{
    fn allocations(&self, _keys: u64) -> Result<Option<u64>> {
        Self::allocations(self).map(Some)
    }
}

/// `masstree` with `W` slots a node. Its epochs end when an operation says so.
pub struct MassTreeEngine<C, const W: usize> {
    options: MassTreeOptions,
    /// The epoch from which on an open goes on.
    opens_in: u64,
    /// Whether an open recovers all of the tree at once.
    sweeps: bool,
    codec: PhantomData<fn() -> C>,
}

impl<C, const W: usize> MassTreeEngine<C, W> {
    /// An engine with in-line logs or without, whose trees begin in an epoch.
    pub fn new(mode: Mode, first_epoch: u64) -> Self {
        // Dropping a tree is what a crash does to it.
        let options = MassTreeOptions {
            epoch: EpochLength::Manual,
            mode,
            recovery_threads: 1,
            close_cleanly: false,
            first_epoch,
            ..MassTreeOptions::default()
        };
        Self { options, opens_in: 1, sweeps: false, codec: PhantomData }
    }

    /// An engine whose opens go on from this epoch, if it is later than the last one: as if nobody had changed a node for
    /// so long.
    pub fn opening_in(epoch: u64) -> Self {
        Self { opens_in: epoch, ..Self::default() }
    }

    /// An engine whose opens recover all of the tree at once, instead of each node when it is touched.
    pub fn sweeping() -> Self {
        Self { sweeps: true, ..Self::default() }
    }

    /// An engine whose trees end their epoch when they are dropped. For sequences whose last write is followed by a sync:
    /// the end of the last tree is then no more than that.
    pub fn closing_cleanly() -> Self {
        let usual = Self::default();
        Self { options: MassTreeOptions { close_cleanly: true, ..usual.options }, ..usual }
    }
}

impl<C, const W: usize> Default for MassTreeEngine<C, W> {
    fn default() -> Self {
        Self::new(Mode::InLine, 1)
    }
}

impl<C: Codec, const W: usize> Engine for MassTreeEngine<C, W> {
    fn name(&self) -> &'static str {
        "masstree"
    }

    fn codec(&self) -> &'static str {
        C::NAME
    }

    fn create(&self, pool: &Pool<Sim>, name: &str) -> Result<Box<dyn EngineTree>> {
        Ok(Box::new(MassTree::<Sim, C, W>::create(pool, name, self.options)?))
    }

    fn open(&self, pool: &Pool<Sim>, root: &TreeRoot) -> Result<Box<dyn EngineTree>> {
        let options = MassTreeOptions { first_epoch: self.opens_in, ..self.options };
        let tree = MassTree::<Sim, C, W>::open(pool, root, options)?;
        if self.sweeps {
            tree.sweep()?;
        }
        Ok(Box::new(tree))
    }

    fn leaf_entries(&self) -> usize {
        W
    }

    fn children_max(&self) -> usize {
        W + 1
    }

    fn durability(&self) -> Durability {
        Durability::WithEpoch
    }
}

impl<C: Codec, const W: usize> EngineTree for MassTree<Sim, C, W> {
    /// The tree counts its objects itself, in its check.
    fn allocations(&self, _keys: u64) -> Result<Option<u64>> {
        Ok(None)
    }
}
