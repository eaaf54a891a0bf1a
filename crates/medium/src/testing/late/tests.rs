use std::time::Duration;

use super::{Late, Release};
use crate::{LineForm, Lsn, Medium, MediumGuard};

const LIMIT: u64 = 1 << 20;
const SOON: Duration = Duration::from_secs(20);

fn late() -> Late {
    let late = Late::new(LIMIT, LineForm::Single).unwrap();
    late.grow(4096).unwrap();
    late.set_release(Release::Manual);
    late
}

fn after_crash(late: &Late, up_to: Lsn, offset: u64) -> u64 {
    let reopened = Late::from_image(&late.image(up_to), LIMIT, LineForm::Single).unwrap();
    let guard = MediumGuard::new(&reopened);
    guard.words(offset, 1).unwrap()[0].load(&guard)
}

#[test]
fn a_crash_takes_back_what_was_not_released() {
    let late = late();
    let guard = MediumGuard::new(&late);
    let word = &guard.words(64, 1).unwrap()[0];
    word.publish(&guard, 1);
    let first = guard.fence();
    word.publish(&guard, 2);
    let second = guard.fence();
    word.store(&guard, 3);
    assert!(Lsn::DURABLE < first && first < second && late.fenced() == second);
    assert_eq!(word.load(&guard), 3);
    assert_eq!(
        [Lsn(0), first, second].map(|up_to| after_crash(&late, up_to, 64)),
        [0, 1, 2]
    );
    late.release(first);
    assert_eq!((late.durable(), after_crash(&late, Lsn(0), 64)), (first, 1));
    late.release_all();
    // The store was neither flushed nor fenced, so it is not durable, however long ago it was.
    assert_eq!(
        (late.durable(), after_crash(&late, late.fenced(), 64)),
        (second, 2)
    );
}

#[test]
fn notes_belong_to_their_guard() {
    let late = late();
    let flushing = MediumGuard::new(&late);
    let fencing = MediumGuard::new(&late);
    flushing.words(64, 1).unwrap()[0].publish(&flushing, 1);
    let foreign = fencing.fence();
    assert_eq!(after_crash(&late, foreign, 64), 0);
    let own = flushing.fence();
    assert_eq!(after_crash(&late, own, 64), 1);
}

#[test]
fn a_waiting_thread_is_seen_and_woken() {
    let late = late();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (1..=2)
            .map(|line| {
                let late = &late;
                scope.spawn(move || {
                    let guard = MediumGuard::new(late);
                    guard.words(64 * line, 1).unwrap()[0].publish(&guard, line);
                    guard.drain().unwrap();
                    late.durable()
                })
            })
            .collect();
        assert!(late.until_waiting(2, SOON));
        assert_eq!(late.waiting(), [Lsn(1), Lsn(2)]);
        assert!(!late.until_waiting(3, Duration::from_millis(5)));
        late.release(Lsn(1));
        late.release_all();
        for waiter in waiters {
            assert!(waiter.join().unwrap() >= Lsn(1));
        }
    });
    assert!(late.waiting().is_empty());
}

#[test]
fn groups_are_released_after_fences_or_a_delay() {
    let late = late();
    late.set_release(Release::After {
        fences: 2,
        delay: Duration::from_millis(2),
    });
    let guard = MediumGuard::new(&late);
    let lsns: Vec<Lsn> = (0..4).map(|_| guard.fence()).collect();
    assert_eq!(late.durable(), lsns[1]);
    // No further fence comes, so the delay must release the group.
    guard.wait(lsns[3]).unwrap();
    assert_eq!(late.durable(), lsns[3]);
}

#[test]
fn waiting_for_what_was_never_fenced_is_an_error() {
    assert!(late().wait(Lsn(9)).is_err());
}
