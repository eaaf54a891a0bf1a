//! Derived keys and values.

use everleaf::{EncodedValue, ErrorKind, Key, Result, Store};
use proptest::prelude::*;

/// Bytes of any kind, and numbers around the ends of their lengths.
const NUMBERS: [u32; 6] = [0, 127, 128, 16_383, 16_384, u32::MAX];

#[derive(Key, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[everleaf(name = "due")]
struct Due {
    seconds: u64,
    owner: String,
    job: u32,
}

#[derive(Key, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Pair(Vec<u8>, Option<i16>);

#[derive(Key, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Only;

#[derive(Key, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[everleaf(version = 3, reads(1, 2))]
enum State {
    Waiting,
    Running(Pair),
    Failed { at: Due, attempts: u8 },
    Done(),
}

/// The numbers of variants are those of Rust.
#[derive(Key, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Level {
    Low = 1,
    Middle,
    High = 255,
}

fn pairs() -> impl Strategy<Value = Pair> {
    (
        proptest::collection::vec(0..3_u8, 0..4),
        any::<Option<i16>>(),
    )
        .prop_map(|(bytes, number)| Pair(bytes, number))
}

fn dues() -> impl Strategy<Value = Due> {
    (0..3_u64, "[\u{0}a]{0,2}", 0..3_u32).prop_map(|(seconds, owner, job)| Due {
        seconds,
        owner,
        job,
    })
}

fn states() -> impl Strategy<Value = State> {
    let failed = (dues(), any::<u8>()).prop_map(|(at, attempts)| State::Failed { at, attempts });
    prop_oneof![
        Just(State::Waiting),
        pairs().prop_map(State::Running),
        failed,
        Just(State::Done()),
    ]
}

proptest! {
    #[test]
    fn derived_keys_sort_as_their_types(
        dues in [dues(), dues()], pairs in [pairs(), pairs()], states in [states(), states()],
    ) {
        super::expect_ord(&dues[0], &dues[1]);
        super::expect_ord(&pairs[0], &pairs[1]);
        super::expect_ord(&states[0], &states[1]);
        super::expect_ord(&(states[0].clone(), dues[0].clone()), &(states[1].clone(), dues[1].clone()));
        super::expect_ord(&Some(pairs[0].clone()), &Some(pairs[1].clone()));
    }

    #[test]
    fn any_bytes_are_a_derived_key_or_none(any in proptest::collection::vec(any::<u8>(), 0..20)) {
        if let Some(state) = State::decode(&any) {
            prop_assert_eq!(super::bytes(&state), any.clone());
        }
        if let Some(order) = Order::decode_value(&any) {
            let mut again = Vec::new();
            order.encode_value(&mut again).unwrap();
            prop_assert_eq!(Order::decode_value(&again), Some(order));
        }
    }
}

#[test]
fn a_derived_key_is_a_key_like_any_other() -> Result<()> {
    super::expect_ord(&Only, &Only);
    for level in [Level::Low, Level::Middle, Level::High] {
        assert_eq!(super::bytes(&level), [level as u8]);
        super::expect_ord(&level, &Level::Middle);
    }
    assert_eq!(Level::decode(&[3]), None);
    assert_eq!(Only::decode(&[0]), None);

    let store = Store::in_memory()?;
    let jobs = store.typed::<Due, State>("jobs")?;
    for (seconds, job) in [(60, 1), (60, 2), (90, 3)] {
        let owner = "ada".to_owned();
        jobs.put(
            &Due {
                seconds,
                owner,
                job,
            },
            &State::Waiting,
        )?;
    }
    assert_eq!(jobs.prefix(&60_u64).count(), 2);
    assert_eq!(
        store
            .snapshot()
            .map(|view| everleaf::View::prefix(&view, &jobs, &90_u64).count())?,
        1
    );
    let names = jobs.as_tree().encodings().unwrap().to_string();
    assert_eq!(names, "due:1 -> State:3");
    // Keys of older versions are keys of this one.
    let encoding = State::encoding();
    assert!(encoding.reads("State:1") && encoding.reads("State:2") && !encoding.reads("State:4"));
    let within = <(u8, State)>::encoding();
    assert!(within.reads("(u8,State:1)") && !within.reads("(u8,State:4)"));
    Ok(())
}

#[derive(EncodedValue, Clone, PartialEq, Debug)]
#[everleaf(name = "item")]
struct Item {
    name: String,
    count: u32,
}

#[derive(EncodedValue, Clone, PartialEq, Debug)]
#[everleaf(name = "order", version = 1)]
struct OrderV1 {
    item: Item,
}

#[derive(EncodedValue, Clone, PartialEq, Debug)]
#[everleaf(name = "order", version = 2, reads(OrderV1))]
struct OrderV2(Item, bool);

#[derive(EncodedValue, Clone, PartialEq, Debug)]
#[everleaf(name = "order", version = 300, reads(OrderV2))]
enum Order {
    Cancelled,
    Open {
        item: Item,
        other: Item,
        note: Vec<u8>,
    },
    Sent(Item, bool),
}

impl From<OrderV1> for OrderV2 {
    fn from(old: OrderV1) -> Self {
        Self(old.item, false)
    }
}

impl From<OrderV2> for Order {
    fn from(OrderV2(item, is_sent): OrderV2) -> Self {
        if is_sent {
            return Self::Sent(item, true);
        }
        let other = item.clone();
        let note = Vec::new();
        Self::Open { item, other, note }
    }
}

fn item(count: u32) -> Item {
    let name = "x".repeat(count as usize % 200);
    Item { name, count }
}

#[test]
fn derived_values_of_all_versions_lie_in_one_tree() -> Result<()> {
    let store = Store::in_memory()?;
    let first = store.typed::<u64, OrderV1>("orders")?;
    first.put(&1, &OrderV1 { item: item(1) })?;
    let second = store.typed::<u64, OrderV2>("orders")?;
    second.put(&2, &OrderV2(item(2), true))?;
    let last = store.typed::<u64, Order>("orders")?;
    assert_eq!(
        last.as_tree().encodings().unwrap().to_string(),
        "u64 -> order:300"
    );
    let open = |count| Order::Open {
        item: item(count),
        other: item(count),
        note: Vec::new(),
    };
    assert_eq!(last.get(&1)?, Some(open(1)));
    assert_eq!(last.get(&2)?, Some(Order::Sent(item(2), true)));
    last.put(&3, &Order::Cancelled)?;
    assert_eq!(last.get(&3)?, Some(Order::Cancelled));
    for count in NUMBERS {
        last.put(&4, &open(count))?;
        assert_eq!(last.get(&4)?, Some(open(count)));
    }
    assert_eq!(second.get(&1)?, Some(OrderV2(item(1), false)));
    for newer in [second.get(&3).err(), first.get(&4).err()] {
        let error = newer.expect("a value of a newer version");
        assert!(
            matches!(error.kind(), ErrorKind::NotOfType { what: "value", .. }),
            "{error}"
        );
    }
    let refused = store.typed::<u64, OrderV2>("orders").unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::TypeMismatch { .. }),
        "{refused}"
    );
    Ok(())
}

/// Types of which one is read directly and by another one are told apart by their versions.
#[test]
fn a_type_may_be_read_directly_and_by_another_one() {
    #[derive(EncodedValue, PartialEq, Debug)]
    #[everleaf(name = "order", version = 3, reads(OrderV1, OrderV2))]
    struct OrderV3(u32);

    impl From<OrderV1> for OrderV3 {
        fn from(old: OrderV1) -> Self {
            Self(old.item.count)
        }
    }

    impl From<OrderV2> for OrderV3 {
        fn from(OrderV2(item, _): OrderV2) -> Self {
            Self(item.count + 1)
        }
    }

    let mut bytes = Vec::new();
    OrderV1 { item: item(7) }.encode_value(&mut bytes).unwrap();
    assert_eq!(OrderV3::decode_value(&bytes), Some(OrderV3(7)));
    let mut bytes = Vec::new();
    OrderV2(item(7), true).encode_value(&mut bytes).unwrap();
    assert_eq!(OrderV3::decode_value(&bytes), Some(OrderV3(8)));
}

#[test]
fn a_value_that_is_cut_off_is_none() {
    let order = Order::Open {
        item: item(130),
        other: item(3),
        note: b"note".to_vec(),
    };
    let mut bytes = Vec::new();
    order.encode_value(&mut bytes).unwrap();
    assert_eq!(Order::decode_value(&bytes), Some(order));
    // The note is the rest, whatever its length.
    for length in 0..bytes.len() - 4 {
        assert_eq!(Order::decode_value(&bytes[..length]), None, "{length}");
    }
    let mut cancelled = Vec::new();
    Order::Cancelled.encode_value(&mut cancelled).unwrap();
    cancelled.push(0);
    assert_eq!(Order::decode_value(&cancelled), None);
}

#[cfg(feature = "serde")]
mod by_serde {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize, Serializer};

    use super::*;

    #[derive(Serialize, Deserialize, EncodedValue, Clone, PartialEq, Debug)]
    #[everleaf(name = "basket", version = 2, reads(Item), serde)]
    struct Basket {
        items: Vec<String>,
        prices: BTreeMap<String, Option<f64>>,
    }

    impl From<Item> for Basket {
        fn from(old: Item) -> Self {
            Self {
                items: vec![old.name],
                prices: BTreeMap::new(),
            }
        }
    }

    #[derive(Serialize, Deserialize, EncodedValue)]
    #[everleaf(serde)]
    struct Odd {
        #[serde(serialize_with = "refuse")]
        number: u32,
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    fn refuse<S: Serializer>(
        _number: &u32,
        _serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("the number is odd"))
    }

    #[test]
    fn a_type_that_serde_knows_is_a_value() -> Result<()> {
        let store = Store::in_memory()?;
        store.typed::<u64, Item>("baskets")?.put(&1, &item(3))?;
        let baskets = store.typed::<u64, Basket>("baskets")?;
        assert_eq!(baskets.get(&1)?, Some(item(3).into()));
        let basket = Basket {
            items: vec!["apple".to_owned(), "pear".to_owned()],
            prices: BTreeMap::from([("apple".to_owned(), Some(0.5)), ("pear".to_owned(), None)]),
        };
        baskets.put(&2, &basket)?;
        assert_eq!(baskets.get(&2)?, Some(basket.clone()));
        let mut bytes = Vec::new();
        basket.encode_value(&mut bytes).unwrap();
        for length in 0..bytes.len() {
            assert_eq!(Basket::decode_value(&bytes[..length]), None, "{length}");
        }
        bytes.push(0);
        assert_eq!(Basket::decode_value(&bytes), None);
        Ok(())
    }

    #[test]
    fn a_value_that_its_own_code_refuses_is_an_error() -> Result<()> {
        let store = Store::in_memory()?;
        let odd = store.typed::<u64, Odd>("odd")?;
        let refused = odd.put(&1, &Odd { number: 1 }).unwrap_err();
        assert!(
            matches!(refused.kind(), ErrorKind::NotEncodable { .. }),
            "{refused}"
        );
        assert!(odd.is_empty()?);
        Ok(())
    }
}
