//! `docs/WORKBENCH.md`: every answer that it shows has the shape that the command prints.

use crate::common::page::expect_shapes;

#[test]
fn every_answer_has_the_shape_that_the_page_shows() {
    expect_shapes(include_str!("../../../../docs/WORKBENCH.md"));
}
