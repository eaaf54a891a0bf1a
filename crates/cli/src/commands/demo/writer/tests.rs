use super::*;

#[test]
fn paths_arrive_as_they_were_sent() {
    let mut listing = Listing::default();
    listing.push(b"/a b\n", 5, -7);
    listing.push(b"", u64::MAX, i64::MIN);
    let mut pipe = Vec::new();
    send(&listing, &mut pipe).unwrap();
    let received = receive(pipe.as_slice()).unwrap();
    assert_eq!(received.len(), 2);
    assert_eq!(
        (received.path(0), received.figures(0)),
        (b"/a b\n".as_slice(), (5, -7))
    );
    assert_eq!(
        (received.path(1), received.figures(1)),
        (b"".as_slice(), (u64::MAX, i64::MIN))
    );
    assert!(receive(&pipe[..3]).unwrap().len() == 0 && receive(&pipe[..9]).is_err());
}

#[test]
fn the_parts_are_all_and_do_not_overlap() {
    for count in [0, 1, 2, 7, 1000] {
        let all: Vec<usize> = (0..THREADS)
            .flat_map(|thread| part(thread, count))
            .collect();
        assert_eq!(all, (0..count).collect::<Vec<_>>());
    }
}
