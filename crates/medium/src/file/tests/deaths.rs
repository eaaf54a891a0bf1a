//! Processes that end between two operations on the files: while they open, write, grow, checkpoint
//! or close. The next process finds the files as the system shows them, durable or not, and goes on
//! from there. Then the power fails.

use super::*;

/// Runs a process that ends before its call number `at`, and another one after it. Returns whether
/// the first one had that many calls.
fn die_at(at: u64) -> bool {
    let what = ("a death before call", at);
    let mut random = SmallRng::seed_from_u64(at);
    let machine = Machine::new(&Image::default());
    machine.set_faults(Faults {
        dies: Some(at),
        ..Faults::default()
    });
    let mut rig = Rig::to_live(machine);
    let ended = rig.try_live();
    rig.file = None;
    rig.machine.set_faults(Faults::default());
    let now = rig.machine.now();
    rig.go_on(&what);
    rig.verify(now, [64, 512][at as usize % 2], 6, &mut random, &what);
    ended.is_err()
}

#[test]
fn wherever_a_process_ends_the_next_one_may_lose_power() {
    die_before(stride(3));
}

/// Lets a process end before each call whose number is a multiple of `each`.
pub(super) fn die_before(each: usize) {
    let deaths = (0..1000).step_by(each).take_while(|at| die_at(*at)).count();
    assert!(deaths * each > 80, "only {} calls", deaths * each);
}
