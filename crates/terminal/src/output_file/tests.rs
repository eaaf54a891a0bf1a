use super::*;

const FORCE: ForceArgs = ForceArgs { force: true };
const NO_FORCE: ForceArgs = ForceArgs { force: false };

/// The names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn begin(path: &Path, force: ForceArgs) -> OutputFile {
    let output = OutputFile::begin(path, force, &[]).unwrap();
    output.handle().unwrap().write_all(b"new").unwrap();
    output
}

#[test]
fn a_file_that_appears_meanwhile_is_not_replaced_without_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let output = begin(&path, NO_FORCE);
    fs::write(&path, "another").unwrap();
    let error = output.finish().unwrap_err();
    assert!(matches!(error, OutputError::Exists { .. }), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "another");
    assert_eq!(names(folder.path()), ["out"]);
    begin(&path, FORCE).finish().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
}

#[test]
fn an_output_that_is_not_finished_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    drop(begin(&path, NO_FORCE));
    assert!(names(folder.path()).is_empty());
    fs::write(&path, "old").unwrap();
    drop(begin(&path, FORCE));
    OutputFile::rehearse(&path, FORCE, 1000).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(names(folder.path()), ["out"]);
    let error = OutputFile::rehearse(&path, NO_FORCE, 1000).unwrap_err();
    assert!(matches!(error, OutputError::Exists { .. }), "{error}");
}

#[test]
fn a_locked_file_and_the_log_of_one_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let log = folder.path().join("out.log");
    let link = folder.path().join("link");
    fs::write(&path, "old").unwrap();
    fs::write(&log, "old").unwrap();
    fs::hard_link(&path, &link).unwrap();
    let begun = begin(&path, FORCE);
    let holder = File::open(&path).unwrap();
    holder.try_lock().unwrap();
    for path in [&path, &log, &link] {
        let refused = OutputFile::begin(path, FORCE, &[]).err().unwrap();
        assert!(matches!(refused, OutputError::InUse { .. }), "{refused}");
    }
    // The lock came after the output had begun.
    let refused = begun.finish().unwrap_err();
    assert!(matches!(refused, OutputError::InUse { .. }), "{refused}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    drop(holder);
    begin(&log, FORCE).finish().unwrap();
}

#[test]
fn an_input_is_found_by_every_path() {
    let folder = tempfile::tempdir().unwrap();
    let input = InputFile {
        path: folder.path().join("input"),
        what: "the input",
    };
    let other = folder.path().join("other");
    std::os::unix::fs::symlink("input", &other).unwrap();
    for path in [&input.path, &other] {
        let refused = OutputFile::begin(path, FORCE, std::slice::from_ref(&input));
        assert!(matches!(refused, Err(OutputError::IsInput { .. })));
    }
    fs::write(&input.path, "content").unwrap();
    fs::remove_file(&other).unwrap();
    fs::hard_link(&input.path, &other).unwrap();
    for path in [&input.path, &other] {
        let refused = OutputFile::begin(path, FORCE, std::slice::from_ref(&input));
        assert!(matches!(refused, Err(OutputError::IsInput { .. })));
    }
}
