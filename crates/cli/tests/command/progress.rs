//! Bars in a terminal: the first frame is right, and nothing of a bar remains.

use crate::common::frames::frames;
use crate::common::{everleaf, lines, on, pool, run, run_with};

#[test]
fn the_first_frame_of_every_bar_is_right() {
    let (folder, pool) = pool();
    let lines = lines(0..300_000, |number| {
        format!("{number:06}\tvalue {number}\n")
    });
    let input = folder.path().join("lines");
    std::fs::write(&input, &lines).unwrap();
    let shown = frames(everleaf().args(on("load", &pool, &[input.to_str().unwrap()])));
    assert!(shown[0].contains("0%, 0 entries"), "{shown:?}");
    for subcommand in ["check", "dump"] {
        let shown = frames(everleaf().args(on(subcommand, &pool, &[])));
        assert!(
            shown[0].contains(" 0 of 300,000 entries"),
            "{subcommand}: {shown:?}"
        );
        assert!(
            !shown
                .iter()
                .any(|frame| frame.contains("inf") || frame.contains("NaN")),
            "{shown:?}"
        );
    }
    assert_eq!(
        run_with(&on("check", &pool, &["--quiet"]), b"")
            .expect(0)
            .errors,
        ""
    );
    // Without a terminal there is no bar.
    assert!(
        !run(&on("check", &pool, &[]))
            .expect(0)
            .errors
            .contains("checking")
    );
}
