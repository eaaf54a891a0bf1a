use std::sync::Arc;

use super::*;
use crate::sync::model;

#[test]
fn a_share_and_the_lock_alone_exclude_each_other() {
    model(|| {
        let shared = Arc::new((
            AnnouncedWord::default(),
            SharedLock::default(),
            loom::cell::UnsafeCell::new(0),
        ));
        let other = Arc::clone(&shared);
        let thread = loom::thread::spawn(move || {
            let (word, lock, value) = &*other;
            if let Some(_share) = announce(word, lock) {
                // SAFETY: loom finds an access at the same time; that none happens is what is
                // tested.
                value.with_mut(|value| unsafe { *value += 1 });
            }
        });
        let (word, lock, value) = &*shared;
        {
            let _alone = lock.lock();
            wait_for(std::iter::once(word), &[lock.address()]);
            // SAFETY: as above.
            value.with_mut(|value| unsafe { *value += 1 });
        }
        thread.join().expect("the thread ends");
    });
}
