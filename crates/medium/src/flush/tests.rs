use super::{FlushKind, each_line, flush_range, store_fence};

#[test]
fn the_detected_kind_is_supported() {
    assert!(FlushKind::detect().is_supported());
    assert!(FlushKind::Nothing.is_supported());
}

#[test]
fn names_read_back() {
    for kind in FlushKind::all() {
        assert_eq!(kind.name().parse(), Ok(kind));
        assert_eq!(kind.name().to_uppercase().parse(), Ok(kind));
    }
    let error = "clfush".parse::<FlushKind>().unwrap_err().to_string();
    assert!(
        error.contains("\"clfush\"") && error.contains("clflushopt"),
        "{error}"
    );
}

#[test]
fn every_supported_kind_flushes_and_keeps_the_bytes() {
    let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
    for kind in FlushKind::all()
        .into_iter()
        .filter(|kind| kind.is_supported())
    {
        for (first, length) in [(0, 1000), (3, 0), (63, 1), (63, 2), (1, 999), (500, 64)] {
            // SAFETY: the range lies in `bytes`, and the kind is supported.
            unsafe { flush_range(kind, bytes[first..].as_ptr(), length) };
        }
        store_fence(kind);
        assert!(
            bytes
                .iter()
                .zip((0..=255).cycle())
                .all(|(&found, wanted)| found == wanted),
            "{kind}"
        );
    }
}

#[test]
fn each_line_visits_exactly_the_lines_touched() {
    let base = std::ptr::without_provenance::<u8>(0x1000);
    let lines = |first: usize, length| {
        let mut found = Vec::new();
        each_line(base.wrapping_add(first), length, 64, |line| {
            found.push(line.addr() - 0x1000);
        });
        found
    };
    assert_eq!(lines(0, 0), []);
    assert_eq!(lines(7, 0), []);
    assert_eq!(lines(0, 1), [0]);
    assert_eq!(lines(0, 64), [0]);
    assert_eq!(lines(0, 65), [0, 64]);
    assert_eq!(lines(63, 2), [0, 64]);
    assert_eq!(lines(65, 63), [64]);
    assert_eq!(lines(10, 200), [0, 64, 128, 192]);
}
