//! One line of CSV as fields, and back.

/// The fields of a line of CSV; `None` if it is more than one line.
pub(super) fn fields(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let is_plain = !line.iter().any(|byte| b"\"\r\n".contains(byte));
    if is_plain {
        let fields = line.split(|byte| *byte == b',');
        return Some(fields.map(<[u8]>::to_vec).collect());
    }
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(line);
    let mut record = csv::ByteRecord::new();
    let mut next = csv::ByteRecord::new();
    // Reading from memory does not fail.
    let has_one = reader.read_byte_record(&mut record).unwrap_or(false);
    let has_more = reader.read_byte_record(&mut next).unwrap_or(true);
    if !has_one || has_more {
        return None;
    }
    Some(record.iter().map(<[u8]>::to_vec).collect())
}

/// The line of CSV with these fields, without its end.
pub(super) fn line<T: AsRef<[u8]>>(fields: &[T]) -> Vec<u8> {
    let mut line = Vec::new();
    let mut writer = csv::WriterBuilder::new()
        .terminator(csv::Terminator::Any(b'\n'))
        .from_writer(&mut line);
    // Writing to memory does not fail.
    let _ = writer.write_record(fields);
    let _ = writer.flush();
    drop(writer);
    line.pop();
    line
}
