use super::*;

#[test]
fn lines_up_to_the_limit_are_read_and_longer_ones_are_skipped() {
    let of = |bytes: usize, end: &str| [vec![b'x'; bytes], end.as_bytes().to_vec()].concat();
    let input = [
        of(3, "\n"),
        of(LINE_BYTES_MAX - 1, "\n"),
        of(LINE_BYTES_MAX, "\n"),
        of(0, "\n"),
        of(2 * LINE_BYTES_MAX, "\n"),
        of(LINE_BYTES_MAX, ""),
    ]
    .concat();
    let mut input = BufReader::new(&input[..]);
    let mut line = Vec::new();
    let mut next = || {
        let read = read_line(&mut input, &mut line).unwrap();
        assert!(line.capacity() <= 2 * LINE_BYTES_MAX);
        read
    };
    assert_eq!(next(), LineRead::Line(4));
    assert_eq!(next(), LineRead::Line(LINE_BYTES_MAX));
    assert_eq!(next(), LineRead::TooLong(LINE_BYTES_MAX + 1));
    assert_eq!(next(), LineRead::Line(1));
    assert_eq!(next(), LineRead::TooLong(2 * LINE_BYTES_MAX + 1));
    assert_eq!(next(), LineRead::Line(LINE_BYTES_MAX));
    assert_eq!(next(), LineRead::End);
}
