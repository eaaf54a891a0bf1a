//! Violations as JSON, with the neighbours of lost keys.

use everleaf::CodecKind;
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use terminal::violations::{KeysOfTree, ListedViolation};

use crate::forms::{FormArgs, JsonEncoding};

/// Writes a list as JSON, with the neighbours of lost keys: the fields `above` and `below`, and their
/// encodings. All keys of trees of byte strings have one encoding.
pub(super) fn with_keys<S: Serializer>(
    listed: &[ListedViolation],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let of_words = FormArgs::default().of_new_tree(CodecKind::Word);
    let of_records = FormArgs::default().of_new_tree(CodecKind::Record);
    let words = JsonEncoding::of_keys(&of_words);
    let mut records = JsonEncoding::of_keys(&of_records);
    for KeysOfTree { between, codec } in listed.iter().filter_map(|listed| listed.keys.as_ref()) {
        if *codec != CodecKind::Word {
            for key in between.above.iter().chain(&between.below) {
                records.note(key);
            }
        }
    }
    let mut objects = Vec::with_capacity(listed.len());
    for violation in listed {
        let mut object = Map::new();
        if let Some(KeysOfTree { between, codec }) = &violation.keys {
            let encoding = if *codec == CodecKind::Word {
                &words
            } else {
                &records
            };
            for (name, key) in [("above", &between.above), ("below", &between.below)] {
                if let Some(key) = key {
                    let added = encoding.add(&mut object, name, key);
                    added.map_err(S::Error::custom)?;
                }
            }
        }
        objects.push(WithKeys {
            violation,
            keys: object,
        });
    }
    objects.serialize(serializer)
}

/// A violation with the neighbours of the keys that it cost.
#[derive(Serialize)]
struct WithKeys<'v> {
    #[serde(flatten)]
    violation: &'v ListedViolation,
    #[serde(flatten)]
    keys: Map<String, Value>,
}
