use super::*;

fn sample() -> Vec<u8> {
    let mut dump = Vec::new();
    let mut writer = DumpWriter::new(&mut dump).unwrap();
    writer
        .tree("a name=\tof\u{e4} =", TreeOptions::RECORDS)
        .unwrap();
    writer.entry(b"", b"").unwrap();
    writer
        .entry(b"# end of dump trees=0 entries=0", b"\xff\t\n\\")
        .unwrap();
    writer.end_tree().unwrap();
    writer.tree("words", TreeOptions::WORDS).unwrap();
    writer
        .entry(&7_u64.to_be_bytes(), &u64::MAX.to_be_bytes())
        .unwrap();
    writer.end_tree().unwrap();
    let DumpSize { trees, entries } = writer.finish().unwrap();
    assert_eq!((trees, entries), (2, 3));
    dump
}

fn read(dump: &[u8]) -> Result<Vec<DumpPart>, Failure> {
    let mut reader = DumpReader::new(dump, "dump")?;
    let mut events = Vec::new();
    loop {
        events.push(reader.next()?);
        if events.last() == Some(&DumpPart::End) {
            return Ok(events);
        }
    }
}

#[test]
fn what_is_written_is_read() {
    let expected = [
        DumpPart::Tree("a name=\tof\u{e4} =".to_owned(), TreeOptions::RECORDS),
        DumpPart::Entry(Vec::new(), Vec::new()),
        DumpPart::Entry(
            b"# end of dump trees=0 entries=0".to_vec(),
            b"\xff\t\n\\".to_vec(),
        ),
        DumpPart::EndTree,
        DumpPart::Tree("words".to_owned(), TreeOptions::WORDS),
        DumpPart::Entry(
            7_u64.to_be_bytes().to_vec(),
            u64::MAX.to_be_bytes().to_vec(),
        ),
        DumpPart::EndTree,
        DumpPart::End,
    ];
    assert_eq!(read(&sample()).unwrap(), expected);
}

#[test]
fn every_truncation_and_every_flipped_bit_is_noticed() {
    let dump = sample();
    for length in 0..dump.len() {
        read(&dump[..length]).unwrap_err();
    }
    for byte in 0..dump.len() {
        let mut damaged = dump.clone();
        damaged[byte] ^= 1;
        assert!(read(&damaged).is_err(), "byte {byte}");
    }
}
