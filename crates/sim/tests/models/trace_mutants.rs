//! Faults planted on the trace: a publish done first, two persists swapped. The subject is a log of
//! two cells, which is correct without faults.

use everleaf_sim::{Complaint, ExplorationOptions, Explorer, Subject};
use medium::sim::{Mutation, Sim};
use medium::{Medium, MediumGuard, Word};

/// A value in two lines, and a word that says which of two such places holds it.
#[derive(Clone, Copy)]
struct Pair {
    /// Whether each persist is waited for.
    drains: bool,
    /// Whether the selector is published by a compare-exchange, and flushed in another place.
    exchanges: bool,
}

const SELECTOR: u64 = 64;
const PLACES: [u64; 2] = [128, 256];

fn word<'g>(guard: &'g MediumGuard<'_, Sim>, offset: u64) -> Result<&'g Word, Complaint> {
    guard
        .words(offset, 1)
        .map(|words| &words[0])
        .map_err(|bad| bad.to_string())
}

impl Pair {
    #[track_caller]
    fn persist(self, guard: &MediumGuard<'_, Sim>) -> Result<(), Complaint> {
        if self.drains {
            return guard.drain().map_err(|error| error.to_string());
        }
        guard.fence();
        Ok(())
    }
}

impl Subject for Pair {
    /// The value to set.
    type Operation = u64;
    type Outcome = ();
    type State = u64;
    type Instance = Sim;

    fn initial(&self) -> u64 {
        0
    }

    fn step(&self, state: &mut u64, value: &u64) {
        *state = *value;
    }

    fn open(&self, sim: &Sim) -> Result<Sim, Complaint> {
        sim.grow(4096).map_err(|error| error.to_string())?;
        Ok(sim.clone())
    }

    fn apply(&self, sim: &mut Sim, value: &u64) -> Result<(), Complaint> {
        let guard = MediumGuard::new(&*sim);
        let selector = word(&guard, SELECTOR)?;
        let other = 1 - selector.load(&guard);
        let place = PLACES[other as usize];
        word(&guard, place)?.store(&guard, *value);
        word(&guard, place + 64)?.store(&guard, *value);
        guard.flush(word(&guard, place)?);
        guard.flush(word(&guard, place + 64)?);
        self.persist(&guard)?;
        if self.exchanges {
            selector
                .compare_exchange(&guard, 1 - other, other)
                .map_err(|found| format!("found {found}"))?;
            guard.flush(selector);
        } else {
            selector.publish(&guard, other);
        }
        self.persist(&guard)?;
        // No other store depends on this one.
        word(&guard, 512)?.publish(&guard, *value);
        self.persist(&guard)
    }

    fn observe(&self, sim: &mut Sim) -> Result<u64, Complaint> {
        let guard = MediumGuard::new(&*sim);
        let place = PLACES[word(&guard, SELECTOR)?.load(&guard) as usize];
        let values = [
            word(&guard, place)?.load(&guard),
            word(&guard, place + 64)?.load(&guard),
        ];
        if values[0] == values[1] {
            Ok(values[0])
        } else {
            Err(format!("torn: {values:?}"))
        }
    }
}

#[test]
fn what_depends_on_order_is_caught_and_nothing_else() {
    for (drains, exchanges) in [(false, false), (false, true), (true, false), (true, true)] {
        judge(Pair { drains, exchanges });
    }
}

fn judge(pair: Pair) {
    let explorer = |mutations| {
        Explorer::new(
            pair,
            ExplorationOptions {
                mutations,
                shrink: false,
                ..ExplorationOptions::default()
            },
        )
        .unwrap()
    };
    let survey = explorer(Vec::new()).survey(&[1, 2]).unwrap();
    let moves: Vec<Mutation> = survey
        .into_iter()
        .filter(|mutation| {
            matches!(
                mutation,
                Mutation::PublishEarly(_) | Mutation::SwapPersists(..)
            )
        })
        .collect();
    let survives = |mutation: &&Mutation| explorer(vec![**mutation]).explore(&[1, 2]).is_ok();
    let early = moves
        .iter()
        .filter(|mutation| matches!(mutation, Mutation::PublishEarly(_)));
    let swapped = moves
        .iter()
        .filter(|mutation| matches!(mutation, Mutation::SwapPersists(..)));
    // The selector's publish and the last one; the first two persists, and the last two.
    assert_eq!((early.clone().count(), swapped.clone().count()), (2, 2));
    assert_eq!(
        (
            early.filter(survives).count(),
            swapped.filter(survives).count()
        ),
        (1, 1)
    );
}
