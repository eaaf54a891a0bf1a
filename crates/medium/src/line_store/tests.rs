//! Names, detection, the twin form exhaustively, and every supported single form.

use std::sync::atomic::{AtomicU64, Ordering};

use super::twin::{self, TwinChoice, choose};
use super::{LineNotStored, LineStore, LineValue, TAG_MASK, store_single};

#[cfg(target_arch = "x86_64")]
mod litmus;

#[repr(align(64))]
struct TestLine([AtomicU64; 8]);

/// The value of a publish: no two words or publishes alike, every payload bit used.
fn value_of(publish: u64) -> LineValue {
    LineValue(std::array::from_fn(|word| {
        (publish * 8 + word as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) & !TAG_MASK
    }))
}

/// The content of memory if, of a store of `new` over `old`, only the words of `subset` arrived.
fn tear(old: &LineValue, new: &LineValue, subset: u8) -> LineValue {
    LineValue(std::array::from_fn(|word| {
        if subset >> word & 1 == 1 {
            new.0[word]
        } else {
            old.0[word]
        }
    }))
}

/// A twin line as memory holds it.
#[derive(Clone, Copy, Debug)]
struct Twin([LineValue; 2]);

/// The copy of a twin line that counts.
#[derive(PartialEq, Eq, Debug)]
struct Newest {
    copy: usize,
    tag: u8,
    other_is_sound: bool,
}

impl Twin {
    fn newest(&self) -> Newest {
        match choose(&self.0[0].0, &self.0[1].0) {
            TwinChoice::Newest {
                copy,
                tag,
                other_is_sound,
            } => Newest {
                copy,
                tag,
                other_is_sound,
            },
            TwinChoice::BothTorn => panic!("both torn: {self:x?}"),
        }
    }

    fn payload(&self) -> LineValue {
        twin::payload(&self.0[self.newest().copy])
    }

    /// A publish of which the words of `subset` arrive.
    fn publish(mut self, value: &LineValue, subset: u8) -> Self {
        let tag = twin::next_tag(self.newest().tag);
        let copy = &mut self.0[twin::copy_of(tag)];
        *copy = tear(copy, &twin::with_tag(value, tag), subset);
        self
    }

    /// Recovery of which the words of `subset` arrive.
    fn repair(mut self, subset: u8) -> Self {
        let newest = self.newest();
        if !newest.other_is_sound {
            let other = &mut self.0[1 - newest.copy];
            *other = tear(other, &twin::repair(newest.tag), subset);
        }
        self
    }
}

#[test]
fn names_read_back() {
    for store in LineStore::all() {
        assert_eq!(store.name().parse(), Ok(store));
    }
    let error = "avx".parse::<LineStore>().unwrap_err().to_string();
    assert!(
        error.contains("\"avx\"") && error.contains("movdir64b"),
        "{error}"
    );
    assert!(
        LineNotStored.to_string().contains("1000 transactions"),
        "{LineNotStored}"
    );
}

#[test]
fn the_detected_form_is_supported() {
    let detected = LineStore::detect();
    println!("line store: {detected}");
    assert!(detected.is_supported() && LineStore::Twin.is_supported());
}

#[test]
fn tags_are_found_and_replaced() {
    let plain = value_of(7);
    assert_eq!(twin::tag(&plain.0), Some(0));
    for tag in 0..4 {
        let tagged = twin::with_tag(&plain, tag);
        assert_eq!(twin::tag(&tagged.0), Some(tag));
        assert_eq!(twin::payload(&tagged), plain);
        for other in 0..4 {
            assert_eq!(
                twin::with_tag(&tagged, other),
                twin::with_tag(&plain, other)
            );
            for subset in 1..255 {
                let torn = tear(&tagged, &twin::with_tag(&plain, other), subset);
                assert_eq!(twin::tag(&torn.0), (tag == other).then_some(tag));
            }
        }
    }
}

#[test]
fn choice_of_all_pairs_of_tags() {
    let copies: [LineValue; 4] =
        std::array::from_fn(|tag| twin::with_tag(&value_of(tag as u64), tag as u8));
    let torn = tear(&copies[0], &copies[1], 1);
    for (even, odd, copy) in [(0, 1, 1), (2, 1, 0), (2, 3, 1), (0, 3, 0)] {
        let tag = if copy == 0 { even } else { odd };
        let chosen = choose(&copies[usize::from(even)].0, &copies[usize::from(odd)].0);
        assert_eq!(
            chosen,
            TwinChoice::Newest {
                copy,
                tag,
                other_is_sound: true
            }
        );
    }
    for tag in 0..4_u8 {
        let words = &copies[usize::from(tag)].0;
        let (alone, misplaced) = if tag % 2 == 0 {
            (choose(words, &torn.0), choose(&torn.0, words))
        } else {
            (choose(&torn.0, words), choose(words, &torn.0))
        };
        let copy = usize::from(tag % 2);
        assert_eq!(
            alone,
            TwinChoice::Newest {
                copy,
                tag,
                other_is_sound: false
            }
        );
        assert_eq!(
            misplaced,
            TwinChoice::BothTorn,
            "tag {tag} in the wrong copy"
        );
    }
    assert_eq!(choose(&torn.0, &torn.0), TwinChoice::BothTorn);
}

#[test]
fn a_torn_publish_leaves_the_old_value_or_the_new() {
    let mut line = Twin(twin::initial(&value_of(0)));
    assert_eq!(line.payload(), value_of(0));
    let first = Newest {
        copy: 0,
        tag: 0,
        other_is_sound: true,
    };
    assert_eq!(line.newest(), first);
    for publish in 1..=9 {
        for subset in 0..=255 {
            let torn = line.publish(&value_of(publish), subset);
            let wanted = if subset == 255 { publish } else { publish - 1 };
            assert_eq!(
                torn.payload(),
                value_of(wanted),
                "publish {publish}, words {subset:08b}"
            );
            assert_eq!(torn.newest().other_is_sound, subset == 0 || subset == 255);
        }
        line = line.publish(&value_of(publish), 255);
    }
}

/// Sufficient: however publish, repair, a second repair and the next publish are torn, recovery
/// finds a value that was published, and never one older than the last whole publish.
#[test]
fn with_repair_no_tearing_makes_a_value_that_nobody_published() {
    for whole in 0..4 {
        let line = (1..=whole).fold(Twin(twin::initial(&value_of(0))), |line, publish| {
            line.publish(&value_of(publish), 255)
        });
        let next = whole + 1;
        for first in 0..255 {
            let crashed = line.publish(&value_of(next), first);
            for torn_repair in 0..=255 {
                let crashed_again = crashed.repair(torn_repair);
                assert_eq!(
                    crashed_again.payload(),
                    value_of(whole),
                    "{first:08b} {torn_repair:08b}"
                );
                let repaired = crashed_again.repair(255);
                assert_eq!(repaired.payload(), value_of(whole));
                assert!(repaired.newest().other_is_sound);
                assert_repaired_line_publishes(&repaired, whole, next + 1);
            }
        }
    }
}

/// The publish after a repair, torn in all ways that matter: `repaired` has no trace of the torn
/// words left.
fn assert_repaired_line_publishes(repaired: &Twin, whole: u64, second: u64) {
    for subset in [0, 1, 0b0101_0101, 0b1111_0000, 127, 128, 254, 255] {
        let found = repaired.publish(&value_of(second), subset).payload();
        let wanted = if subset == 255 { second } else { whole };
        assert_eq!(found, value_of(wanted), "{subset:08b}");
    }
}

/// Sufficient, the last step alone in all 2^8 x 2^8 ways.
#[test]
fn after_repair_two_torn_publishes_do_not_add_up() {
    let line = Twin(twin::initial(&value_of(0)));
    for first in 0..255 {
        let repaired = line.publish(&value_of(1), first).repair(255);
        for second in 0..=255 {
            let found = repaired.publish(&value_of(2), second).payload();
            let wanted = if second == 255 { 2 } else { 0 };
            assert_eq!(found, value_of(wanted), "{first:08b} then {second:08b}");
        }
    }
}

/// Necessary: without it, two torn publishes add up to a whole copy that nobody published, in every
/// case where together they cover all words and the second alone does not.
#[test]
fn without_repair_two_torn_publishes_add_up() {
    let line = Twin(twin::initial(&value_of(0)));
    for first in 1..255_u8 {
        for second in 0..255_u8 {
            let found = line
                .publish(&value_of(1), first)
                .publish(&value_of(2), second)
                .payload();
            let mixed = tear(&value_of(1), &value_of(2), second);
            let wanted = if first | second == 255 {
                mixed
            } else {
                value_of(0)
            };
            assert_eq!(found, wanted, "{first:08b} then {second:08b}");
        }
    }
}

#[test]
fn each_supported_single_form_stores_and_reads_back() {
    let lines: [TestLine; 5] =
        std::array::from_fn(|_| TestLine(std::array::from_fn(|_| AtomicU64::new(5))));
    for store in LineStore::all() {
        if store == LineStore::Twin {
            continue;
        }
        if !store.is_supported() {
            println!("skipped: this processor has no {store}");
            continue;
        }
        for round in 0..100 {
            // SAFETY: a line of atomics of ours, and a supported form.
            let stored = unsafe { store_single(store, &raw const lines[2].0, &value_of(round)) };
            assert_eq!(stored, Ok(()));
            crate::flush::store_fence(crate::FlushKind::Nothing);
            let found = lines
                .each_ref()
                .map(|line| line.0.each_ref().map(|word| word.load(Ordering::Relaxed)));
            assert_eq!(
                found,
                [[5; 8], [5; 8], value_of(round).0, [5; 8], [5; 8]],
                "{store}"
            );
        }
        lines[2]
            .0
            .iter()
            .for_each(|word| word.store(5, Ordering::Relaxed));
    }
}

#[test]
#[should_panic(expected = "no single store writes it")]
fn the_twin_form_is_no_single_store() {
    let line = TestLine(std::array::from_fn(|_| AtomicU64::new(5)));
    // SAFETY: a line of atomics of ours; the form is refused.
    let _ = unsafe { store_single(LineStore::Twin, &raw const line.0, &LineValue::ZERO) };
}
