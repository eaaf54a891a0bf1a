use medium::sim::Sim;

use super::*;

/// A number that can be set; setting it returns the former number.
struct Register;

impl Subject for Register {
    type Operation = u64;
    type Outcome = u64;
    type State = u64;
    type Instance = ();

    fn initial(&self) -> u64 {
        0
    }

    /// 0 only reads.
    fn step(&self, state: &mut u64, value: &u64) -> u64 {
        let before = *state;
        if *value != 0 {
            *state = *value;
        }
        before
    }

    fn open(&self, _: &Sim) -> Result<(), Complaint> {
        Ok(())
    }

    fn apply(&self, _state: &mut (), _: &u64) -> Result<u64, Complaint> {
        Err("never called".to_owned())
    }

    fn observe(&self, _state: &mut ()) -> Result<u64, Complaint> {
        Err("never called".to_owned())
    }
}

/// Sets 7, reads, sets 9. The outcomes are what they returned, if they did.
fn history(outcomes: [Option<u64>; 3]) -> History<Register> {
    let call = |(operation, outcome)| {
        let steps = vec![PartCall {
            part: 0,
            operation,
            outcome,
        }];
        Call { operation, steps }
    };
    History::new(
        0,
        Rc::new([7, 0, 9].into_iter().zip(outcomes).map(call).collect()),
    )
}

/// The numbers that a crash may leave now.
fn left(history: &History<Register>) -> Vec<u64> {
    let ExpectedStates { mut states, parts } = history.expected(&Register);
    states.extend(
        parts
            .into_iter()
            .flat_map(|(_, choices)| choices)
            .map(|choice| choice.state),
    );
    states.sort_unstable();
    states.dedup();
    states
}

#[test]
fn what_is_pending_happened_or_not() {
    let mut history = history([None, None, None]);
    assert_eq!(left(&history), [0]);
    history.invoke(&Register, 0);
    assert_eq!(left(&history), [0, 7]);
    history.invoke(&Register, 2);
    assert_eq!(left(&history), [0, 7, 9]);
}

#[test]
fn what_was_seen_happened() {
    let mut history = history([None, Some(7), None]);
    history.invoke(&Register, 0);
    history.invoke(&Register, 1);
    history.respond(&Register, 1).unwrap();
    assert_eq!(left(&history), [7]);
}

#[test]
fn what_returned_happened_in_time() {
    // The read began after 7 was set, so it returned an outdated number.
    let mut late = history([Some(0), Some(0), None]);
    late.invoke(&Register, 0);
    late.respond(&Register, 0).unwrap();
    late.invoke(&Register, 1);
    assert!(late.respond(&Register, 1).is_err());
    // It began before: it may come first, but then the other call cannot have read a value that no
    // call had set.
    let mut early = history([Some(9), Some(0), None]);
    early.invoke(&Register, 1);
    early.invoke(&Register, 0);
    early.respond(&Register, 1).unwrap();
    assert!(early.respond(&Register, 0).is_err());
}

#[test]
fn nothing_takes_effect_after_it_was_passed_by() {
    // Setting 9 returned 0, so 7 was not set before. That call is pending, so it may take effect
    // later or never.
    let mut history = history([None, None, Some(0)]);
    history.invoke(&Register, 0);
    history.invoke(&Register, 2);
    history.respond(&Register, 2).unwrap();
    assert_eq!(left(&history), [7, 9]);
}

/// Two numbers, each durable from the end of the epoch in which it was set.
struct Pair;

#[derive(Clone, Debug, Hash)]
enum PairOperation {
    Set(usize, u64),
    EndEpoch,
}

impl Subject for Pair {
    type Operation = PairOperation;
    type Outcome = ();
    type State = [u64; 2];
    type Instance = ();

    fn initial(&self) -> [u64; 2] {
        [0; 2]
    }

    fn step(&self, state: &mut [u64; 2], operation: &PairOperation) {
        if let PairOperation::Set(part, value) = operation {
            state[*part] = *value;
        }
    }

    fn durability(&self, operation: &PairOperation) -> DurabilityContract {
        match operation {
            PairOperation::Set(..) => DurabilityContract::WithEpoch,
            PairOperation::EndEpoch => DurabilityContract::OnReturn,
        }
    }

    fn is_same_part(&self, part: u64, one: &[u64; 2], other: &[u64; 2]) -> bool {
        one[part as usize] == other[part as usize]
    }

    fn copy_part(&self, part: u64, from: &[u64; 2], to: &mut [u64; 2]) {
        to[part as usize] = from[part as usize];
    }

    fn is_whole(&self, operation: &PairOperation) -> bool {
        matches!(operation, PairOperation::EndEpoch)
    }

    fn open(&self, _: &Sim) -> Result<(), Complaint> {
        Ok(())
    }

    fn apply(&self, _state: &mut (), _: &PairOperation) -> Result<(), Complaint> {
        Err("never called".to_owned())
    }

    fn observe(&self, _state: &mut ()) -> Result<[u64; 2], Complaint> {
        Err("never called".to_owned())
    }
}

#[test]
fn an_epoch_ends_for_all_parts_at_once() {
    let step = |part, operation: &PairOperation| PartCall {
        part,
        operation: operation.clone(),
        outcome: None,
    };
    let call = |operation: PairOperation| {
        let parts = match operation {
            PairOperation::Set(part, _) => part as u64..part as u64 + 1,
            PairOperation::EndEpoch => 0..2,
        };
        Call {
            steps: parts.map(|part| step(part, &operation)).collect(),
            operation,
        }
    };
    let calls = [
        PairOperation::Set(0, 7),
        PairOperation::Set(1, 9),
        PairOperation::EndEpoch,
    ];
    let mut calls: Vec<_> = calls.map(call).into();
    calls[0].steps[0].outcome = Some(());
    calls[1].steps[0].outcome = Some(());
    let mut history = History::new([0; 2], Rc::new(calls));
    for number in 0..2 {
        history.invoke(&Pair, number);
        history.respond(&Pair, number).unwrap();
    }
    history.invoke(&Pair, 2);
    let expected = history.expected(&Pair);
    let found = [[0, 0], [7, 9], [7, 0], [0, 9]].map(|state| expected.accepts(&Pair, &state));
    assert_eq!(found, [true, true, false, false], "{}", expected.describe());
}
