//! A job queue: producers add jobs with due times, workers take those that are due, and an auditor
//! checks one snapshot after the other. It survives `kill -9` at any moment: each job that was added
//! is done, and a job whose worker was killed is due again a second later.
//!
//! ```text
//! cargo run --release -p everleaf --example job_queue -- queue.pool --seconds 5
//! ```
//!
//! Exit code 1 if a snapshot has lost or doubled a job.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use everleaf::{EncodedValue, Error, Key, Store, TypedTree, View};

const PRODUCERS: u64 = 2;
const WORKERS: u64 = 4;
/// Due times lie up to this far ahead, in milliseconds.
const AHEAD_MS: u64 = 200;
/// A worker has this long for a job, in milliseconds. Then another one may take it.
const LEASE_MS: u64 = 1000;
/// Jobs in the queue from which on producers wait.
const WAITING_MAX: u64 = 10_000;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A key of the index of due times: the job that is due first comes first.
#[derive(Key, Clone, Copy)]
#[everleaf(name = "due")]
struct Due {
    at_ms: u64,
    id: u64,
}

#[derive(EncodedValue)]
#[everleaf(name = "job")]
struct Job {
    task: String,
    due_ms: u64,
    /// How often a worker has taken it.
    attempts: u32,
}

struct Queue {
    store: Store,
    jobs: TypedTree<u64, Job>,
    due: TypedTree<Due, ()>,
    counters: TypedTree<String, u64>,
}

impl Queue {
    fn open(path: &str) -> Result<Self, Error> {
        let store = Store::open(path)?;
        Ok(Self {
            jobs: store.typed("jobs")?,
            due: store.typed("due")?,
            counters: store.typed("counters")?,
            store,
        })
    }

    /// Adds a job, and returns its id.
    fn add(&self, task: &str, due_ms: u64) -> Result<u64, Error> {
        self.store.transaction(|tx| {
            let id = tx.increment(&self.counters, "added", 1)?;
            let job = Job {
                task: task.to_owned(),
                due_ms,
                attempts: 0,
            };
            tx.put(&self.jobs, &id, &job)?;
            tx.put(&self.due, &Due { at_ms: due_ms, id }, &())?;
            Ok(id)
        })
    }

    /// Takes the job that is due first, if one is due. It is due again when its lease ends.
    fn take(&self) -> Result<Option<(u64, Job)>, Error> {
        self.store.transaction(|tx| {
            let Some((due, ())) = tx.first(&self.due)? else {
                return Ok(None);
            };
            let now_ms = now_ms();
            let Some(mut job) = tx.get(&self.jobs, &due.id)? else {
                return Ok(None);
            };
            if due.at_ms > now_ms {
                return Ok(None);
            }
            job.due_ms = now_ms + LEASE_MS;
            job.attempts += 1;
            let again = Due {
                at_ms: job.due_ms,
                id: due.id,
            };
            tx.remove(&self.due, &due)?;
            tx.put(&self.due, &again, &())?;
            tx.put(&self.jobs, &due.id, &job)?;
            Ok::<_, Error>(Some((due.id, job)))
        })
    }

    /// Removes a job that is done; `false` if its lease has ended and another worker has taken it.
    fn finish(&self, id: u64, done: &Job) -> Result<bool, Error> {
        self.store.transaction(|tx| {
            let job = tx.get(&self.jobs, &id)?;
            if job.is_none_or(|job| job.attempts != done.attempts) {
                return Ok(false);
            }
            let at_ms = done.due_ms;
            tx.remove(&self.due, &Due { at_ms, id })?;
            tx.remove(&self.jobs, &id)?;
            tx.increment(&self.counters, "done", 1)?;
            Ok::<_, Error>(true)
        })
    }

    /// Checks one snapshot: each job that was added is done or waits, and each that waits is due once.
    fn audit(&self) -> Result<Counts, Failure> {
        let view = self.store.snapshot()?;
        let counts = Counts {
            added: view.get(&self.counters, "added")?.unwrap_or(0),
            done: view.get(&self.counters, "done")?.unwrap_or(0),
        };
        let mut waiting = 0;
        for entry in view.iter(&self.due) {
            let (Due { at_ms, id }, ()) = entry?;
            match view.get(&self.jobs, &id)? {
                Some(job) if job.due_ms == at_ms => waiting += 1,
                _ => return Err(format!("job {id} is not due at {at_ms}").into()),
            }
        }
        let jobs = view.iter(&self.jobs).count() as u64;
        if jobs != waiting || counts.added != counts.done + jobs {
            return Err(format!("{counts:?}, but {jobs} jobs, {waiting} of them due").into());
        }
        Ok(counts)
    }

    /// Audits one snapshot after the other. Returns their number.
    fn audit_for(&self, seconds: f64) -> Result<u64, Failure> {
        let end = Instant::now() + Duration::try_from_secs_f64(seconds)?;
        let mut audits = 0;
        while Instant::now() < end {
            self.audit()?;
            audits += 1;
        }
        Ok(audits)
    }

    fn produce(&self, stop: &AtomicBool) -> Result<(), Error> {
        while !stop.load(Ordering::Relaxed) {
            if self.jobs.len()? >= WAITING_MAX {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            let due_ms = now_ms() + rand::random_range(0..AHEAD_MS);
            self.add("count the letters of this sentence", due_ms)?;
        }
        Ok(())
    }

    fn work(&self, stop: &AtomicBool) -> Result<(), Error> {
        while !stop.load(Ordering::Relaxed) {
            let Some((id, job)) = self.take()? else {
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            std::hint::black_box(job.task.chars().count());
            self.finish(id, &job)?;
        }
        Ok(())
    }
}

/// The counters of a queue.
#[derive(Debug)]
struct Counts {
    added: u64,
    done: u64,
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

fn run(path: &str, seconds: f64) -> Result<(), Failure> {
    let queue = Queue::open(path)?;
    let before = queue.audit()?;
    println!("{path}: {before:?}, each job is there");
    let stop = AtomicBool::new(false);
    let audits = thread::scope(|scope| -> Result<u64, Failure> {
        let mut threads = Vec::new();
        for _ in 0..PRODUCERS {
            threads.push(scope.spawn(|| queue.produce(&stop)));
        }
        for _ in 0..WORKERS {
            threads.push(scope.spawn(|| queue.work(&stop)));
        }
        let audits = queue.audit_for(seconds);
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("a thread does not panic")?;
        }
        audits
    })?;
    let after = queue.audit()?;
    let done = (after.done - before.done) as f64 / seconds;
    println!("{done:.0} jobs a second; {audits} audits, all right; {after:?}");
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (path, seconds) = match arguments[..] {
        [] => ("queue.pool", Ok(5.0)),
        [path] => (path, Ok(5.0)),
        [path, "--seconds", seconds] => (path, seconds.parse()),
        _ => {
            eprintln!("job_queue: give a path, and --seconds with a number");
            return ExitCode::FAILURE;
        }
    };
    let result = match seconds {
        Ok(seconds) => run(path, seconds),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("job_queue: {error}");
            ExitCode::FAILURE
        }
    }
}
