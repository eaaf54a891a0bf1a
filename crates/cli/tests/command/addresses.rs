//! The command in a process that may have few addresses (`ulimit -v`).

use std::path::Path;

use crate::common::{Said, lines, on, pool, run, run_in_shell, run_with};

/// The least address space that every engine works in, in KiB.
const KIB: u32 = 256 << 10;

/// Runs the command with `kib` KiB of address space.
fn run_within(kib: u32, arguments: &str) -> Said {
    run_in_shell(&format!("ulimit -v {kib}; exec \"$0\" {arguments}"))
}

/// Every command on a small pool, new or existing.
fn assert_works(engine: &str, medium: &str, pool: &Path) {
    let within = |arguments: &str| run_within(KIB, arguments);
    let copy = pool.with_extension("copy");
    let pool = pool.display();
    let at = format!("{pool} --medium {medium}");
    within(&format!("put {at} a b --tree t --engine {engine}")).expect(0);
    within(&format!("put {at} c d --tree t")).expect(0);
    let got = within(&format!("get {at} a --tree t")).expect(0);
    assert_eq!(got.text(), "b\n");
    let scanned = within(&format!("scan {at} --tree t")).expect(0);
    assert_eq!(scanned.text().lines().count(), 2);
    within(&format!("check {at}")).expect(0);
    within(&format!("stat {at}")).expect(0);
    within(&format!("dump {at}")).expect(0);
    within(&format!("backup {pool} {}", copy.display())).expect(0);
    let copied = within(&format!("get {} c --tree t", copy.display())).expect(0);
    assert_eq!(copied.text(), "d\n");
    within(&format!("rm {at} a --tree t")).expect(0);
    within(&format!("get {at} a --tree t")).expect(1);
}

/// The first reservation once took most of such a limit, and everything else found no addresses.
#[test]
fn every_engine_works_in_256_mebibytes_of_addresses() {
    for engine in ["rntree", "wbtree", "cawbt", "bztree", "masstree"] {
        for medium in ["file", "dax"] {
            let (_folder, pool) = pool();
            assert_works(engine, medium, &pool);
        }
    }
}

/// The pool becomes larger than the limit allows: the error names it, and what was stored before is
/// there.
#[test]
fn a_pool_that_outgrows_the_limit_is_told_so_and_stays_usable() {
    let values = lines(0..100_000, |number| {
        format!("{number:06}\t{}\n", "v".repeat(2000))
    });
    for medium in ["file", "dax"] {
        let (folder, pool) = pool();
        let input = folder.path().join("lines");
        std::fs::write(&input, &values).unwrap();
        let load = format!(
            "load {} {} --medium {medium}",
            pool.display(),
            input.display()
        );
        let said = run_within(KIB, &load).expect(3);
        assert!(said.errors.contains("out of address space"), "{said:?}");
        assert!(said.errors.contains("ulimit -v"), "{said:?}");
        assert!(said.errors.contains("256 MiB"), "{said:?}");
        run(&on("check", &pool, &["--medium", medium])).expect(0);
        let first = run(&on("get", &pool, &["000000", "--medium", medium])).expect(0);
        assert_eq!(first.text().len(), 2001);
        // With more addresses the rest fits.
        run_with(&on("load", &pool, &["--medium", medium]), values.as_bytes()).expect(0);
    }
}

/// A pool larger than the addresses was once mapped over the memory behind them: over the stacks of
/// the process, which were written to the pool.
#[test]
fn a_pool_that_needs_more_addresses_than_there_are_is_refused() {
    let (_folder, pool) = pool();
    // Every processor can store lines of this form to mapped memory.
    run(&on("put", &pool, &["k", "v", "--line-store", "twin"])).expect(0);
    let file = std::fs::OpenOptions::new().write(true).open(&pool).unwrap();
    file.set_len(2200 << 20).unwrap();
    for medium in ["dax", "file"] {
        let get = format!("get {} k --medium {medium}", pool.display());
        let refused = run_within(2_000_000, &get).expect(3);
        assert!(
            refused.errors.contains("cannot map a file of"),
            "{refused:?}"
        );
        assert!(refused.errors.contains("ulimit -v"), "{refused:?}");
        assert_eq!(run_within(2_600_000, &get).expect(0).text(), "v\n");
    }
}
