use super::*;

/// Trees with an odd name, of words, and with types.
fn heads() -> [TreeHead; 3] {
    let head = |name: &str, kind| TreeHead {
        name: name.to_owned(),
        kind,
        encodings: None,
    };
    let typed = TreeHead {
        encodings: Some(Encodings {
            key: "(text,u32)".to_owned(),
            value: "order:2".to_owned(),
        }),
        ..head("orders", TreeOptions::RECORDS)
    };
    [
        head("a name=\tof\u{e4} =", TreeOptions::RECORDS),
        head("words", TreeOptions::WORDS),
        typed,
    ]
}

fn sample() -> Vec<u8> {
    let [odd, words, typed] = heads();
    let mut dump = Vec::new();
    let mut writer = DumpWriter::new(&mut dump).unwrap();
    writer.tree(&odd).unwrap();
    writer.entry(b"", b"").unwrap();
    writer
        .entry(b"# end of dump trees=0 entries=0", b"\xff\t\n\\")
        .unwrap();
    writer.end_tree().unwrap();
    writer.tree(&words).unwrap();
    writer
        .entry(&7_u64.to_be_bytes(), &u64::MAX.to_be_bytes())
        .unwrap();
    writer.end_tree().unwrap();
    writer.tree(&typed).unwrap();
    writer.entry(b"key", b"value").unwrap();
    writer.end_tree().unwrap();
    let DumpSize { trees, entries } = writer.finish().unwrap();
    assert_eq!((trees, entries), (3, 4));
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
    let [odd, words, typed] = heads();
    let expected = [
        DumpPart::Tree(odd),
        DumpPart::Entry(Vec::new(), Vec::new()),
        DumpPart::Entry(
            b"# end of dump trees=0 entries=0".to_vec(),
            b"\xff\t\n\\".to_vec(),
        ),
        DumpPart::EndTree,
        DumpPart::Tree(words),
        DumpPart::Entry(
            7_u64.to_be_bytes().to_vec(),
            u64::MAX.to_be_bytes().to_vec(),
        ),
        DumpPart::EndTree,
        DumpPart::Tree(typed),
        DumpPart::Entry(b"key".to_vec(), b"value".to_vec()),
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
