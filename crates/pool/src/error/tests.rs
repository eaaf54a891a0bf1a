use super::*;

/// Each error, a part of its text that names the thing concerned, and one that names a way out.
fn errors() -> Vec<(Error, &'static str, &'static str)> {
    [of_pools(), of_batches()].into_iter().flatten().collect()
}

fn of_batches() -> Vec<(Error, &'static str, &'static str)> {
    vec![
        (
            Error::ConditionFailed {
                tree: "stock".to_owned(),
                index: 3,
            },
            "condition 3",
            "another batch",
        ),
        (
            Error::BatchTooLarge {
                what: "bytes",
                size: 9,
                limit: 8,
            },
            "9 bytes",
            "several batches",
        ),
        (
            Error::BatchUnfinished { at: At::UNKNOWN },
            "could not be finished",
            "open it again",
        ),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table of errors")]
fn of_pools() -> Vec<(Error, &'static str, &'static str)> {
    let at = || At::UNKNOWN;
    let refused = || io::Error::other("the lock is in a state");
    let (name, length, limit) = (|| "t".to_owned(), 77, 7);
    let (found, wanted) = ("codec record".to_owned(), "word".to_owned());
    let full = |by| Error::PoolFull {
        wanted: 77 << 10,
        limit: 7 << 10,
        by,
        file: Grown::Pool,
        at: At::UNKNOWN,
    };
    let of_type = Error::NotOfType {
        name: name(),
        what: "key",
        wanted: "u64",
        at: at(),
    };
    vec![
        (
            Error::Io {
                action: "lock",
                source: refused(),
                at: at(),
            },
            "cannot lock",
            "then try it again",
        ),
        (
            Error::NoSuchPool { at: at() },
            "no such pool",
            "check the path",
        ),
        (
            Error::NotWritable {
                source: refused(),
                at: at(),
            },
            "may not",
            "only to read",
        ),
        (
            Error::ReadOnly { at: at() },
            "to be read only",
            "open it without `read_only`",
        ),
        (
            Error::Unsupported {
                what: "avx512".to_owned(),
            },
            "avx512",
            "use another machine",
        ),
        (
            Error::NoBackup {
                why: "no log".to_owned(),
                at: at(),
            },
            "no log",
            "copy its file when it is closed",
        ),
        (
            Error::NotAPool {
                why: "magic".to_owned(),
                at: at(),
            },
            "magic",
            "give the path",
        ),
        (
            Error::Version {
                found: 77,
                supported: 3,
                at: at(),
            },
            "version 77",
            "restore it here",
        ),
        (
            Error::UnknownFeatures {
                unknown: 77,
                at: at(),
            },
            "0x4d",
            "use a newer release",
        ),
        (
            Error::Locked {
                holder: Some(77),
                readers: false,
                at: at(),
            },
            "process 77",
            "wait for",
        ),
        (
            Error::Locked {
                holder: None,
                readers: true,
                at: at(),
            },
            "open to be read",
            "close it there",
        ),
        (
            Error::LineForm {
                pool: LineForm::Single,
                medium: LineForm::Twin,
                at: at(),
            },
            "created with single lines, but this medium writes twin lines",
            "choose a line store",
        ),
        (
            Error::corrupt(77, "a leaf"),
            "0x4d: a leaf",
            "a salvage saves the rest",
        ),
        (
            Error::corrupt(77, "a header").unopenable(),
            "0x4d: a header",
            "restore it from",
        ),
        (
            Error::TooLong {
                bytes: length,
                limit,
            },
            "77 bytes",
            "several parts",
        ),
        (full(LimitedBy::Limit), "77 KiB", "raise the limit"),
        (
            full(LimitedBy::Disk {
                free_bytes: 56 << 10,
            }),
            "with 56 KiB free",
            "free some space",
        ),
        (
            Error::TreeMismatch {
                name: name(),
                found,
                wanted,
                at: at(),
            },
            "tree \"t\" uses codec record, not word",
            "open it with",
        ),
        (of_type, "a key that is no u64", "the type that"),
        (Error::no_such_tree("t"), "\"t\"", "check the name"),
        (
            Error::TreeExists {
                name: name(),
                at: at(),
            },
            "\"t\"",
            "take another name",
        ),
        (
            Error::BadTreeName { length, limit },
            "77 bytes",
            "take one of",
        ),
        (
            Error::TooManyTrees {
                limit: 77,
                at: at(),
            },
            "77 trees",
            "use another pool",
        ),
        (
            Error::in_use(),
            "a tree, a range or another handle",
            "drop it first",
        ),
        (
            Error::NotDurable {
                required: medium::Survives::PowerLoss,
                found: name(),
                at: at(),
            },
            "PowerLoss",
            "require less",
        ),
        (
            MediumError::Failed("the disk is gone".to_owned()).into(),
            "the disk is gone",
            "reopen the pool",
        ),
        (
            Error::Contended {
                offset: 77,
                at: at(),
            },
            "offset 0x4d",
            "try it again",
        ),
        (
            Error::KeyTooLong { length, limit },
            "a key of 77 bytes",
            "shorten it",
        ),
        (
            Error::ValueTooLong { length, limit },
            "a value of 77 bytes",
            "split it",
        ),
        (
            Error::NotAWord {
                what: "key",
                length,
            },
            "a key of 77 bytes",
            "make a tree with",
        ),
        (
            Error::NodeSize {
                what: "entries",
                size: 77,
                least: 4,
                most: 56,
            },
            "77 entries",
            "take 4 to 56",
        ),
        (
            Error::Setting {
                what: "rntree has no setting depth; it has none".to_owned(),
            },
            "no setting",
            "it has",
        ),
        (
            Error::UnknownEngine {
                name: name(),
                engine: 77,
                codec: 1,
                at: at(),
            },
            "engine number 77",
            "newer release",
        ),
        (Error::InBatch, "its own thread", "call it after the load"),
        (Error::EpochFull { limit: 77 }, "77", "further batches"),
        (
            Error::TreeFull { limit: 77 },
            "keys as this engine can number, 77",
            "another tree",
        ),
        (Error::NotEmpty, "an empty tree", "load a new tree"),
        (Error::NotSorted { index: 77 }, "entry 77", "sort them"),
        (
            Error::BadOperation {
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
    for (error, thing, way_out) in &errors {
        let text = error.to_string();
        assert!(text.contains(thing) && text.contains(way_out), "{text}");
        // A library does not know how its program is called, nor that there is one.
        assert!(!text.contains("everleaf "), "{text}");
    }
    // Each kind is there, two of them twice.
    let kinds = errors
        .iter()
        .map(|(error, ..)| std::mem::discriminant(error));
    assert_eq!(
        kinds.collect::<std::collections::HashSet<_>>().len(),
        errors.len() - 2
    );
}

#[test]
fn an_error_keeps_its_kind_when_it_gets_a_path() {
    let path = Path::new("prices.pool");
    for (error, thing, _) in errors() {
        let kind = std::mem::discriminant(&error);
        let error = error.at(path).at(Path::new("late.pool"));
        assert_eq!(std::mem::discriminant(&error), kind);
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
    let full = |file, by| Error::PoolFull {
        wanted: 20 << 20,
        limit: 20_888_750,
        by,
        file,
        at: At::UNKNOWN,
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
        let error = Error::Io {
            action: "grow",
            source: kind.into(),
            at: At::UNKNOWN,
        };
        assert!(error.to_string().ends_with(way_out), "{error}");
    }
}
