use super::*;
use crate::testing::Late;
use crate::testing::late::Release;
use crate::{Guard, LineForm, Medium};

#[test]
fn waits_are_noted_and_not_waited_for() {
    let late = Late::new(1 << 16, LineForm::Single).unwrap();
    late.grow(4096).unwrap();
    late.set_release(Release::Manual);
    let guard = Guard::new(&late);
    let write = |value| {
        guard.words(64, 1).unwrap()[0].publish(&guard, value);
        guard.drain()
    };
    let (result, lsn) = deferred(|| write(1).and_then(|()| write(2)));
    result.unwrap();
    assert_eq!((lsn, late.durable()), (late.fenced(), Lsn::DURABLE));
    assert_eq!(deferred(|| ()).1, Lsn::DURABLE);
    late.release_all();
    guard.wait(lsn).unwrap();
    let caught = std::panic::catch_unwind(|| deferred(|| panic!("on purpose")));
    assert!(caught.is_err() && !defer(lsn), "a panic ends it");
}
