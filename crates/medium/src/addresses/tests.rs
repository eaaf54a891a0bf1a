use super::*;

const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
const TIB: u64 = 1 << 40;
const GIB: u64 = 1 << 30;

/// Each mapping lies inside its own territory, and the territories fill the window.
fn assert_whole(territories: &Territories, window: [u64; 2]) {
    let mut end = window[0];
    for (start, territory) in &territories.by_start {
        assert_eq!(*start, end);
        assert!(*start <= territory.used_end && territory.used_end <= territory.end);
        assert!(
            territories
                .free_ends
                .contains(&FreeEnd::of(*start, territory))
        );
        end = territory.end;
    }
    assert_eq!(end, window[1]);
    assert_eq!(territories.by_start.len(), territories.free_ends.len());
}

fn room(territories: &Territories, start: u64) -> u64 {
    territories.by_start[&start].end - start
}

#[test]
fn the_first_mappings_can_grow_to_tebibytes_and_a_thousand_to_tens_of_gibibytes() {
    let window = [TIB, 84 * TIB];
    let mut territories = Territories::of_window(window[0], window[1]);
    let mut starts = Vec::new();
    for number in 1..=1000 {
        let start = territories.claim(1 << 16, u64::MAX).unwrap();
        assert_eq!(start % HUGE_PAGE_BYTES, 0);
        starts.push(start);
        assert_whole(&territories, window);
        let least = starts.iter().map(|start| room(&territories, *start)).min();
        let wanted = match number {
            1..=3 => 20 * TIB,
            4..=31 => 2 * TIB,
            _ => 40 * GIB,
        };
        assert!(least.unwrap() >= wanted, "{number}: {least:?}");
    }
    // In another order than they came.
    starts.sort_by_key(|start| start.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for start in starts {
        territories.release(start);
        assert_whole(&territories, window);
    }
    assert_eq!(territories.by_start.len(), 1);
}

#[test]
fn a_mapping_with_a_limit_gets_no_more_addresses_than_that() {
    let window = [TIB, 84 * TIB];
    let mut territories = Territories::of_window(window[0], window[1]);
    let start = territories.claim(1 << 16, GIB + 1).unwrap();
    assert_eq!(room(&territories, start), GIB + HUGE_PAGE_BYTES);
    assert!(territories.resize(start, GIB + HUGE_PAGE_BYTES));
    assert!(!territories.resize(start, GIB + HUGE_PAGE_BYTES + 1));
    assert_whole(&territories, window);
}

#[test]
fn a_mapping_that_has_grown_is_left_its_pages() {
    let window = [0, 64 * HUGE_PAGE_BYTES];
    let mut territories = Territories::of_window(window[0], window[1]);
    let first = territories.claim(1, u64::MAX).unwrap();
    assert!(territories.resize(first, 30 * HUGE_PAGE_BYTES));
    while let Some(start) = territories.claim(HUGE_PAGE_BYTES, u64::MAX) {
        assert!(start < first || start >= first + 30 * HUGE_PAGE_BYTES);
        assert_whole(&territories, window);
    }
    // A mapping that is not known has no territory to grow in.
    assert!(!territories.resize(1, 1));
    assert!(territories.by_start.len() > 10);
}

#[test]
fn more_than_half_of_the_addresses_is_refused() {
    let refused = AddressRange::place(MAPPING_BYTES_MAX + 1, u64::MAX, ACCESS);
    assert!(matches!(refused, Err(NotMapped::Occupied)), "{refused:?}");
}

#[test]
fn a_place_of_the_systems_choice_has_room_behind_it() {
    let bytes = page_bytes();
    let range = AddressRange::place_anywhere(bytes, u64::MAX, ACCESS).unwrap();
    assert_eq!(range.start().as_ptr().addr() as u64 % HUGE_PAGE_BYTES, 0);
    range.extend(8 * HUGE_PAGE_BYTES, ACCESS).unwrap();
    assert_eq!(range.mapped_bytes(), 8 * HUGE_PAGE_BYTES);
}

/// Ranges that another one may not grow over.
fn map_foreign(address: u64) -> NonNull<u8> {
    map_new(address, page_bytes(), ACCESS).unwrap()
}

fn unmap(foreign: NonNull<u8>) {
    // SAFETY: mapped by `map_foreign`.
    unsafe { munmap(foreign.as_ptr().cast(), page_bytes() as usize) }.unwrap();
}

#[test]
fn a_range_stops_before_a_foreign_mapping_and_stays_as_it_is() {
    let page = page_bytes();
    let range = AddressRange::place(page, u64::MAX, ACCESS).unwrap();
    let start = range.start().as_ptr().addr() as u64;
    let foreign = map_foreign(start + 2 * page);
    // SAFETY: both pages are mapped for this test alone.
    unsafe {
        range.start().write(7);
        foreign.write(9);
    }
    let refused = range.extend(4 * page, ACCESS);
    assert!(matches!(refused, Err(NotMapped::Occupied)), "{refused:?}");
    assert_eq!(range.mapped_bytes(), page);
    range.extend(2 * page, ACCESS).unwrap();
    // SAFETY: as above.
    let found = unsafe { [range.start().read(), foreign.read()] };
    assert_eq!(found, [7, 9]);
    unmap(foreign);
    range.extend(4 * page, ACCESS).unwrap();
}

#[test]
fn a_new_range_passes_by_a_foreign_mapping() {
    let page = page_bytes();
    let range = AddressRange::place(page, u64::MAX, ACCESS).unwrap();
    let start = range.start().as_ptr().addr() as u64;
    drop(range);
    // Other tests may take this place at the same time.
    let Ok(foreign) = map_new(start, page, ACCESS) else {
        return;
    };
    let ranges: Vec<_> = (0..64)
        .map(|_| AddressRange::place(page, u64::MAX, ACCESS).unwrap())
        .collect();
    assert!(ranges.iter().all(|range| range.start() != foreign));
    unmap(foreign);
}
