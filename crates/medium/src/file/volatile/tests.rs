use super::*;

const TOLD: &[u8] = b"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
    31 22 0:27 / /dev/shm rw shared:2 master:3 - tmpfs none rw,size=1g\n\
    77 22 0:55 / /merged\\040here rw - overlay overlay rw,lowerdir=/a,upperdir=/dev/shm/my\\040upper,workdir=/w\n\
    78 22 0:56 / /other rw - overlay overlay rw,lowerdir=/a,upperdir=/b,volatile\n";

#[test]
fn the_options_of_an_overlay_are_found() {
    let options = overlay_options(TOLD, 77).unwrap();
    assert!(options.starts_with(b"rw,lowerdir=/a,upperdir=/dev/shm/my"));
    assert!(overlay_options(TOLD, 78).unwrap().ends_with(b",volatile"));
    assert_eq!(overlay_options(TOLD, 78).and_then(loses_all), Some(true));
    assert_eq!((overlay_options(TOLD, 31), overlay_options(TOLD, 99)), (None, None));
    assert_eq!(path(b"/dev/shm/my\\040upper"), PathBuf::from("/dev/shm/my upper"));
    assert_eq!(path(b"/a\\04"), PathBuf::from("/a\\04"));
}
#[test]
fn an_overlay_whose_upper_folder_is_out_of_sight_is_no_promise() {
    let promised = |number| promise(overlay_options(TOLD, number).and_then(loses_all));
    assert_eq!([77, 78, 99].map(promised), [Survives::ProcessCrash; 3]);
    let shown = b"1 0 0:1 / / rw - overlay overlay rw,upperdir=/proc\n";
    assert_eq!(promise(overlay_options(shown, 1).and_then(loses_all)), Survives::PowerLoss);
}
