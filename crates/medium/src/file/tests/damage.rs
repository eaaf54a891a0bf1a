//! Damage: bytes that changed on the disk, forged headers, files of other programs.

use super::*;
use crate::file::backup::{CopyTarget, copy};

#[test]
pub(super) fn every_flipped_byte_of_the_log_is_harmless_or_found() {
    let (image, content) = killed();
    let end = reopened(&image).unwrap().0.end().0 as usize + layout::RING as usize;
    // The frames from the checkpoint on are live. The seal at the end records that the frames
    // before it are durable; only damage to the seal itself may pass for a torn tail.
    let live = layout::RING as usize + layout::FRAME_HEADER_BYTES + 40 * layout::FRAME_LINE_BYTES;
    for place in 0..end {
        let mut flipped = image.clone();
        flipped.files[1][place] ^= 0x10;
        match reopened(&flipped) {
            Ok((_, found)) => {
                let harmless = place < live || place >= end - layout::FRAME_HEADER_BYTES;
                assert!(harmless, "the flip of byte {place:#x} was not noticed");
                assert_eq!(found, content, "byte {place:#x}");
            }
            Err(LogError::Damaged { position, .. }) => {
                let near = position as usize <= place && place < position as usize + 512;
                assert!(near, "byte {place:#x} reported as {position:#x}");
            }
            Err(other) => panic!("byte {place:#x}: {other}"),
        }
    }
}

/// All groups in the log are acknowledged, and a frame at its end says so.
fn sealed(rig: &Rig) -> (Image, Content) {
    rig.file().seal().unwrap();
    (rig.machine.shown(), rig.history.last().unwrap().0.clone())
}

fn write_durably(rig: &mut Rig, groups: usize, lines: usize) {
    for group in 0..groups {
        rig.write(5 * group, lines);
        rig.settle();
    }
}

/// A pool that was killed and opened again, without a checkpoint since.
fn opened_again() -> (Image, Content) {
    let mut rig = Rig::new();
    write_durably(&mut rig, 3, 8);
    rig.kill();
    write_durably(&mut rig, 3, 5);
    sealed(&rig)
}

/// A log that has wrapped around, with `groups` groups behind the checkpoint that freed the space
/// for them.
fn gone_around(groups: usize) -> (Image, Content) {
    let mut rig = Rig::new();
    let checkpoints = |rig: &Rig| rig.file().stat().checkpoints;
    while checkpoints(&rig) < 2 {
        write_durably(&mut rig, 1, 40);
    }
    write_durably(&mut rig, groups, 4);
    assert_eq!(checkpoints(&rig), 2);
    sealed(&rig)
}

/// A log that grew, with `groups` groups behind the end that it had before.
fn grown(groups: usize) -> (Image, Content) {
    let mut rig = Rig::new();
    rig.close();
    rig.let_the_log_grow();
    let capacity = rig.file().stat().log_capacity_bytes;
    while rig.file().end().0 + 500 < capacity {
        write_durably(&mut rig, 1, 6);
    }
    assert_eq!(rig.file().stat().log_capacity_bytes, 2 * capacity);
    // The last group may cross the old end.
    write_durably(&mut rig, groups, 12);
    assert!(rig.file().end().0 > capacity);
    sealed(&rig)
}

/// After a log has shrunk its file is too short for the larger ring, so both copies of the header
/// name the smaller one.
#[test]
fn either_copy_of_the_header_leads_to_all_of_a_log_that_shrank() {
    let mut rig = Rig::new();
    rig.let_the_log_grow();
    while rig.file().stat().log_capacity_bytes < 2 * rig.options.log_bytes {
        write_durably(&mut rig, 1, 40);
    }
    rig.file().core.shrink_log();
    assert_eq!(rig.file().stat().log_capacity_bytes, rig.options.log_bytes);
    write_durably(&mut rig, 3, 12);
    let (image, content) = sealed(&rig);
    for copy in layout::HEADERS {
        let mut flipped = image.clone();
        flipped.files[1][copy as usize + 20] ^= 0x10;
        let (_, there) = reopened(&flipped).unwrap();
        assert!(there == content, "the copy at {copy:#x}: something is gone");
    }
}

/// In a log that was opened again, has wrapped around or has grown, the older copy of the header
/// leads to another place than the newer one. An open must not rely on it.
#[test]
pub(super) fn a_flip_in_the_newer_header_loses_nothing_silently() {
    let images = [
        opened_again(),
        gone_around(1),
        gone_around(9),
        grown(1),
        grown(9),
    ];
    for (number, (image, content)) in images.iter().enumerate() {
        let mut found = 0;
        let mut harmless = 0;
        for copy in layout::HEADERS {
            for place in (copy as usize..copy as usize + layout::HEADER_BYTES).step_by(3) {
                let mut flipped = image.clone();
                flipped.files[1][place] ^= 0x10;
                match reopened(&flipped) {
                    Ok((_, there)) => {
                        harmless += 1;
                        assert!(
                            there == *content,
                            "image {number}, byte {place:#x}: something is gone"
                        );
                    }
                    // The error is that of the header, or that of the log from the older copy's
                    // start on.
                    Err(LogError::Damaged { .. }) => found += 1,
                    Err(other) => panic!("image {number}, byte {place:#x}: {other}"),
                }
            }
        }
        assert_eq!(found, harmless, "image {number}: one copy is the newer one");
    }
}

/// A header of zeros counts like one that fails its check: there was a header.
#[test]
pub(super) fn a_zeroed_header_loses_nothing_silently() {
    let images = [
        opened_again(),
        gone_around(1),
        gone_around(9),
        grown(1),
        grown(9),
    ];
    for (number, (image, content)) in images.iter().enumerate() {
        let zeroed = layout::HEADERS.map(|copy| {
            let mut zeroed = image.clone();
            zeroed.files[1][copy as usize..copy as usize + layout::HEADER_BYTES].fill(0);
            match reopened(&zeroed) {
                Ok((_, there)) => {
                    assert!(
                        there == *content,
                        "image {number}, header at {copy:#x}: something is gone"
                    );
                    false
                }
                Err(LogError::Damaged { .. }) => true,
                Err(other) => panic!("image {number}, header at {copy:#x}: {other}"),
            }
        });
        assert!(
            zeroed[0] != zeroed[1],
            "image {number}: one copy is the newer one"
        );
    }
}

/// The header was written once: neither a checkpoint nor a second open wrote it again.
#[test]
fn one_copy_of_a_header_that_was_written_once_may_be_damaged() {
    let mut rig = Rig::new();
    write_durably(&mut rig, 3, 8);
    let (image, content) = sealed(&rig);
    for place in [0x10, 0x1010] {
        let mut flipped = image.clone();
        flipped.files[1][place] ^= 1;
        assert_eq!(reopened(&flipped).unwrap().1, content, "byte {place:#x}");
        let block = place - place % layout::BLOCK_BYTES as usize;
        flipped.files[1][block..block + layout::HEADER_BYTES].fill(0);
        assert_eq!(
            reopened(&flipped).unwrap().1,
            content,
            "zeros from byte {block:#x} on"
        );
    }
    // If both are damaged the log cannot be read. That must not be taken for a missing log.
    let mut zeroed = image.clone();
    for copy in layout::HEADERS {
        zeroed.files[1][copy as usize..][..layout::HEADER_BYTES].fill(0);
    }
    let error = reopened(&zeroed).map(drop).unwrap_err();
    assert!(
        matches!(error, LogError::Damaged { position: 0, .. }),
        "{error}"
    );
}

/// The damaged header may have been that of a log with writes that are nowhere else.
#[test]
fn a_log_with_damaged_headers_beside_a_pool_that_needs_none_is_not_emptied() {
    let (mut image, _) = killed();
    image.files[0].clear();
    for copy in layout::HEADERS {
        image.files[1][copy as usize + 0x10] ^= 1;
    }
    let machine = Machine::new(&image);
    let error = open(&machine).map(drop).unwrap_err();
    assert!(
        matches!(error, MediumError::Log(LogError::UnaskedDamaged)),
        "{error}"
    );
    assert!(machine.shown() == image, "it was touched");
    // The file is as the interrupted creation of a log leaves it.
    image.files[1][layout::RING as usize..].fill(0);
    open(&Machine::new(&image)).unwrap();
}

#[test]
fn a_flip_in_a_log_that_went_around_or_grew_or_was_opened_again_is_harmless_or_found() {
    for (number, (image, content)) in [opened_again(), gone_around(9), grown(9)]
        .iter()
        .enumerate()
    {
        for place in (layout::RING as usize..image.files[1].len()).step_by(29 * stride(3)) {
            let mut flipped = image.clone();
            flipped.files[1][place] ^= 0x10;
            match reopened(&flipped) {
                Ok((_, there)) => {
                    assert!(
                        there == *content,
                        "image {number}, byte {place:#x}: something is gone"
                    );
                }
                Err(LogError::Damaged { position, .. }) => {
                    let near = position as usize <= place && place < position as usize + 3000;
                    assert!(
                        near,
                        "image {number}, byte {place:#x} reported as {position:#x}"
                    );
                }
                Err(other) => panic!("image {number}, byte {place:#x}: {other}"),
            }
        }
    }
}

/// A header whose copy was being written when the power failed.
#[test]
fn a_torn_header_is_no_damage() {
    for (image, content) in [opened_again(), gone_around(9), grown(9)] {
        let machine = Machine::new(&image);
        let log = machine.io(Which::Log);
        let from = machine.now();
        let newest = newest_header(&*log).header;
        open(&machine).unwrap();
        let mut torn = 0;
        for moment in from..=machine.now() {
            let crash = machine.crash(moment, 64);
            for choice in crash.samples(40, |below| below / 2) {
                let image = crash.image(&choice);
                let log = Machine::new(&image).io(Which::Log);
                let found = newest_header(&*log);
                if found.unreadable.is_some() && found.header.sequence == newest.sequence {
                    torn += 1;
                }
                assert!(reopened(&image).unwrap().1 == content);
            }
        }
        assert!(torn > 5, "only {torn} torn headers");
    }
}

/// A forged header may have a valid checksum.
#[test]
fn a_header_with_wild_numbers_is_an_error_and_no_panic() {
    let (image, whole) = killed();
    let header = newest_header(&*Machine::new(&image).io(Which::Log)).header;
    assert_eq!(reopened(&image).unwrap().1, whole);
    let wild = [
        1,
        4095,
        4096,
        1 << 32,
        1 << 48,
        1 << 60,
        1 << 63,
        !0 << 12,
        u64::MAX - 1,
        u64::MAX,
    ];
    let with = |change: &dyn Fn(&mut layout::Header)| {
        let mut image = image.clone();
        let mut header = header.clone();
        change(&mut header);
        for copy in layout::HEADERS {
            image.files[1][copy as usize..][..layout::HEADER_BYTES]
                .copy_from_slice(&header.encode());
        }
        let machine = Machine::new(&image);
        let file = match open(&machine) {
            Ok(file) => file,
            Err(MediumError::Map(error)) => panic!("{error}"),
            Err(_) => return,
        };
        file.stat();
        // Whatever the header says, the next open finds every group that is acknowledged from here
        // on.
        let guard = MediumGuard::new(&file);
        guard.words(HERE, 1).unwrap()[0].publish(&guard, 77);
        let written = guard.drain();
        drop(guard);
        drop(file);
        if written.is_ok() {
            let again = open(&machine).unwrap();
            assert_eq!(
                (content(&again)[0], again.stat().replay.groups > 0),
                (77, true)
            );
        }
    };
    for first in wild {
        with(&|header| header.sequence = first);
        with(&|header| header.checkpointed_at = first);
        with(&|header| header.incarnation_next = first as u32);
        with(&|header| header.ranges[0].incarnation = first as u32);
        with(&|header| header.ranges[0].begin = first);
        with(&|header| header.pool_bytes = first);
        for second in wild {
            with(&|header| {
                header.capacity = first;
                header.start = second;
            });
            with(&|header| {
                header.start = first;
                header.base = second;
            });
            with(&|header| {
                header.capacity = first;
                header.base = second;
                header.start = second;
            });
            with(&|header| {
                header.start = first;
                header.ranges[0].begin = first;
                header.ranges.push(layout::LogRange {
                    incarnation: 9,
                    begin: second,
                });
            });
        }
    }
}

#[test]
fn somebody_elses_file_is_not_emptied() {
    let begins_with_zeros = |at: usize, bytes: usize| {
        let mut file = vec![0; bytes];
        file[at] = 7;
        file
    };
    for file in [
        begins_with_zeros(700, 3000),
        begins_with_zeros(99_999, 100_000),
        begins_with_zeros(5 << 20, 6 << 20),
    ] {
        let machine = Machine::new(&Image {
            files: [Vec::new(), file.clone()],
        });
        assert!(matches!(
            open(&machine),
            Err(MediumError::Log(LogError::NotALog))
        ));
        assert!(machine.shown().files[1] == file);
    }
    // The file is as the interrupted creation of a log leaves it.
    open(&Machine::new(&Image {
        files: [Vec::new(), vec![0; 100_000]],
    }))
    .unwrap();
}

#[test]
#[ignore = "thorough: 18 s"]
fn a_line_outside_of_the_pool_is_reported_where_it_is() {
    let mut rig = Rig::new();
    rig.write(0, 3);
    rig.settle();
    let position = rig.file().end().0;
    rig.file().core.append(1, |_| (1 << 40, LineValue::ZERO));
    rig.file().seal().unwrap();
    let error = reopened(&rig.machine.shown()).unwrap_err();
    let expected = layout::RING + position;
    assert!(
        matches!(error, LogError::Damaged { position, .. } if position == expected),
        "{error}"
    );
}

/// Otherwise a forged log could make a copy take memory for any number of pages.
#[test]
fn a_copy_takes_no_line_outside_of_the_pool() {
    for beyond in [0, 1 << 34] {
        let mut rig = Rig::new();
        let number = rig.file().extent().length() / LINE_BYTES as u64 + beyond;
        rig.write(0, 3);
        rig.settle();
        rig.file().core.append(1, |_| (number, LineValue::ZERO));
        rig.file().seal().unwrap();
        let made = Machine::new(&Image::default());
        let target = CopyTarget {
            copy: made.io(Which::Pool),
            spool: made.io(Which::Log),
        };
        let copied = copy(
            &*rig.machine.io(Which::Pool),
            &rig.machine.io(Which::Log),
            &target,
            MARK,
            SIZES,
        );
        assert!(
            matches!(copied, Err(LogError::Damaged { .. })),
            "{copied:?}"
        );
    }
}

/// A sparse file may be longer than any disk.
#[test]
fn a_log_of_holes_is_not_read_through() {
    const LENGTH: u64 = 1 << 43;
    let (image, content) = killed();
    for unreadable in layout::HEADERS {
        let mut image = image.clone();
        image.files[1][unreadable as usize + 20] ^= 1;
        let expected = reopened(&image);
        let machine = Machine::new(&image);
        machine.io(Which::Log).truncate(LENGTH).unwrap();
        let reads = std::sync::atomic::AtomicU32::new(0);
        let hook = move |call| {
            let reads = reads.fetch_add(u32::from(call == FileCall::Read), Ordering::Relaxed);
            assert!(reads < 10_000, "it reads all of the file");
        };
        let log = Hooked::new(machine.io(Which::Log), hook);
        let found = File::open(machine.io(Which::Pool), Arc::new(log), options());
        assert_eq!(found.is_ok(), expected.is_ok());
        if let Ok(file) = found {
            assert_eq!(super::content(&file), content);
        }
    }
    // The whole file is one hole.
    let machine = Machine::new(&Image::default());
    machine.io(Which::Log).truncate(LENGTH).unwrap();
    open(&machine).unwrap();
}
