//! The kind of a tree: its engine, its codec, its settings.

use engines::engine::{CodecKind, Engine, Settings};
use engines::{ErrorKind, Result};
use pool::TreeRoot;

/// How a tree is made. An existing tree must have been made with the same options.
///
/// ```
/// use everleaf::{Engine, TreeOptions};
///
/// let sessions = TreeOptions { engine: Engine::BZTREE, ..TreeOptions::RECORDS };
/// let small_leaves = sessions.with("leaf-entries", 16)?;
/// assert_eq!(small_leaves.to_string(), "engine bztree, codec record, leaf-entries 16");
/// # Ok::<(), everleaf::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct TreeOptions {
    /// The engine of the tree.
    pub engine: Engine,
    /// The coding of the tree's entries.
    pub codec: CodecKind,
    /// Settings of the engine. A setting that is left out has its default in a new tree, and any
    /// value in an existing one.
    pub settings: Settings,
}

impl TreeOptions {
    /// Trees of byte strings.
    pub const RECORDS: Self = Self {
        engine: Engine::RNTREE,
        codec: CodecKind::Record,
        settings: Settings::NONE,
    };
    /// Trees of `u64`.
    pub const WORDS: Self = Self {
        engine: Engine::RNTREE,
        codec: CodecKind::Word,
        settings: Settings::NONE,
    };

    /// Returns these options with one more setting. [`Engine`]'s `settings` lists the settings of
    /// an engine, with the values that they take.
    ///
    /// ```
    /// use everleaf::{ErrorKind, TreeOptions};
    ///
    /// let refused = TreeOptions::RECORDS.with("leaf-entries", 1_000_000).unwrap_err();
    /// assert!(matches!(refused.kind(), ErrorKind::Setting { .. }));
    /// let small = TreeOptions::RECORDS.with("leaf-entries", 16)?;
    /// assert_eq!(small.to_string(), "engine rntree, codec record, leaf-entries 16");
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Setting`] if the engine has no such setting, or it does not take this value.
    pub fn with(self, setting: &str, value: u64) -> Result<Self> {
        let set = self.engine.settings(&[(setting, value)])?;
        Ok(Self {
            settings: set.or(self.settings),
            ..self
        })
    }

    /// The engine and codec of a tree, from its slot in the root table; the engine is one of
    /// `engines`.
    pub(crate) fn of(root: &TreeRoot, engines: &[Engine]) -> Result<Self> {
        let engine = engines
            .iter()
            .copied()
            .find(|engine| engine.id == root.engine);
        let codec = CodecKind::ALL
            .into_iter()
            .find(|codec| codec.id() == root.codec);
        if let Some(engine) = engine
            && let Some(codec) = codec
        {
            return Ok(Self {
                engine,
                codec,
                settings: (engine.settings_of)(root)?,
            });
        }
        Err(ErrorKind::UnknownEngine {
            name: root.name.clone(),
            engine: root.engine,
            codec: root.codec,
        }
        .into())
    }

    /// Refuses to take the tree `name`, which is `self`, for `wanted`.
    pub(crate) fn demand(self, name: &str, wanted: Self) -> Result<()> {
        let is_same = self.engine == wanted.engine && self.codec == wanted.codec;
        if is_same && self.engine.accepts(&self.settings, &wanted.settings) {
            return Ok(());
        }
        // The error names the first difference.
        let (found, wanted) = if self.engine != wanted.engine {
            (format!("engine {}", self.engine), wanted.engine.to_string())
        } else if self.codec != wanted.codec {
            (
                format!("codec {}", self.codec.name()),
                wanted.codec.name().to_owned(),
            )
        } else {
            (
                self.engine.describe(&self.settings),
                wanted.engine.describe(&wanted.settings),
            )
        };
        Err(ErrorKind::TreeMismatch {
            name: name.to_owned(),
            found,
            wanted,
        }
        .into())
    }
}

impl std::fmt::Display for TreeOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            engine,
            codec,
            settings,
        } = self;
        write!(formatter, "engine {engine}, codec {}", codec.name())?;
        let settings = engine.describe(settings);
        if settings.is_empty() {
            Ok(())
        } else {
            write!(formatter, ", {settings}")
        }
    }
}
