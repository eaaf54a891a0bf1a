//! The durability that an operation of a writer promises.

use std::fmt;
use std::str::FromStr;

use everleaf::Durability;
use sim::torture::Acknowledged;
use terminal::values::parse_durability;

/// When an operation is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Promise {
    /// According to the store's options: when it returns, some time later, or at a sync.
    Store(Durability),
    /// After a wait for its ticket; other threads read only durable values.
    Ticket,
}

impl Promise {
    /// The meaning of an acknowledgement, if the engine is not durable by epochs.
    pub(super) fn acknowledged(self) -> Acknowledged {
        match self {
            Self::Store(Durability::Immediate) => Acknowledged::Durable,
            Self::Store(Durability::OnSync | Durability::Buffered(_)) => Acknowledged::Buffered,
            Self::Ticket => Acknowledged::ByTicket,
        }
    }

    /// Whether an operation is durable when it returns.
    pub(super) fn is_durable_at_once(self) -> bool {
        self == Self::Store(Durability::Immediate)
    }

    /// The store's option.
    pub(super) fn durability(self) -> Durability {
        match self {
            Self::Store(durability) => durability,
            Self::Ticket => Durability::Immediate,
        }
    }
}

impl FromStr for Promise {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tickets" => Ok(Self::Ticket),
            other => parse_durability(other)
                .map(Self::Store)
                .map_err(|what| format!("{what}, or tickets")),
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ticket => formatter.write_str("tickets"),
            Self::Store(Durability::Immediate) => formatter.write_str("immediate"),
            Self::Store(Durability::OnSync) => formatter.write_str("sync"),
            Self::Store(Durability::Buffered(within)) => {
                write!(formatter, "{}", within.as_millis())
            }
        }
    }
}
