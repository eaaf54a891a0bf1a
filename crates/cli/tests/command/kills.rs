//! The command that kills its own writer.

use crate::common::{everleaf, on, pool, run};
use serde_json::json;

#[test]
fn the_demo_proves_itself_on_a_small_folder() {
    let (folder, pool) = pool();
    let root = folder.path().join("files");
    for number in 0..300 {
        let sub = root.join(format!("folder {}", number % 7));
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::write(sub.join(format!("file {number}")), vec![b'x'; number]).unwrap();
    }
    let demo = |more: &[&str]| {
        let arguments = [
            "demo",
            "--root",
            root.to_str().unwrap(),
            "--pool",
            pool.to_str().unwrap(),
        ];
        run(&[&arguments, more].concat())
    };
    let said = demo(&[]).expect(0);
    for part in [
        "SIGKILL",
        "308 paths",
        "time to recover",
        "bytes per key",
        "does not survive",
        "Next:",
    ] {
        assert!(said.text().contains(part), "{part}: {said:?}");
    }
    let report = demo(&["--json"]).expect(0).json();
    assert_eq!(report["keys"], json!(308));
    assert_eq!(
        (&report["violations"], &report["first_violations"]),
        (&json!(0), &json!([]))
    );
    assert_eq!(report["next"].as_array().unwrap().len(), 3);
    // The command that it suggests works.
    let count = run(&on("scan", &pool, &["--keys"]))
        .expect(0)
        .text()
        .lines()
        .count();
    assert_eq!(count, 308);
    // Another pool at the same path is not touched.
    run(&on("put", &pool, &["k", "v", "--tree", "mine"])).expect(0);
    let said = demo(&[]).expect(3);
    assert!(said.errors.contains("a tree \"mine\""), "{said:?}");
    std::fs::write(&pool, "notes").unwrap();
    demo(&[]).expect(3);
    assert_eq!(std::fs::read_to_string(&pool).unwrap(), "notes");
}

#[test]
fn the_demo_makes_its_pool_in_the_current_folder() {
    let (folder, _) = pool();
    let root = folder.path().join("few");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("one"), "1").unwrap();
    let run = everleaf()
        .args(["demo", "--root", "few"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    assert!(folder.path().join("everleaf-demo.pool").exists());
}
