//! Views of a pool beside its writer: between any two operations of the writer on its files, views are
//! opened, and those that are current show the moment at which they were opened.

use parking_lot::Mutex;

use super::*;
use crate::file::in_place::{PoolUse, ViewedPool};
use crate::io::write_all;
use crate::testing::mutant::{Mutant, plant};

/// A view, and the content that it had when it was opened.
struct SeenView {
    viewed: ViewedPool,
    content: Content,
    /// Whether the pool's file was written since.
    is_tried: bool,
}

/// The views of a pool, and what may be seen in them.
struct Seen {
    machine: Arc<Machine>,
    random: SmallRng,
    /// The content after each fence.
    history: Vec<Content>,
    /// The entry of the history that is acknowledged.
    least: usize,
    views: Vec<SeenView>,
    opened: u32,
    refused: u32,
    overtaken: u32,
    /// How often a view was current after the pool's file had been written.
    believed: u32,
}

impl Seen {
    /// Looks at all views, and opens another one now and then.
    fn look(&mut self, is_home_written: bool) {
        let mut kept = Vec::new();
        for mut view in std::mem::take(&mut self.views) {
            view.is_tried |= is_home_written;
            let found = content_of(&view.viewed.image);
            if view.viewed.in_place.is_current().unwrap() {
                assert!(found.as_ref() == Some(&view.content), "a view has changed");
                self.believed += u32::from(view.is_tried);
                kept.push(view);
            } else {
                self.overtaken += 1;
            }
        }
        self.views = kept;
        if self.views.len() < 4 && self.random.random_ratio(1, 4) {
            self.open();
        }
    }

    fn open(&mut self) {
        let pool = self.machine.io(Which::Pool);
        let log = self.machine.io(Which::Log);
        let options = options();
        let viewed = File::view_on(pool, Some(log), None, PoolUse::Written, options);
        let Ok(Some(viewed)) = viewed else {
            self.refused += 1;
            return;
        };
        self.opened += 1;
        let content = content_of(&viewed.image).unwrap();
        assert!(viewed.in_place.is_current().unwrap());
        let moment = self.history.iter().rposition(|known| *known == content);
        assert!(
            moment.is_some_and(|moment| moment >= self.least),
            "a view of no moment since the last acknowledged write"
        );
        self.views.push(SeenView {
            viewed,
            content,
            is_tried: false,
        });
    }
}

/// A writer that writes, settles and checkpoints, beside such views.
fn write_beside_views(seed: u64) -> Seen {
    let machine = Machine::new(&Image::default());
    let mut random = SmallRng::seed_from_u64(seed);
    let seen = Arc::new(Mutex::new(Seen {
        machine: Arc::clone(&machine),
        random: SmallRng::seed_from_u64(random.random()),
        history: vec![vec![0; WORDS]],
        least: 0,
        views: Vec::new(),
        opened: 0,
        refused: 0,
        overtaken: 0,
        believed: 0,
    }));
    let looked_at = |which: Which| -> Arc<dyn Io> {
        let seen = Arc::clone(&seen);
        let hook = move |call| {
            let is_home_written = matches!(which, Which::Pool) && call == FileCall::Write;
            seen.lock().look(is_home_written);
        };
        Arc::new(Hooked::new(machine.io(which), hook))
    };
    let pool = looked_at(Which::Pool);
    let log = looked_at(Which::Log);
    let file = File::open_with_fresh_log(pool, log, options()).unwrap();
    for number in 1..=120 {
        let mut content = seen.lock().history.last().unwrap().clone();
        let guard = MediumGuard::new(&file);
        let words = guard.words(HERE, WORDS).unwrap();
        let first = random.random_range(0..WORDS / 8);
        for line in first..first + random.random_range(1..40) {
            let index = line * 8 % WORDS;
            words[index].publish(&guard, number);
            content[index] = number;
        }
        let lsn = guard.fence();
        drop(guard);
        seen.lock().history.push(content);
        if random.random_ratio(1, 2) {
            file.settle(lsn).unwrap();
            let mut seen = seen.lock();
            seen.least = seen.history.len() - 1;
        }
        if random.random_ratio(1, 6) {
            file.checkpoint().unwrap();
        }
    }
    drop(file);
    let mut seen = Arc::into_inner(seen).unwrap().into_inner();
    seen.look(false);
    seen
}

#[test]
fn a_current_view_is_one_moment_whatever_the_writer_does() {
    let mut opened = 0;
    let mut overtaken = 0;
    let mut believed = 0;
    for seed in 0..12 {
        let seen = write_beside_views(seed);
        opened += seen.opened;
        overtaken += seen.overtaken;
        believed += seen.believed;
    }
    assert!(
        opened > 100 && overtaken > 100 && believed > 100,
        "{opened} opened, {overtaken} overtaken, {believed} believed"
    );
}

#[test]
fn views_need_the_announcement_of_a_checkpoint() {
    plant(Some(Mutant::Unannounced));
    let written =
        std::panic::catch_unwind(|| (0..12).for_each(|seed| drop(write_beside_views(seed))));
    plant(None);
    assert!(
        written.is_err(),
        "nobody notices a checkpoint that is not announced"
    );
}

fn view(rig: &Rig) -> Option<ViewedPool> {
    let log = Some(rig.machine.io(Which::Log));
    let pool = rig.machine.io(Which::Pool);
    File::view_on(pool, log, None, PoolUse::Written, options()).unwrap()
}

/// After a failed sync the system may show frames that never reach the disk. If they are gone when the
/// pool is opened again, the log goes on before the end of a view that has them.
#[test]
fn a_view_of_frames_that_were_lost_is_overtaken_by_the_next_session() {
    let mut rig = Rig::new();
    rig.write(0, 8);
    rig.settle();
    let synced = rig.history.last().unwrap().1.0;
    rig.write(8, 8);
    rig.settle();
    let viewed = view(&rig).unwrap();
    let end = rig.file().core.end();
    rig.file = None;
    let lost = vec![0; (end - synced) as usize];
    write_all(&*rig.machine.io(Which::Log), &lost, layout::RING + synced).unwrap();

    rig.history.pop();
    rig.file = Some(open(&rig.machine).unwrap());
    rig.write(16, 4);
    rig.settle();
    assert!(viewed.in_place.is_current().unwrap());
    rig.file().checkpoint().unwrap();
    assert!(rig.file().core.log.start() < end);
    assert!(!viewed.in_place.is_current().unwrap());
    assert!(view(&rig).is_some());
}

/// A process that closes the pool, or opens it again, overtakes views of the session before.
#[test]
fn a_view_ends_with_the_session_of_the_writer() {
    let mut rig = Rig::new();
    rig.write(0, 8);
    rig.settle();
    let viewed = view(&rig).unwrap();
    // Another process recovers the pool: nothing changes.
    rig.kill();
    assert!(viewed.in_place.is_current().unwrap());
    assert_eq!(
        content_of(&viewed.image),
        Some(rig.history.last().unwrap().0.clone())
    );
    let file = rig.file.take().unwrap();
    file.finish().unwrap();
    drop(file);
    assert!(!viewed.in_place.is_current().unwrap());
    // A pool that was closed has no log that could tell when it is written.
    assert!(view(&rig).is_none());
}
