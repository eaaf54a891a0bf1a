use super::*;

#[test]
fn panics_become_complaints() {
    let complaint = guarded::<()>(|| panic!("no {}", "good")).unwrap_err();
    assert!(
        complaint.contains("no good") && complaint.contains("guarded/tests.rs"),
        "{complaint}"
    );
    let complaint = guarded::<()>(|| std::panic::panic_any(StepLimitExceeded)).unwrap_err();
    assert!(complaint.contains("step limit"), "{complaint}");
    assert_eq!(guarded(|| Ok(3)), Ok(3));
}
