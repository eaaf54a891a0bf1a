//! Disks that fail: at every write, at every sync, from every write on; and a leader that panics.

use super::*;

impl Rig {
    /// A rig that has written nothing yet.
    pub(super) fn to_live(machine: Arc<Machine>) -> Self {
        let history = vec![(vec![0; WORDS], Lsn::DURABLE)];
        let acknowledged = vec![(0, 0)];
        Self {
            machine,
            options: options(),
            file: None,
            history,
            acknowledged,
            next: 1,
            far: true,
        }
    }

    /// Another process opens the files as the last one left them in the page cache, and goes on.
    pub(super) fn go_on(&mut self, what: &dyn std::fmt::Debug) {
        let mut live = || {
            self.try_open()?;
            self.write(3, 4);
            self.try_settle()?;
            self.write(5, 1);
            self.file()
                .grow(self.file().extent().length() + (1 << 16))?;
            self.write(4, 4);
            self.try_settle()
        };
        live().unwrap_or_else(|error: MediumError| panic!("{what:?}: {error}"));
    }

    pub(super) fn try_settle(&mut self) -> Result<(), MediumError> {
        self.file().settle(self.history.last().unwrap().1)?;
        self.acknowledged
            .push((self.machine.now(), self.history.len() - 1));
        Ok(())
    }

    pub(super) fn try_open(&mut self) -> Result<(), MediumError> {
        self.file = None;
        let file = open_with(&self.machine, self.options)?;
        self.found(&content(&file));
        self.file = Some(file);
        self.acknowledged
            .push((self.machine.now(), self.history.len() - 1));
        Ok(())
    }

    /// Does everything that the medium ever does to its files: a log is made, is written, wraps
    /// around, grows, is taken over by another process, is checkpointed and removed.
    pub(super) fn try_live(&mut self) -> Result<(), MediumError> {
        self.try_open()?;
        for round in 0..8 {
            self.write(7 * round, 140);
            self.try_settle()?;
        }
        self.file().grow(3 << 16)?;
        self.write(0, 1);
        self.try_settle()?;
        self.options.log_bytes_max *= 2;
        self.try_open()?;
        for round in 0..6 {
            self.write(9 * round, 140);
            self.try_settle()?;
        }
        self.file().checkpoint()?;
        self.file().seal()?;
        for _ in 0..3 {
            self.write(5, 2);
            // This group is fenced, and no thread waits for it.
            self.write(6, 2);
            self.try_open()?;
        }
        self.write(3, 3);
        let file = self.file.take().expect("open");
        let finished = file.finish();
        drop(file);
        finished?;
        self.try_open()
    }
}

/// Does everything on a disk with one fault, and checks what is left. Returns whether the fault
/// came.
fn live_with(faults: Faults, what: &dyn std::fmt::Debug) -> bool {
    let machine = Machine::new(&Image::default());
    machine.set_faults(faults);
    let mut rig = Rig::to_live(machine);
    let ended = rig.try_live();
    if let Err(error) = &ended
        && let Some(file) = &rig.file
    {
        let is_full = matches!(error, MediumError::Full { .. });
        assert!(
            is_full || matches!(error, MediumError::Failed(_)),
            "{what:?}: {error}"
        );
        // The disk works again, but its content is unknown.
        rig.machine.set_faults(Faults::default());
        assert_eq!(file.checkpoint().is_err(), !is_full, "{what:?}");
    }
    rig.file = None;
    rig.machine.set_faults(Faults::default());
    let mut random = SmallRng::seed_from_u64(1);
    let now = rig.machine.now();
    // A header that a failed sync kept from the disk matters only if the other copy is torn.
    let piece_bytes = if faults.sync.is_some() { 64 } else { 512 };
    rig.verify(now, piece_bytes, 4, &mut random, what);
    rig.go_on(what);
    rig.verify(now, piece_bytes, 3, &mut random, what);
    ended.is_err()
}

#[test]
fn whatever_fails_nothing_acknowledged_is_lost() {
    fail_at(stride(3));
}

/// Lets each sync fail, and each write whose number is a multiple of `each`.
pub(super) fn fail_at(each: usize) {
    let mut rig = Rig::to_live(Machine::new(&Image::default()));
    rig.try_live().unwrap();
    let (writes, syncs) = rig.machine.counts();
    assert!(writes > 40 && syncs > 35, "{writes} writes, {syncs} syncs");
    let mut failed = 0;
    for at in 0..syncs {
        let faults = Faults {
            sync: Some(at),
            ..Faults::default()
        };
        failed += u64::from(live_with(faults, &("sync", at)));
    }
    assert_eq!(failed, syncs, "a sync that failed and that nobody heard of");
    for at in (0..writes).step_by(each) {
        let short = if at % 2 == 0 { None } else { Some(700) };
        live_with(
            Faults {
                write: Some(at),
                short,
                ..Faults::default()
            },
            &("write", at),
        );
        live_with(
            Faults {
                full_from: Some(at),
                ..Faults::default()
            },
            &("full from write", at),
        );
    }
}

#[test]
fn a_failure_is_final() {
    for fault in [
        Faults {
            sync: Some(0),
            ..Faults::default()
        },
        Faults {
            write: Some(0),
            ..Faults::default()
        },
        Faults {
            full_from: Some(0),
            ..Faults::default()
        },
    ] {
        let mut rig = Rig::new();
        rig.write(0, 3);
        rig.settle();
        rig.write(3, 2);
        let lsn = rig.history.last().unwrap().1;
        rig.machine.set_faults(fault);
        assert!(
            matches!(rig.file().settle(lsn), Err(MediumError::Failed(_))),
            "{fault:?}"
        );
        // The disk works again, but its content is unknown.
        rig.machine.set_faults(Faults::default());
        assert!(matches!(
            rig.file().settle(lsn),
            Err(MediumError::Failed(_))
        ));
        assert!(matches!(
            rig.file().grow(1 << 20),
            Err(MediumError::Failed(_))
        ));
        assert!(matches!(
            rig.file().checkpoint(),
            Err(MediumError::Failed(_))
        ));
        assert!(matches!(rig.file().finish(), Err(MediumError::Failed(_))));
        {
            let guard = MediumGuard::new(rig.file());
            let words = guard.words(HERE, 1).unwrap();
            words[0].publish(&guard, 99);
            assert!(matches!(guard.drain(), Err(MediumError::Failed(_))));
        }
        // Writes that were acknowledged before stay so, and a reader of them need not wait.
        rig.file().settle(rig.history[1].1).unwrap();
        let from = rig.machine.now();
        rig.verify(from, 512, 16, &mut SmallRng::seed_from_u64(1), &fault);
        rig.kill();
    }
}

/// The system reports a lost write only once, to the next thread that syncs: here to the thread
/// that writes the header.
#[test]
fn a_sync_that_failed_for_one_has_failed_for_all() {
    let mut rig = Rig::new();
    rig.write(0, 3);
    let lsn = rig.history.last().unwrap().1;
    rig.machine.set_faults(Faults {
        sync: Some(0),
        ..Faults::default()
    });
    assert!(rig.file().core.log.update(|_| ()).is_err());
    rig.machine.set_faults(Faults::default());
    assert!(matches!(
        rig.file().settle(lsn),
        Err(MediumError::Failed(_))
    ));
    assert!(matches!(
        rig.file().checkpoint(),
        Err(MediumError::Failed(_))
    ));
    rig.kill();
}

#[test]
fn what_a_failed_sync_left_is_written_again_before_it_is_shown() {
    let mut rig = Rig::new();
    rig.write(0, 1);
    rig.settle();
    rig.write(1, 1);
    let lsn = rig.history.last().unwrap().1;
    rig.machine.set_faults(Faults {
        sync: Some(0),
        ..Faults::default()
    });
    rig.file().settle(lsn).unwrap_err();
    rig.machine.set_faults(Faults::default());
    // The files still show the write, so the next open replays it, and makes it durable before it
    // returns.
    rig.kill();
    assert_eq!(rig.history.len(), 3);
    let crash = rig.machine.crash(rig.machine.now(), 512);
    let old = vec![0; crash.choices().len()];
    let file = open(&Machine::new(&crash.image(&old))).unwrap();
    assert_eq!(content(&file), rig.history[2].0);
}

/// No thread waits for a leader that has ended.
#[test]
fn a_leader_that_panics_is_a_failure_for_all() {
    let machine = Machine::new(&Image::default());
    let file = open(&machine).unwrap();
    let write = |line: u64| {
        let guard = MediumGuard::new(&file);
        guard.words(HERE + 64 * line, 1).unwrap()[0].publish(&guard, 1);
        guard.drain()
    };
    write(0).unwrap();
    machine.set_faults(Faults {
        panic: Some(0),
        ..Faults::default()
    });
    let ended: Vec<std::thread::Result<_>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..5)
            .map(|line| scope.spawn(move || write(line)))
            .collect();
        threads
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect()
    });
    assert_eq!(
        ended.iter().filter(|ended| ended.is_err()).count(),
        1,
        "one of them led"
    );
    for result in ended.into_iter().flatten() {
        assert!(
            matches!(&result, Err(MediumError::Failed(why)) if why.contains("panicked")),
            "{result:?}"
        );
    }
    assert!(write(5).is_err());
    drop(file);
    let words = content(&open(&machine).unwrap());
    assert_eq!(words[0], 1);
}

/// While a growth fails for lack of room, the file is longer for a moment.
#[test]
fn a_checkpoint_beside_a_growth_that_fails_does_not_believe_it() {
    let machine = Machine::new(&Image::default());
    let growing = Arc::new(std::sync::OnceLock::<std::sync::Weak<File>>::new());
    let beside = Arc::clone(&growing);
    let hook = move |call| {
        if call == FileCall::Truncate {
            let file = beside
                .get()
                .and_then(std::sync::Weak::upgrade)
                .expect("open");
            file.checkpoint().unwrap();
        }
    };
    let pool = Hooked::new(machine.io(Which::Pool), hook);
    let file = Arc::new(File::open(Arc::new(pool), machine.io(Which::Log), options()).unwrap());
    growing.set(Arc::downgrade(&file)).unwrap();
    let guard = MediumGuard::new(&*file);
    guard.words(HERE, 1).unwrap()[0].publish(&guard, 5);
    guard.drain().unwrap();
    drop(guard);
    machine.set_faults(Faults {
        no_room: true,
        ..Faults::default()
    });
    assert!(matches!(file.grow(1 << 20), Err(MediumError::Full { .. })));
    assert_eq!(file.stat().checkpoints, 1);
    drop(file);
    machine.set_faults(Faults::default());
    assert_eq!(content(&open(&machine).unwrap())[0], 5);
}
