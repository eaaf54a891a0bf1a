use super::*;

#[test]
fn a_meta_package_of_a_kernel_stands_for_another() {
    let said = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n  Suggests: fdutils\n";
    assert_eq!(real_package(said), Some("linux-image-6.1.0-56-cloud-amd64"));
    assert_eq!(real_package("busybox-static\n  Conflicts: busybox\n"), None);
}

#[test]
fn cached_packages_are_known_by_their_names() {
    let cloud = "linux-image-6.1.0-56-cloud-amd64_6.1.192-2_amd64.deb";
    let usual = "linux-image-6.1.0-56-amd64_6.1.192-2_amd64.deb";
    assert!(is_package(cloud, "linux-image-cloud-amd64") && is_package(usual, "linux-image-amd64"));
    assert!(
        !is_package(cloud, "linux-image-amd64") && !is_package(usual, "linux-image-cloud-amd64")
    );
    assert!(is_package(cloud, "linux-image-6.1.0-56-cloud-amd64"));
    assert!(is_package(
        "busybox-static_1%3a1.35.0-4_amd64.deb",
        "busybox-static"
    ));
    assert!(!is_package("busybox-static_1.deb.part", "busybox-static"));
}
