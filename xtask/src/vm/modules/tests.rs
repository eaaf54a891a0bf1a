use super::*;

#[test]
fn dependencies_are_read_from_the_module() {
    assert_eq!(
        dependencies(b"ELF\0license=GPL\0depends=libnvdimm,nd-btt\0name=x\0"),
        ["libnvdimm", "nd_btt"]
    );
    assert!(dependencies(b"\0depends=\0").is_empty() && dependencies(b"no such field").is_empty());
    assert_eq!(
        name_of(Path::new("kernel/drivers/virtio-ring.ko")).as_deref(),
        Some("virtio_ring")
    );
    assert_eq!(name_of(Path::new("modules.order")), None);
}

#[test]
fn what_is_needed_comes_first_and_once() {
    let mut depends = |name: &str| match name {
        "pmem" => Ok(Some(vec!["nvdimm".to_owned(), "btt".to_owned()])),
        "e820" | "btt" => Ok(Some(vec!["nvdimm".to_owned()])),
        "nvdimm" => Ok(Some(Vec::new())),
        "ext4" => Ok(None),
        other => Err(Failure::NoModule {
            package: "p".to_owned(),
            module: other.to_owned(),
        }),
    };
    let order = in_order(&["pmem", "ext4", "e820"], &mut depends).unwrap();
    assert_eq!(order, ["nvdimm", "btt", "pmem", "e820"]);
    let missing = in_order(&["virtio"], &mut depends).unwrap_err().to_string();
    assert!(
        missing.contains("virtio") && missing.contains("--kernel"),
        "{missing}"
    );
}
