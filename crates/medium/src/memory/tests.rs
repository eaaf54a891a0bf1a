use super::*;

#[test]
fn limits_of_groups_of_both_versions_count() {
    let folder = std::env::temp_dir().join(format!("everleaf-groups-{}", std::process::id()));
    let write = |path: &str, text: &str| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("memory/one/two/memory.limit_in_bytes", "4096\n");
    write("memory/one/memory.limit_in_bytes", "8192\n");
    write("slice/memory.max", "max\n");
    write("slice/unit/memory.max", "1024\n");
    assert_eq!(of_groups("3:cpu,memory:/one/two\n", &folder), [4096, 8192]);
    assert_eq!(of_groups("0::/slice/unit\n", &folder), [1024]);
    assert_eq!(of_groups("1:cpu:/one\n0::/elsewhere\n", &folder), []);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_machine_has_memory() {
    assert_eq!(
        of_machine("MemTotal:       16384 kB\nMemFree: 1 kB\n"),
        Some(16 << 20)
    );
    assert!(memory_bytes() > 1 << 20 && memory_bytes() < u64::MAX);
}
