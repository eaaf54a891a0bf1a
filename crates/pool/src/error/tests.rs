use super::*;

/// An error and what its text has to say.
struct Case {
    error: Error,
    /// A part of the text that names the thing concerned.
    thing: &'static str,
    /// A part of the text that names a way out.
    way_out: &'static str,
}

fn case(kind: ErrorKind, thing: &'static str, way_out: &'static str) -> Case {
    Case {
        error: kind.into(),
        thing,
        way_out,
    }
}

/// Each error.
fn errors() -> Vec<Case> {
    of_pools().into_iter().chain(of_batches()).collect()
}

fn of_batches() -> Vec<Case> {
    vec![
        case(
            ErrorKind::ConditionFailed {
                tree: "stock".to_owned(),
                index: 3,
            },
            "condition 3",
            "another batch",
        ),
        case(
            ErrorKind::BatchTooLarge {
                what: "bytes",
                size: 9,
                limit: 8,
            },
            "9 bytes",
            "several batches",
        ),
        case(
            ErrorKind::BatchUnfinished,
            "could not be finished",
            "open it again",
        ),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table of errors")]
fn of_pools() -> Vec<Case> {
    let refused = || io::Error::other("the lock is in a state");
    let name = || "t".to_owned();
    let length = 77;
    let limit = 7;
    let found = "codec record".to_owned();
    let wanted = "word".to_owned();
    let full = |by| ErrorKind::PoolFull {
        wanted: 77 << 10,
        limit: 7 << 10,
        by,
        file: Grown::Pool,
    };
    let of_type = ErrorKind::NotOfType {
        name: name(),
        what: "key",
        wanted: "u64",
    };
    vec![
        case(
            ErrorKind::Io {
                action: "lock",
                source: refused(),
            },
            "cannot lock",
            "then try it again",
        ),
        case(ErrorKind::NoSuchPool, "no such pool", "check the path"),
        case(
            ErrorKind::NotWritable { source: refused() },
            "may not",
            "only to read",
        ),
        case(
            ErrorKind::ReadOnly,
            "only for reading",
            "open it without `read_only`",
        ),
        case(
            ErrorKind::Unsupported {
                what: "avx512".to_owned(),
            },
            "avx512",
            "use another machine",
        ),
        case(
            ErrorKind::NoBackup {
                why: "no log".to_owned(),
            },
            "no log",
            "copy its file when it is closed",
        ),
        case(
            ErrorKind::NotAPool {
                why: "magic".to_owned(),
            },
            "magic",
            "give the path",
        ),
        case(
            ErrorKind::Version {
                found: 77,
                supported: 3,
            },
            "version 77",
            "restore it here",
        ),
        case(
            ErrorKind::UnknownFeatures { unknown: 77 },
            "0x4d",
            "use a newer release",
        ),
        case(
            ErrorKind::Locked {
                holder: Some(77),
                readers: false,
            },
            "process 77",
            "wait for",
        ),
        case(
            ErrorKind::Locked {
                holder: Some(std::process::id()),
                readers: false,
            },
            "(this one) has it open",
            "clone the `Store`",
        ),
        case(
            ErrorKind::Locked {
                holder: None,
                readers: true,
            },
            "readers have the pool open",
            "close it there",
        ),
        case(
            ErrorKind::NotBeside {
                holder: Some(77),
                why: "it is open as mapped memory; wait for its end".to_owned(),
            },
            "process 77",
            "wait for its end",
        ),
        case(
            ErrorKind::LineForm {
                pool: LineForm::Single,
                medium: LineForm::Twin,
            },
            "created with single lines, but this medium writes twin lines",
            "choose a line store",
        ),
        case(
            Error::corrupt(77, "a leaf").into_kind(),
            "0x4d: a leaf",
            "a salvage saves the rest",
        ),
        case(
            Error::corrupt(77, "a header").unopenable().into_kind(),
            "0x4d: a header",
            "restore it from",
        ),
        case(
            ErrorKind::TooLong {
                bytes: length,
                limit,
            },
            "77 bytes",
            "several parts",
        ),
        case(full(LimitedBy::Limit), "77 KiB", "raise the limit"),
        case(
            full(LimitedBy::Disk {
                free_bytes: 56 << 10,
            }),
            "with 56 KiB free",
            "free some space",
        ),
        case(
            ErrorKind::TreeMismatch {
                name: name(),
                found,
                wanted,
            },
            "tree \"t\" uses codec record, not word",
            "open it with",
        ),
        case(of_type, "a key that is no u64", "the type that"),
        case(
            Error::no_such_tree("t").into_kind(),
            "\"t\"",
            "check the name",
        ),
        case(
            ErrorKind::OfAnotherStore {
                name: name(),
                other: "other.pool".into(),
            },
            "\"t\" belongs to another store, other.pool",
            "in this store",
        ),
        case(
            ErrorKind::TreeExists { name: name() },
            "\"t\"",
            "take another name",
        ),
        case(
            ErrorKind::BadTreeName { length, limit },
            "77 bytes",
            "take one of",
        ),
        case(
            ErrorKind::TooManyTrees { limit: 77 },
            "77 trees",
            "use another pool",
        ),
        case(
            ErrorKind::InUse,
            "a range, a snapshot, a transaction",
            "drop it first",
        ),
        case(
            ErrorKind::Forked,
            "before this process was forked",
            "open it in the child",
        ),
        case(
            ErrorKind::NotDurable {
                required: medium::Survives::PowerLoss,
                found: name(),
            },
            "PowerLoss",
            "require less",
        ),
        case(
            Error::from(MediumError::Failed("the disk is gone".to_owned())).into_kind(),
            "the disk is gone",
            "reopen the pool",
        ),
        case(
            ErrorKind::Contended { offset: 77 },
            "offset 0x4d",
            "try it again",
        ),
        case(
            ErrorKind::KeyTooLong { length, limit },
            "a key of 77 bytes",
            "shorten it",
        ),
        case(
            ErrorKind::ValueTooLong { length, limit },
            "a value of 77 bytes",
            "split it",
        ),
        case(
            ErrorKind::NotAWord {
                what: "key",
                length,
            },
            "a key of 77 bytes",
            "make a tree with",
        ),
        case(
            ErrorKind::NodeSize {
                what: "entries",
                size: 77,
                least: 4,
                most: 56,
            },
            "77 entries",
            "take 4 to 56",
        ),
        case(
            ErrorKind::Setting {
                what: "rntree has no setting depth; it has none".to_owned(),
            },
            "no setting",
            "it has",
        ),
        case(
            ErrorKind::UnknownEngine {
                name: name(),
                engine: 77,
                codec: 1,
            },
            "engine number 77",
            "newer release",
        ),
        case(
            ErrorKind::InLoadSource,
            "the source of a bulk load",
            "when the load has returned",
        ),
        case(
            ErrorKind::WithinEpoch,
            "its own thread",
            "when `within_epoch` has returned",
        ),
        case(ErrorKind::EpochFull { limit: 77 }, "77", "further batches"),
        case(
            ErrorKind::TreeFull { limit: 77 },
            "keys as this engine can number, 77",
            "another tree",
        ),
        case(
            ErrorKind::Conflict {
                tree: "stock".to_owned(),
                key: Some(b"apple\xff".to_vec()),
            },
            "key \"apple\\xff\" of tree \"stock\"",
            "begin the transaction again",
        ),
        case(
            ErrorKind::ViewTooOld { limit: Some(4096) },
            "4096 bytes of memory",
            "`versions_bytes_max`",
        ),
        case(
            ErrorKind::ViewTooOld { limit: None },
            "has overtaken this store",
            "`refresh()`",
        ),
        case(ErrorKind::NotEmpty, "an empty tree", "load a new tree"),
        case(ErrorKind::NotSorted { index: 77 }, "entry 77", "sort them"),
        case(
            ErrorKind::BadOperation {
                what: "77 words".to_owned(),
            },
            "77 words",
            "build another one",
        ),
    ]
}

#[test]
fn every_error_names_the_thing_and_a_way_out() {
    let errors = errors();
    for case in &errors {
        let text = case.error.to_string();
        assert!(text.contains(case.thing), "{text}");
        assert!(text.contains(case.way_out), "{text}");
        // The texts are those of a library, so they name no command of a program.
        assert!(!text.contains("everleaf "), "{text}");
    }
    // The list has each kind, two kinds twice, and another one three times.
    let kinds = errors
        .iter()
        .map(|case| std::mem::discriminant(case.error.kind()));
    assert_eq!(
        kinds.collect::<std::collections::HashSet<_>>().len(),
        errors.len() - 4
    );
}

#[test]
fn an_error_keeps_its_kind_when_it_gets_a_path() {
    let path = Path::new("prices.pool");
    for Case { error, thing, .. } in errors() {
        let kind = std::mem::discriminant(error.kind());
        let error = error.at(path).at(Path::new("late.pool"));
        assert_eq!(std::mem::discriminant(error.kind()), kind);
        assert!(error.path().is_none_or(|found| found == path));
        let text = error.to_string();
        assert!(
            text.contains(thing) && text.contains("prices.pool") == error.path().is_some(),
            "{text}"
        );
        assert!(!text.contains("late.pool"), "{text}");
    }
}

#[test]
fn a_full_disk_is_told_with_file_and_sizes() {
    let full = |file, by| {
        Error::from(ErrorKind::PoolFull {
            wanted: 20 << 20,
            limit: 20_888_750,
            by,
            file,
        })
    };
    let disk = LimitedBy::Disk {
        free_bytes: 56 << 10,
    };
    assert_eq!(
        full(Grown::Log, disk)
            .at(Path::new("prices.pool"))
            .to_string(),
        "disk full: growing prices.pool.log from 19.9 MiB to 20 MiB failed, with 56 KiB free; free some space or remove entries"
    );
    assert_eq!(
        full(Grown::Pool, LimitedBy::Limit)
            .at(Path::new("a.pool"))
            .to_string(),
        "pool full: growing a.pool to 20 MiB failed, its limit is 19.9 MiB; raise the limit or remove entries"
    );
}

#[test]
fn addresses_that_are_used_up_are_told_with_the_limit() {
    let full = |file, by| {
        let full = ErrorKind::PoolFull {
            wanted: 20 << 20,
            limit: 10 << 20,
            by,
            file,
        };
        Error::from(full).at(Path::new("a.pool")).to_string()
    };
    assert_eq!(
        full(Grown::Memory, LimitedBy::Addresses),
        "out of addresses: growing memory beside a.pool from 10 MiB to 20 MiB failed, because other memory of this \
         process lies behind it; close the store and open it again, or have fewer stores open in one process, or \
         remove entries"
    );
    let limit_bytes = Some(56 << 20);
    assert_eq!(
        full(Grown::Pool, LimitedBy::AddressSpace { limit_bytes }),
        "out of address space: growing a.pool from 10 MiB to 20 MiB failed, `ulimit -v` (RLIMIT_AS) allows this \
         process 56 MiB; raise that limit, close other stores, or remove entries"
    );
    assert_eq!(
        full(Grown::Pool, LimitedBy::AddressSpace { limit_bytes: None }),
        "out of address space: growing a.pool from 10 MiB to 20 MiB failed, the system gives this process no more; \
         free memory, close other stores, raise `vm.max_map_count` (the mappings that a process may have), or remove \
         entries"
    );
}

#[test]
fn what_the_system_refuses_has_a_way_out() {
    for (kind, way_out) in [
        (io::ErrorKind::StorageFull, "free some space"),
        (
            io::ErrorKind::PermissionDenied,
            "give this user the permission",
        ),
        (io::ErrorKind::NotADirectory, "check the path"),
        (io::ErrorKind::Other, "then try it again"),
    ] {
        let error = Error::io("grow")(kind.into());
        assert!(error.to_string().ends_with(way_out), "{error}");
    }
}

#[test]
fn an_error_is_as_small_as_a_pointer() {
    assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
}

#[test]
fn the_frequent_questions_have_the_kinds_that_they_name() {
    let kinds_with = |holds: fn(&Error) -> bool| {
        let errors = errors().into_iter().map(|case| case.error);
        let mut kinds: Vec<String> = errors
            .filter(holds)
            .map(|error| {
                let shown = format!("{:?}", error.kind());
                shown
                    .split([' ', '('])
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect();
        kinds.sort();
        kinds.dedup();
        kinds
    };
    assert_eq!(kinds_with(Error::is_corrupt), ["Corrupt", "Unopenable"]);
    assert_eq!(kinds_with(Error::is_full), ["PoolFull"]);
    assert_eq!(
        kinds_with(Error::is_retryable),
        ["Conflict", "Contended", "Locked", "NotBeside", "ViewTooOld"]
    );
    assert_eq!(kinds_with(Error::is_absent), ["NoSuchPool", "NoSuchTree"]);
    let with_offset = kinds_with(|error| error.offset() == Some(77));
    assert_eq!(with_offset, ["Contended", "Corrupt", "Unopenable"]);
}

#[test]
fn the_cause_of_an_error_can_be_asked_for() {
    let refused = Error::io("lock")(io::Error::other("the lock is in a state"));
    let cause = std::error::Error::source(&refused).unwrap();
    assert_eq!(cause.to_string(), "the lock is in a state");
    assert!(std::error::Error::source(&Error::from(ErrorKind::InUse)).is_none());
}
