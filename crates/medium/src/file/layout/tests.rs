use super::*;

#[test]
fn headers_read_as_they_were_written() {
    let header = Header {
        uuid: 7 << 100 | 9,
        sequence: 3,
        capacity: CAPACITY_MIN,
        base: CAPACITY_MIN,
        pool_bytes: 1 << 20,
        start: CAPACITY_MIN + 96,
        checkpointed_at: 1 << 31,
        incarnation_next: 12,
        ranges: (0..RANGES_MAX as u32)
            .map(|index| LogRange {
                incarnation: index,
                begin: 96 * u64::from(index),
            })
            .collect(),
    };
    let bytes = header.encode();
    assert_eq!(Header::decode(&bytes), Ok(header));
    for index in 0..HEADER_BYTES {
        let mut flipped = bytes;
        flipped[index] ^= 4;
        assert_eq!(
            Header::decode(&flipped),
            Err(NoHeader::Damaged),
            "byte {index}"
        );
    }
    // Any of its lines alone tells that it was one.
    for line in 0..8 {
        let mut torn = [0; HEADER_BYTES];
        torn[64 * line..64 * line + 64].copy_from_slice(&bytes[64 * line..64 * line + 64]);
        assert_eq!(Header::decode(&torn), Err(NoHeader::Damaged), "line {line}");
    }
    assert_eq!(Header::decode(&[7; HEADER_BYTES]), Err(NoHeader::Foreign));
    assert_eq!(Header::decode(&[0; HEADER_BYTES]), Err(NoHeader::Blank));
}

#[test]
fn a_mark_is_whole_or_damaged() {
    assert_eq!(LogMark::decode(&[0; 64]), Some(LogMark(None)));
    let bytes = LogMark(Some(77)).encode();
    assert_eq!(LogMark::decode(&bytes), Some(LogMark(Some(77))));
    for index in 0..64 {
        let mut flipped = bytes;
        flipped[index] ^= 1;
        assert_eq!(
            LogMark::decode(&flipped),
            Some(LogMark(Some(77))),
            "byte {index}"
        );
        flipped[(index + 32) % 64] ^= 1;
        assert_eq!(
            LogMark::decode(&flipped),
            None,
            "bytes {index} of both halves"
        );
    }
}

#[test]
fn an_announcement_is_whole_or_none() {
    let nothing = CheckpointNotice::decode(&[0; ANNOUNCEMENT_BYTES]);
    assert_eq!(nothing, Some(CheckpointNotice::NOTHING));
    assert!(CheckpointNotice::NOTHING.is_within(0, 7));
    let notice = CheckpointNotice {
        position: 800,
        incarnation: 7,
    };
    let bytes = notice.encode();
    assert_eq!(CheckpointNotice::decode(&bytes), Some(notice));
    for index in 0..ANNOUNCEMENT_BYTES {
        let mut flipped = bytes;
        flipped[index] ^= 1;
        assert_eq!(CheckpointNotice::decode(&flipped), None, "byte {index}");
    }
    assert!(notice.is_within(800, 7) && !notice.is_within(799, 7));
    // A session whose checkpoints are known, and one that has begun since.
    assert!(notice.is_within(800, 8) && !notice.is_within(800, 6));
    let wrapped = CheckpointNotice {
        position: 800,
        incarnation: 1,
    };
    assert!(!wrapped.is_within(800, u32::MAX) && notice.is_within(900, 7));
}

#[test]
fn a_frame_is_for_one_position() {
    let frame = FrameHeader {
        check: 5,
        lines: 2,
        position: 800,
        incarnation: 3,
        durable: 640,
    };
    let bytes = frame.encode();
    assert_eq!(FrameHeader::decode(&bytes, 800), Some(frame));
    assert_eq!(FrameHeader::decode(&bytes, 808), None);
    assert_eq!(frame.bytes(), 24 + 2 * 72);
}
