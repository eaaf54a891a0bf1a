use super::*;

#[test]
fn replays_read_back() {
    let replay = CrashReplay {
        crashes: vec![(17, Choices::Given(vec![0, 2])), (3, Choices::default())],
    };
    assert_eq!(replay.to_string(), "17:0,2/3:");
    assert_eq!(replay.to_string().parse(), Ok(replay));
    for text in [
        "17:new",
        "1:ahead=12",
        "1:0,1/2:behind=12",
        "1:random=18446744073709551615",
    ] {
        assert_eq!(
            text.parse::<CrashReplay>().map(|replay| replay.to_string()),
            Ok(text.to_owned())
        );
    }
    assert!("17;3".parse::<CrashReplay>().is_err());
}
