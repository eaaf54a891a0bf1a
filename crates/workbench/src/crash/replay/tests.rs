use super::*;

#[test]
fn words_read_back() {
    for word in [
        "i10=10.i20=20,u10=100.s@57:0,1/3:",
        ",r1@12:",
        ",i1=1@",
        "i1=1,,g1,r1.s@1,12:0@7:1",
    ] {
        assert_eq!(
            word.parse::<Repeat>().map(|repeat| repeat.to_string()),
            Ok(word.to_owned())
        );
    }
    let threads = format!(",{}@0@1:", ",g1".repeat(65));
    for bad in [
        threads.as_str(),
        ",f9=1@1:",
        ",l1=18446744073709551615@",
        ",i4294967296=1@1:",
        ",,g1,o@0@1:",
    ] {
        assert!(bad.parse::<Repeat>().is_err(), "{bad}");
    }
    assert!(",i1=1@1:/2:/3:".parse::<Repeat>().is_err());
    for bad in [
        "",
        "i1=1@1:",
        ",i1=1",
        ",i1=1@x",
        ",i1@1:",
        ",i1=1@0@1:",
        ",,g1@1:",
        ",,g1@0@@",
    ] {
        assert!(bad.parse::<Repeat>().is_err(), "{bad}");
    }
}
