use super::available_bytes;

#[test]
fn memory_that_is_to_be_had_is_read_from_what_the_kernel_says() {
    let said = "MemTotal:       24658536 kB\nMemFree:  100 kB\nMemAvailable:   23059412 kB\n";
    assert_eq!(available_bytes(said), Some(23_059_412 << 10));
    assert_eq!(available_bytes("MemTotal: 5 kB\n"), None);
}
