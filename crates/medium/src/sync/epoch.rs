//! Epochs: when retired memory may be reused.
//!
//! Without a scheduler this is `crossbeam-epoch`, with a collector of our own: the child of a fork
//! begins with a new one. In the old one, threads of the parent may be pinned for ever, and calls
//! wait that were meant for the parent's memory.
//!
//! Under a scheduler, epochs are counted per thread of the
//! system, not of the process, and *exactly*: memory is freed at the moment when the last of the
//! pins ends that existed when it was retired. No collector may free it earlier, so a test finds
//! code that relies on a later time. And it happens at the same place in each run of a schedule,
//! whatever other tests of the process do.

use std::cell::{RefCell, UnsafeCell};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use super::schedule::Access;
use super::{is_scheduled, schedule};
use crate::Medium;
use crate::made_once::MadeOnce;

/// Keeps memory that is retired meanwhile from being reused, until it is dropped.
pub struct Pin(Inner);

enum Inner {
    Epoch(crossbeam_epoch::Guard),
    Counted { _until_dropped: CountedPin },
}

/// A pin under a scheduler.
struct CountedPin {
    serial: u64,
    /// It belongs to this thread of the system.
    not_send: PhantomData<*const ()>,
}

type Deferred = Box<dyn FnOnce()>;

#[derive(Default)]
struct Collector {
    /// The serial numbers of pins and of retirements, ascending.
    next_serial: u64,
    /// Pins that have not ended, ascending.
    pinned: Vec<u64>,
    /// Deferred calls, each with the serial number of its retirement, ascending.
    deferred: Vec<(u64, Deferred)>,
}

thread_local! {
    static COLLECTOR: RefCell<Collector> = RefCell::default();
}

impl Inner {
    fn counted() -> Self {
        Self::Counted {
            _until_dropped: CountedPin::new(),
        }
    }
}

impl Collector {
    fn serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }

    /// Takes the calls whose memory no thread can reach any more.
    fn take_free(&mut self) -> Vec<(u64, Deferred)> {
        let oldest = self.pinned.first().copied().unwrap_or(u64::MAX);
        let free = self
            .deferred
            .partition_point(|(serial, _)| *serial < oldest);
        self.deferred.drain(..free).collect()
    }
}

impl CountedPin {
    fn new() -> Self {
        let serial = COLLECTOR.with_borrow_mut(|collector| {
            let serial = collector.serial();
            collector.pinned.push(serial);
            serial
        });
        Self {
            serial,
            not_send: PhantomData,
        }
    }
}

impl Drop for CountedPin {
    fn drop(&mut self) {
        let free = COLLECTOR.with_borrow_mut(|collector| {
            collector.pinned.retain(|serial| *serial != self.serial);
            collector.take_free()
        });
        if !free.is_empty() {
            schedule::reach(Access::free_memory());
        }
        // The collector is not borrowed here, since the calls may pin and retire.
        for (_, call) in free {
            call();
        }
    }
}

/// Forgets all pins and all calls that wait for them.
pub(super) fn forget() {
    COLLECTOR.with_borrow_mut(|collector| {
        collector.pinned.clear();
        for deferred in std::mem::take(&mut collector.deferred) {
            std::mem::forget(deferred);
        }
    });
}

/// Pins the calling thread. It asks whether a scheduler runs, so it is for rare operations; a guard
/// knows it from its medium.
pub fn pin() -> Pin {
    if schedule::is_running() {
        Pin(Inner::counted())
    } else {
        epoch_pin()
    }
}

/// Pins the calling thread, as a guard of a medium `M` does.
#[inline(always)]
pub fn pin_on<M: Medium>() -> Pin {
    if is_scheduled::<M>() {
        Pin(Inner::counted())
    } else {
        epoch_pin()
    }
}

#[inline(always)]
fn epoch_pin() -> Pin {
    let guard = OWN_HANDLE.with(|own| {
        // SAFETY: see `OwnHandle`. Nothing that `pin` calls sets the handle: it runs deferred calls,
        // and these may pin, but the thread has a handle already.
        let handle = unsafe { &*own.handle.get() };
        handle.as_ref().map(|handle| handle.pin())
    });
    Pin(Inner::Epoch(guard.unwrap_or_else(first_pin)))
}

/// The collector of this process, made when it is first asked for.
static OF_PROCESS: MadeOnce<crossbeam_epoch::Collector> = MadeOnce::new();

fn collector() -> &'static crossbeam_epoch::Collector {
    OF_PROCESS.get_or_make(crossbeam_epoch::Collector::new)
}

/// The participant of a thread, from its first pin on. It has no destructor, so that the handler of
/// a fork may forget it. Only its own thread accesses it, and keeps no reference to it across a
/// change.
struct OwnHandle {
    handle: UnsafeCell<Option<ManuallyDrop<crossbeam_epoch::LocalHandle>>>,
}

thread_local! {
    static OWN_HANDLE: OwnHandle = const { OwnHandle { handle: UnsafeCell::new(None) } };
    static UNREGISTER: Unregister = const { Unregister };
}

/// Unregisters the participant of a thread when the thread ends.
struct Unregister;

impl Drop for Unregister {
    fn drop(&mut self) {
        // SAFETY: see `OwnHandle`.
        let handle = OWN_HANDLE.with(|own| unsafe { &mut *own.handle.get() }.take());
        // The handle is dropped when it is not in its place any more: the drop may run deferred
        // calls, which may pin.
        if let Some(handle) = handle {
            drop(ManuallyDrop::into_inner(handle));
        }
    }
}

/// Pins a thread that has no participant.
#[cold]
fn first_pin() -> crossbeam_epoch::Guard {
    let handle = collector().register();
    let guard = handle.pin();
    let is_ending = UNREGISTER.try_with(|_| ()).is_err();
    if !is_ending {
        // SAFETY: see `OwnHandle`. The place is empty, so nothing is dropped.
        OWN_HANDLE.with(|own| unsafe { *own.handle.get() = Some(ManuallyDrop::new(handle)) });
    }
    guard
}

/// Forgets the collector of the parent, in the child of a fork.
pub(super) fn begin_anew() {
    OF_PROCESS.forget();
    // SAFETY: see `OwnHandle`. The old handle has no destructor.
    OWN_HANDLE.with(|own| unsafe { *own.handle.get() = None });
}

impl Pin {
    /// Calls `call` once no thread that is pinned now is so any more. It may be called on any
    /// thread.
    pub fn defer(&self, call: impl FnOnce() + Send + 'static) {
        match &self.0 {
            Inner::Epoch(pin) => pin.defer(call),
            Inner::Counted { .. } => COLLECTOR.with_borrow_mut(|collector| {
                let serial = collector.serial();
                collector.deferred.push((serial, Box::new(call)));
            }),
        }
    }

    /// Hands over what this thread has deferred, for any thread to call.
    pub fn flush(&self) {
        if let Inner::Epoch(pin) = &self.0 {
            pin.flush();
        }
    }
}

#[cfg(test)]
mod tests;
