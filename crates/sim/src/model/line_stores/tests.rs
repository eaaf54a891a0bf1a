use std::panic::Location;

use super::*;

#[test]
fn a_line_store_and_another_store_have_a_fence_between() {
    let site = Location::caller();
    let word = |line: u32, thread| Event::Store {
        word: 8 * line + 3,
        value: 1,
        exchanged: false,
        thread,
        site,
    };
    let whole = |line, thread| Event::StoreLine {
        line,
        value: 0,
        thread,
        site,
    };
    let fence = |thread| Event::Fence {
        notes: 0,
        lsn: 0,
        thread,
        site,
    };
    let is_misused = |events: &[Event]| {
        misused(&Trace {
            events: events.to_vec(),
            ..Trace::default()
        })
        .is_some()
    };
    assert!(is_misused(&[whole(1, 0), whole(1, 0)]));
    assert!(is_misused(&[whole(1, 0), word(1, 0)]) && is_misused(&[word(1, 0), whole(1, 0)]));
    assert!(
        is_misused(&[whole(1, 0), fence(1), whole(1, 1)]),
        "a fence of another thread"
    );
    assert!(!is_misused(&[
        word(1, 0),
        word(1, 0),
        whole(2, 0),
        word(3, 0)
    ]));
    assert!(!is_misused(&[
        whole(1, 0),
        fence(0),
        whole(1, 1),
        fence(1),
        word(1, 0)
    ]));
}
