use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::sync::schedule::{Access, Scheduler};

struct Nobody;

impl Scheduler for Nobody {
    fn reach(&self, _access: Access) {}
    fn contend(&self) {}
}

#[test]
fn what_is_retired_is_freed_with_the_last_pin_that_was_there() {
    let freed = Arc::new(AtomicU32::new(0));
    let retire = |pin: &Pin| {
        let freed = Arc::clone(&freed);
        pin.defer(move || {
            freed.fetch_add(1, Ordering::Relaxed);
        });
    };
    let count = || freed.load(Ordering::Relaxed);
    let scheduler: Rc<dyn Scheduler> = Rc::new(Nobody);
    schedule::enter(&scheduler, 0, || {
        let first = pin();
        let second = pin();
        retire(&first);
        let third = pin();
        retire(&third);
        drop(first);
        assert_eq!(count(), 0);
        drop(second);
        assert_eq!(count(), 1);
        let fourth = pin();
        drop(third);
        assert_eq!(count(), 2);
        retire(&fourth);
        drop(fourth);
        assert_eq!(count(), 3);
    });
}
