//! The portable failure-atomic line: two copies, torn anywhere, also while recovery mends one.

use everleaf_sim::{
    Complaint, ExplorationOptions, Explorer, Images, Rules, SecondCrash, Stats, Subject,
};
use medium::sim::Sim;
use medium::{Line, LineForm, LineValue, Medium, MediumGuard, Word, twin};

/// The line; its second copy lies in the 64 bytes before.
const LINE: u64 = 128;
const LENGTH: u64 = 4096;

/// How the line is written and recovered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Variant {
    /// Like the medium.
    Medium,
    /// Like the medium, but a torn copy is not mended.
    MediumUnmended,
    /// By hand, the words from the last to the first.
    Backwards,
    /// By hand, the words of even values from the first to the last, those of odd ones from the
    /// last to the first.
    AnyOrder,
    /// In the order of `AnyOrder`, but a torn copy is not mended.
    AnyOrderUnmended,
    /// By hand, over the newer copy.
    WrongCopy,
    /// By hand, without a fence between one publish and the next.
    Unfenced,
}

struct TwinLine {
    variant: Variant,
}

struct Opened {
    sim: Sim,
    stored: LineValue,
}

fn text(error: &impl ToString) -> Complaint {
    error.to_string()
}

/// Words that each encode the value differently.
fn payload(value: u64) -> LineValue {
    LineValue(std::array::from_fn(|word| value << 8 | word as u64))
}

/// The value in a line.
fn value_of(line: &LineValue) -> Result<u64, Complaint> {
    let found = twin::payload(line);
    let value = found.0[0] >> 8;
    if found == LineValue::ZERO || found == payload(value) {
        return Ok(value);
    }
    Err(format!("words of several values: {:x?}", found.0))
}

/// A publish by hand.
fn publish(
    guard: &MediumGuard<'_, Sim>,
    variant: Variant,
    old: &LineValue,
    new: u64,
) -> Result<LineValue, Complaint> {
    let tag = twin::next_tag(twin::tag(&old.0).ok_or("a torn value was kept")?);
    let value = twin::with_tag(&payload(new), tag);
    let copy = twin::copy_of(tag) ^ usize::from(variant == Variant::WrongCopy);
    let words: &[Word] = guard
        .words(LINE - 64 * copy as u64, 8)
        .map_err(|bad| text(&bad))?;
    let forward =
        matches!(variant, Variant::AnyOrder | Variant::AnyOrderUnmended) && new.is_multiple_of(2);
    for step in 0..8 {
        let index = if forward { step } else { 7 - step };
        words[index].store(guard, value.0[index]);
    }
    guard.flush_words(words);
    Ok(value)
}

impl Subject for TwinLine {
    /// The value to publish.
    type Operation = u64;
    type Outcome = ();
    type State = u64;
    type Instance = Opened;

    fn initial(&self) -> u64 {
        0
    }

    fn step(&self, state: &mut u64, operation: &u64) {
        *state = *operation;
    }

    fn open(&self, sim: &Sim) -> Result<Opened, Complaint> {
        let fresh = sim.extent().length() == 0;
        sim.grow(LENGTH).map_err(|error| text(&error))?;
        let guard = MediumGuard::new(sim);
        let line: &Line = guard.node(LINE).map_err(|bad| text(&bad))?;
        let stored = if fresh {
            line.init(&guard, &LineValue::ZERO)
        } else if matches!(
            self.variant,
            Variant::MediumUnmended | Variant::AnyOrderUnmended
        ) {
            line.load(&guard).map_err(|torn| text(&torn))?
        } else {
            line.recover(&guard).map_err(|torn| text(&torn))?
        };
        guard.fence();
        Ok(Opened {
            sim: sim.clone(),
            stored,
        })
    }

    fn apply(&self, opened: &mut Opened, operation: &u64) -> Result<(), Complaint> {
        let guard = MediumGuard::new(&opened.sim);
        opened.stored = match self.variant {
            Variant::Medium | Variant::MediumUnmended => {
                let line: &Line = guard.node(LINE).map_err(|bad| text(&bad))?;
                line.publish(&guard, &opened.stored, &payload(*operation))
                    .map_err(|error| text(&error))?
            }
            variant => publish(&guard, variant, &opened.stored, *operation)?,
        };
        if self.variant != Variant::Unfenced {
            guard.fence();
        }
        Ok(())
    }

    fn observe(&self, opened: &mut Opened) -> Result<u64, Complaint> {
        let guard = MediumGuard::new(&opened.sim);
        let line: &Line = guard.node(LINE).map_err(|bad| text(&bad))?;
        value_of(&line.load(&guard).map_err(|torn| text(&torn))?)
    }

    fn follow_up(&self, state: &u64, _recent: &[u64]) -> Vec<u64> {
        (1..=4).map(|step| state + 16 * step).collect()
    }
}

fn explore(variant: Variant, rules: Rules, second_crash: SecondCrash) -> Result<Stats, String> {
    let options = ExplorationOptions {
        rules,
        line_form: LineForm::Twin,
        images: Images::All,
        second_crash,
        command: "cargo test -p everleaf-sim --test models twin_line::".to_owned(),
        ..ExplorationOptions::default()
    };
    let mut explorer = Explorer::new(TwinLine { variant }, options).unwrap();
    explorer
        .set_up(&[])
        .map_err(|failure| failure.to_string())?;
    let result = explorer.explore(&[1, 2, 3, 4, 5]);
    result
        .map(|()| explorer.stats())
        .map_err(|failure| failure.to_string())
}

#[test]
fn the_medium_s_twin_line_survives_every_pair_of_crashes() {
    for rules in [Rules::Lines, Rules::PersistentCaches] {
        let stats = explore(Variant::Medium, rules, SecondCrash::Anywhere).unwrap();
        println!("{rules:?}: {stats}");
        assert!(stats.second_points > 20 && stats.cut_short == 0);
    }
}

#[test]
fn the_order_of_words_does_not_matter() {
    for variant in [Variant::Backwards, Variant::AnyOrder] {
        explore(variant, Rules::Lines, SecondCrash::Anywhere).unwrap();
    }
}

#[test]
fn recovery_must_mend_a_torn_copy() {
    for variant in [Variant::AnyOrderUnmended, Variant::MediumUnmended] {
        let report = explore(variant, Rules::Lines, SecondCrash::Anywhere).unwrap_err();
        println!("{report}");
        assert!(
            report.contains("words of several values") && report.contains("in what followed"),
            "{report}"
        );
        // A single crash does not show it: two torn stores have to complete each other.
        explore(variant, Rules::Lines, SecondCrash::InRecovery).unwrap();
    }
}

#[test]
fn the_older_copy_must_be_overwritten_and_fenced() {
    for variant in [Variant::WrongCopy, Variant::Unfenced] {
        let report = explore(variant, Rules::Lines, SecondCrash::Never).unwrap_err();
        println!("{variant:?}: {report}");
    }
}
