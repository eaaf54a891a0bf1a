use super::*;

/// A line that starts where lines start.
#[repr(align(64))]
struct Aligned([AtomicU64; 8]);

struct StopOnDrop<'s>(&'s AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `write` with 1, 2, 3, ... in a thread, until `look` has seen many different states beside
/// it.
fn beside(write: impl Fn(u64) + Sync, mut look: impl FnMut() -> u64) {
    const STATES: u32 = 300;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while !stop.load(Ordering::Relaxed) {
                round += 1;
                write(round);
            }
        });
        // The writer also stops when `look` panics.
        let _stop = StopOnDrop(&stop);
        let mut before = 0;
        let mut states = 0;
        while states < STATES {
            let seen = look();
            states += u32::from(seen != before);
            if seen == before {
                std::thread::yield_now();
            }
            before = seen;
        }
    });
}

#[test]
fn a_capture_is_a_prefix_of_the_stores() {
    for wanted in [false, true] {
        let lines = LineCapture::new(wanted, 0, Private::new(u64::MAX));
        let line = Aligned(std::array::from_fn(|_| AtomicU64::new(0)));
        beside(
            // From the last word to the first, against the order in which a loop would capture.
            |round| {
                (0..8)
                    .rev()
                    .for_each(|index| lines.store(&line.0[index], round));
            },
            || {
                let value = lines.capture(&line.0).0;
                assert!(value[7] - value[0] <= 1, "no instant had {value:?}");
                assert!(value.is_sorted(), "no prefix of the stores: {value:?}");
                value[7]
            },
        );
    }
}

#[test]
fn a_line_store_is_captured_whole() {
    let lines = LineCapture::new(true, 0, Private::new(u64::MAX));
    let line = Aligned(std::array::from_fn(|_| AtomicU64::new(0)));
    beside(
        |round| lines.store_line(&line.0, &LineValue([round; 8])).unwrap(),
        || {
            let value = lines.capture(&line.0).0;
            assert!(
                value.iter().all(|word| *word == value[0]),
                "torn: {value:?}"
            );
            value[0]
        },
    );
}
