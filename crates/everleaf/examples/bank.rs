//! A bank: eight threads transfer money by transactions, and an auditor sums up all accounts in one
//! snapshot after the other. It survives `kill -9` at any moment.
//!
//! ```text
//! cargo run --release -p everleaf --example bank -- bank.pool --seconds 5
//! ```
//!
//! Two trees of two engines: `accounts` has the balance of each account and how many transfers it
//! took part in, `done` has how many transfers each thread has done. A transfer changes two accounts
//! and the thread's count, so three things hold in every snapshot and after every crash: the balances
//! have the sum that they began with, the accounts took part in twice as many transfers as were
//! done, and no account is missing. If one of them does not hold, the exit code is 1.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use everleaf::{Engine, Error, Store, TreeOptions, TypedTree, View};
use rand::Rng;

const THREADS: u32 = 8;
const ACCOUNTS: u32 = 100;
/// The balance of a new account.
const BALANCE: u64 = 1000;
const AMOUNT_MAX: u64 = 100;

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Arguments {
    path: String,
    seconds: f64,
}

impl Arguments {
    fn parse() -> Result<Self, Failure> {
        let mut arguments = Self {
            path: "bank.pool".to_owned(),
            seconds: 5.0,
        };
        let mut given = std::env::args().skip(1);
        while let Some(argument) = given.next() {
            if argument == "--seconds" {
                let seconds = given.next().ok_or("--seconds needs a number")?;
                arguments.seconds = seconds.parse()?;
            } else {
                arguments.path = argument;
            }
        }
        Ok(arguments)
    }
}

struct Bank {
    store: Store,
    /// The balance of an account, and the number of transfers that it took part in.
    accounts: TypedTree<u32, (u64, u64)>,
    /// The number of transfers that a thread has done.
    done: TypedTree<u32, u64>,
}

/// The totals of a bank in one view.
struct Totals {
    accounts: u32,
    balance: u64,
    parts: u64,
    done: u64,
}

impl Totals {
    fn of(bank: &Bank, view: &impl View) -> Result<Self, Error> {
        let mut totals = Self {
            accounts: 0,
            balance: 0,
            parts: 0,
            done: 0,
        };
        for account in view.iter(&bank.accounts) {
            let (_, (balance, parts)) = account?;
            totals.accounts += 1;
            totals.balance += balance;
            totals.parts += parts;
        }
        for thread in view.iter(&bank.done) {
            totals.done += thread?.1;
        }
        Ok(totals)
    }

    /// Fails if money, a part of a transfer or an account was lost or made.
    fn check(&self) -> Result<(), Failure> {
        let sum = u64::from(ACCOUNTS) * BALANCE;
        if self.balance != sum {
            return Err(
                format!("the balances sum up to {}, and not to {sum}", self.balance).into(),
            );
        }
        if self.parts != 2 * self.done {
            let Self { parts, done, .. } = self;
            return Err(format!("{parts} parts of {done} transfers were done").into());
        }
        if self.accounts != ACCOUNTS {
            return Err(format!("{} accounts of {ACCOUNTS} are there", self.accounts).into());
        }
        Ok(())
    }
}

/// What the threads count.
#[derive(Default)]
struct Counts {
    transfers: AtomicU64,
    /// How often a transfer was tried.
    attempts: AtomicU64,
}

impl Bank {
    /// Opens the bank, or makes it. All accounts of a new bank are made at once.
    fn open(path: &str) -> Result<Self, Error> {
        let store = Store::open(path)?;
        let accounts = store.typed("accounts")?;
        let kind = TreeOptions {
            engine: Engine::BZTREE,
            ..TreeOptions::RECORDS
        };
        let done = store.typed_with("done", kind)?;
        let bank = Self {
            store,
            accounts,
            done,
        };
        bank.store.transaction(|tx| {
            if tx.first(&bank.accounts)?.is_some() {
                return Ok::<_, Error>(());
            }
            for account in 0..ACCOUNTS {
                tx.put(&bank.accounts, &account, &(BALANCE, 0))?;
            }
            Ok(())
        })?;
        Ok(bank)
    }

    /// Moves an amount, unless the payer has less. Returns whether it was moved.
    fn transfer(&self, transfer: &Transfer, counts: &Counts) -> Result<bool, Error> {
        let Transfer {
            thread,
            payer,
            payee,
            amount,
        } = transfer;
        self.store.transaction(|tx| {
            counts.attempts.fetch_add(1, Ordering::Relaxed);
            let (balance, parts) = tx.get(&self.accounts, payer)?.unwrap_or_default();
            if balance < *amount {
                return Ok(false);
            }
            tx.put(&self.accounts, payer, &(balance - amount, parts + 1))?;
            let (balance, parts) = tx.get(&self.accounts, payee)?.unwrap_or_default();
            tx.put(&self.accounts, payee, &(balance + amount, parts + 1))?;
            let done = tx.get(&self.done, thread)?.unwrap_or_default();
            tx.put(&self.done, thread, &(done + 1))?;
            Ok(true)
        })
    }

    /// Transfers until it is told to stop.
    fn work(&self, thread: u32, counts: &Counts, stop: &AtomicBool) -> Result<(), Error> {
        let mut random = rand::rng();
        while !stop.load(Ordering::Relaxed) {
            let payer = random.random_range(0..ACCOUNTS);
            let distance = random.random_range(1..ACCOUNTS);
            let transfer = Transfer {
                thread,
                payer,
                payee: (payer + distance) % ACCOUNTS,
                amount: random.random_range(1..=AMOUNT_MAX),
            };
            if self.transfer(&transfer, counts)? {
                counts.transfers.fetch_add(1, Ordering::Relaxed);
            } else {
                // Not a conflict: the payer had too little.
                counts.attempts.fetch_sub(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Audits one snapshot after the other, until the time is over. Returns their number.
    fn audit(&self, seconds: f64) -> Result<u64, Failure> {
        let end = Instant::now() + Duration::try_from_secs_f64(seconds)?;
        let mut audits = 0;
        while Instant::now() < end {
            let snapshot = self.store.snapshot()?;
            Totals::of(self, &snapshot)?.check()?;
            audits += 1;
        }
        Ok(audits)
    }
}

struct Transfer {
    thread: u32,
    payer: u32,
    payee: u32,
    amount: u64,
}

fn run() -> Result<(), Failure> {
    let Arguments { path, seconds } = Arguments::parse()?;
    let start = Instant::now();
    let bank = Bank::open(&path)?;
    let opened = start.elapsed();
    let totals = Totals::of(&bank, &bank.store.snapshot()?)?;
    totals.check()?;
    let crashed = match bank.store.recovery().after_crash {
        true => "after a crash ",
        false => "",
    };
    println!(
        "{path}: opened {crashed}in {opened:.1?}; {} transfers were done, the sum is right",
        totals.done
    );

    let counts = Counts::default();
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    let audits = thread::scope(|scope| -> Result<u64, Failure> {
        let mut workers = Vec::new();
        let bank = &bank;
        let counts = &counts;
        let stop = &stop;
        for thread in 0..THREADS {
            workers.push(scope.spawn(move || bank.work(thread, counts, stop)));
        }
        let audits = bank.audit(seconds);
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().expect("a thread does not panic")?;
        }
        audits
    })?;
    let elapsed = start.elapsed().as_secs_f64();
    Totals::of(&bank, &bank.store.snapshot()?)?.check()?;
    let transfers = counts.transfers.into_inner();
    println!(
        "{THREADS} threads: {:.0} transfers a second; {audits} audits, all right; {} conflicts retried",
        transfers as f64 / elapsed,
        counts.attempts.into_inner() - transfers
    );
    let Bank {
        store,
        accounts,
        done,
    } = bank;
    drop(accounts);
    drop(done);
    Ok(store.close()?)
}

fn main() -> ExitCode {
    run().map_or_else(
        |error| {
            eprintln!("bank: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}
