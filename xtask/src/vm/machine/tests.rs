use clap::Parser;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn line(words: &[&str]) -> String {
    kernel_line(&Cli::parse_from([&["vm"], words].concat()).args, 7, 9)
}

#[test]
fn the_guest_is_told_what_its_first_process_asks_for() {
    let init = include_str!("../init.sh");
    let told = line(&["--medium", "dax", "--fs", "xfs"]);
    for word in told
        .split(' ')
        .filter_map(|word| word.strip_prefix("guest_"))
    {
        let name = word.split('=').next().unwrap();
        assert!(
            init.contains(&format!("guest_{name}")),
            "nobody asks for {name}"
        );
    }
    assert!(
        told.contains("guest_medium=dax guest_fs=xfs guest_round=7 guest_seed=9"),
        "{told}"
    );
    assert!(
        line(&["--log-bytes-max", "99"]).contains("guest_log_bytes=65536 guest_log_bytes_max=99")
    );
    assert!(line(&["--no-sync"]).contains("guest_syncs=no") && told.contains("guest_syncs=yes"));
}

#[test]
fn memory_is_kept_for_the_channel_and_for_a_pool_on_dax() {
    assert!(line(&[]).contains("memmap=64M!384M guest_medium"));
    assert!(line(&["--medium", "dax"]).contains("memmap=64M!384M memmap=432M!464M guest_medium"));
}
