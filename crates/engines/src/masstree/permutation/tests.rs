//! Permutations beside a vector.

use super::*;

fn slots(permutation: Permutation, width: usize) -> Vec<usize> {
    (0..permutation.count(width))
        .map(|position| permutation.slot(position))
        .collect()
}

#[test]
fn inserts_and_removes_as_a_vector_does() {
    for width in [4, 14, 15] {
        let mut permutation = Permutation::identity(0, width);
        let mut model = Vec::new();
        let mut state = 7_usize;
        for _ in 0..10_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let choice = state >> 33;
            if model.len() < width && (model.is_empty() || choice.is_multiple_of(2)) {
                let position = choice / 2 % (model.len() + 1);
                model.insert(position, permutation.free_slot(width));
                permutation = permutation.inserted(position, width);
            } else {
                let position = choice / 2 % model.len();
                let slot = model.remove(position);
                permutation = permutation.removed(position, width);
                assert_eq!(permutation.free_slot(width), slot);
            }
            assert_eq!(slots(permutation, width), model);
            assert!(permutation.is_sound(width));
            for (position, slot) in model.iter().enumerate() {
                assert_eq!(permutation.position(*slot), position);
            }
        }
    }
}
