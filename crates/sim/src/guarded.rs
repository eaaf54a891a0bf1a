//! Runs code that may panic, and turns a panic into a complaint.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

use medium::sim::StepLimitExceeded;
use medium::testing::panic_text;

use crate::subject::Complaint;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn message_of(info: &PanicHookInfo<'_>) -> String {
    let place = info
        .location()
        .map_or_else(String::new, |place| format!(" at {place}"));
    match panic_text(info.payload()) {
        Some(text) => format!("panicked{place}: {text}"),
        None => format!("panicked{place}"),
    }
}

/// Panics inside of [`guarded`] print nothing; all others print what they printed before.
fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if QUIET.with(Cell::get) {
                MESSAGE.with(|message| *message.borrow_mut() = Some(message_of(info)));
            } else {
                before(info);
            }
        }));
    });
}

/// Calls `work`; a panic in it becomes a complaint.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, Complaint>) -> Result<T, Complaint> {
    install_hook();
    let before = QUIET.with(|quiet| quiet.replace(true));
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.with(|quiet| quiet.set(before));
    result.unwrap_or_else(|payload| {
        let message = MESSAGE.with(|message| message.borrow_mut().take());
        if payload.is::<StepLimitExceeded>() {
            return Err("did not end within the step limit: a loop, or close to one".to_owned());
        }
        Err(message.unwrap_or_else(|| "panicked".to_owned()))
    })
}

#[cfg(test)]
mod tests;
