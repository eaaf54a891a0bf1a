//! Instructions that a user chooses by name.

/// A name that stands for nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no such {what}: {given:?}; give one of {known}")]
pub struct UnknownName {
    /// What was to be named.
    pub what: &'static str,
    /// The name that was given.
    pub given: String,
    /// The names that there are.
    pub known: String,
}

/// Gives the variants of an enum names that are shown and read, in upper or lower case.
macro_rules! named {
    ($type:ident, $what:literal: $($variant:ident = $name:literal),*) => {
        impl $type {
            const NAMES: &[&str] = &[$($name),*];

            /// All of them, best first.
            pub fn all() -> [Self; Self::NAMES.len()] {
                [$(Self::$variant),*]
            }

            /// The name that `from_str` reads.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),*
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::UnknownName;

            /// Reads a name. Says nothing about whether the processor has the instruction.
            fn from_str(given: &str) -> Result<Self, Self::Err> {
                let found = Self::all().into_iter().find(|one| one.name().eq_ignore_ascii_case(given));
                found.ok_or_else(|| $crate::UnknownName {
                    what: $what,
                    given: given.to_owned(),
                    known: Self::NAMES.join(", "),
                })
            }
        }
    };
}
pub(crate) use named;
