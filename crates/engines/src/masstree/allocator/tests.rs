//! The places of objects in a run.

use super::*;

#[test]
fn places_in_a_run_hold_whole_objects() {
    let run = run_of(5 * SLAB_BYTES);
    for (class, size) in SIZES.iter().copied().map(u64::from).enumerate() {
        let objects = run + RUN_HEADER_BYTES..run + RUN_HEADER_BYTES + run_bytes(class);
        let slab = (5 * SLAB_BYTES..6 * SLAB_BYTES).step_by(16);
        let places: Vec<u64> = slab.filter(|object| is_place(*object, class)).collect();
        assert_eq!(places.len() as u64, run_bytes(class) / size);
        for object in places {
            assert!(objects.contains(&object) && object + size <= objects.end);
            assert!(
                (0..64).all(|bit| (4..48).contains(&bit) || !is_place(object ^ 1 << bit, class))
            );
        }
        let outside = [0, 128, u64::MAX, u64::MAX - 15];
        assert!(outside.iter().all(|object| !is_place(*object, class)));
    }
}
