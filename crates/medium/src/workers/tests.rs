use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;

use super::*;

/// Longer than any test takes that does not fail.
const LONG: Duration = Duration::from_secs(20);

/// A duty that does what a test says.
struct Scripted<F>(F);

impl<F: Fn() -> NextTurn + Send + Sync + 'static> Duty for Scripted<F> {
    fn turn(&self) -> NextTurn {
        (self.0)()
    }
}

/// Threads of a test's own.
fn workers() -> &'static Workers {
    Box::leak(Box::default())
}

fn give(
    workers: &'static Workers,
    first: NextTurn,
    turn: impl Fn() -> NextTurn + Send + Sync + 'static,
) -> GivenDuty {
    workers.add(Arc::new(Scripted(turn)), first).unwrap()
}

/// A duty that reports each of its turns, and those reports.
fn reporting(workers: &'static Workers, first: NextTurn) -> (GivenDuty, mpsc::Receiver<Instant>) {
    let (report, reports) = mpsc::channel();
    let duty = give(workers, first, move || {
        let _ = report.send(Instant::now());
        NextTurn::WhenAsked
    });
    (duty, reports)
}

/// A duty whose turns wait until the test lets them go on; and the reports of their beginnings.
fn held(workers: &'static Workers) -> (GivenDuty, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (report, begun) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let released = Mutex::new(released);
    let duty = give(workers, NextTurn::WhenAsked, move || {
        let _ = report.send(());
        let _ = released.lock().unwrap().recv_timeout(LONG);
        NextTurn::WhenAsked
    });
    (duty, begun, release)
}

fn threads(workers: &Workers) -> usize {
    workers.lock().threads
}

#[test]
fn a_duty_runs_when_it_is_asked_for_and_when_its_time_has_come() {
    let workers = workers();
    let (asked, reports) = reporting(workers, NextTurn::WhenAsked);
    assert!(reports.recv_timeout(Duration::from_millis(20)).is_err());
    for _ in 0..3 {
        asked.ask();
        reports.recv_timeout(LONG).unwrap();
    }
    let moment = Instant::now() + Duration::from_millis(30);
    let (_timed, reports) = reporting(workers, NextTurn::At(moment));
    assert!(reports.recv_timeout(LONG).unwrap() >= moment);
    assert!(reports.recv_timeout(Duration::from_millis(20)).is_err());
}

/// A request during a turn may be about something that the turn has not seen.
#[test]
fn a_duty_that_is_asked_for_during_its_turn_gets_another_one() {
    let workers = workers();
    let (duty, begun, release) = held(workers);
    duty.ask();
    begun.recv_timeout(LONG).unwrap();
    duty.ask();
    duty.ask();
    release.send(()).unwrap();
    begun.recv_timeout(LONG).unwrap();
    release.send(()).unwrap();
    assert!(
        begun.recv_timeout(Duration::from_millis(50)).is_err(),
        "two requests before a turn are one"
    );
}

#[test]
fn many_duties_have_four_threads_and_a_duty_that_hangs_delays_no_other() {
    let workers = workers();
    let turns = Arc::new(AtomicUsize::new(0));
    let mut duties = Vec::new();
    for _ in 0..200 {
        let turns = Arc::clone(&turns);
        duties.push(give(workers, NextTurn::WhenAsked, move || {
            turns.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_micros(50));
            NextTurn::WhenAsked
        }));
    }
    for round in 1..=5 {
        for duty in &duties {
            duty.ask();
        }
        let begin = Instant::now();
        while turns.load(Ordering::Relaxed) < round * duties.len() {
            assert!(begin.elapsed() < LONG, "duties are left out");
            assert!(threads(workers) <= 4, "{} threads", threads(workers));
            thread::sleep(Duration::from_millis(1));
        }
    }

    // More duties hang than may run at a time.
    let hanging: Vec<_> = (0..8).map(|_| held(workers)).collect();
    for (duty, begun, _) in &hanging {
        duty.ask();
        begun.recv_timeout(LONG).unwrap();
    }
    let (other, reports) = reporting(workers, NextTurn::WhenAsked);
    other.ask();
    reports.recv_timeout(LONG / 2).unwrap();
    for (_, _, release) in &hanging {
        release.send(()).unwrap();
    }
}

#[test]
fn the_end_of_a_duty_waits_for_its_turn() {
    let workers = workers();
    let (duty, begun, release) = held(workers);
    duty.ask();
    begun.recv_timeout(LONG).unwrap();
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            duty.end();
            has_ended.store(true, Ordering::Relaxed);
        });
        thread::sleep(Duration::from_millis(30));
        assert!(!has_ended.load(Ordering::Relaxed));
        release.send(()).unwrap();
    });
    duty.ask();
    assert!(begun.recv_timeout(Duration::from_millis(30)).is_err());
    // The duty is dropped.
    assert!(release.send(()).is_err());
}

/// As a waker does that drops the last handle of a store.
#[test]
fn a_duty_may_end_itself() {
    let workers = workers();
    let own: Arc<Mutex<Option<GivenDuty>>> = Arc::default();
    let (report, reports) = mpsc::channel();
    let in_turn = Arc::clone(&own);
    let duty = give(workers, NextTurn::WhenAsked, move || {
        if let Some(duty) = in_turn.lock().unwrap().take() {
            duty.end();
        }
        let _ = report.send(());
        NextTurn::after(Duration::ZERO)
    });
    let number = duty.number;
    *own.lock().unwrap() = Some(duty);
    workers.note_asked(number);
    reports.recv_timeout(LONG).unwrap();
    // The only sender is dropped with the duty.
    assert_eq!(
        reports.recv_timeout(LONG),
        Err(mpsc::RecvTimeoutError::Disconnected)
    );
    assert!(workers.lock().duties.is_empty());
}

#[test]
fn a_panic_ends_one_duty_and_no_thread() {
    let workers = workers();
    let panicking = give(workers, NextTurn::WhenAsked, || panic!("on purpose"));
    panicking.ask();
    let begin = Instant::now();
    while !workers.lock().duties.is_empty() {
        assert!(begin.elapsed() < LONG, "the duty goes on");
        thread::yield_now();
    }
    let (other, reports) = reporting(workers, NextTurn::WhenAsked);
    other.ask();
    reports.recv_timeout(LONG).unwrap();
    panicking.end();
}

#[test]
fn threads_without_a_duty_end_and_begin_again() {
    let workers = workers();
    for _ in 0..2 {
        let (duty, reports) = reporting(workers, NextTurn::WhenAsked);
        duty.ask();
        reports.recv_timeout(LONG).unwrap();
        assert!(threads(workers) >= 1);
        duty.end();
        let begin = Instant::now();
        while threads(workers) > 0 {
            assert!(begin.elapsed() < LONG, "a thread stays");
            thread::sleep(Duration::from_millis(10));
        }
    }
}
