use super::*;

#[test]
fn a_file_system_that_does_not_tell_promises_nothing() {
    let promised = [TMPFS, RAMFS, OVERLAYFS, 0xef53].map(|number| promise(of_file_system(number)));
    let in_process = Survives::ProcessCrash;
    assert_eq!(
        promised,
        [in_process, in_process, in_process, Survives::PowerLoss]
    );
    assert_eq!(promise(None), Survives::ProcessCrash);
}
