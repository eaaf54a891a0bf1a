//! Pointers to cells.

use super::{CELL_POINTER_MAX, cell_pointer, side_of};
use crate::masstree::layout::{OFFSET_MASK, WIDTH_MAX};

#[test]
fn a_pointer_leads_to_the_cells_of_its_own_slot() {
    for (slot, side) in (0..WIDTH_MAX).flat_map(|slot| [(slot, 0), (slot, 1)]) {
        let pointer = cell_pointer(slot, side);
        assert!(pointer & OFFSET_MASK == pointer && pointer <= CELL_POINTER_MAX);
        for other in 0..WIDTH_MAX {
            assert_eq!(side_of(other, pointer), (other == slot).then_some(side));
            assert!(
                side_of(other, pointer | 1).is_none()
                    && side_of(other, pointer | 1 << 48).is_none()
            );
        }
    }
    assert!(side_of(0, 0).is_none() && side_of(WIDTH_MAX - 1, CELL_POINTER_MAX + 16).is_none());
}
