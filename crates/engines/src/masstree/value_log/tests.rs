//! Epochs in value logs.

use super::ValueLog;

#[test]
fn a_value_log_tells_its_epoch_near_every_wrap() {
    for epoch in [
        5,
        0xffff,
        0x1_0000,
        0x1_0001,
        0xffff_ffff,
        0x1_0000_0000,
        0x12_3456_7fff,
    ] {
        let log = ValueLog::new(9, 0x1234_5670, epoch);
        assert_eq!((log.slot(), log.value()), (9, 0x1234_5670));
        for distance in [0, 1, 2, 1000, (1 << 15) - 1] {
            assert_eq!(log.epoch(epoch + distance), epoch);
            assert_eq!(log.epoch(epoch.saturating_sub(distance)), epoch);
        }
    }
}
