use clap::Parser;

use super::*;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

fn parts(more: &[&str]) -> Vec<Args> {
    let arguments = ["crash", "--engine", "masstree"].iter().chain(more);
    Command::try_parse_from(arguments)
        .map(|command| command.args.parts())
        .unwrap_or_default()
}

#[test]
fn the_long_profile_has_all_it_promises() {
    for (more, minutes) in [
        (&["--long"][..], LONG_MINUTES),
        (&["--long", "--minutes", "5"], 5),
    ] {
        let parts = parts(more);
        let of = |part: &Args| {
            (
                part.codec,
                part.exhaustive,
                part.length,
                part.threads,
                part.minutes,
            )
        };
        let figures: Vec<_> = parts.iter().map(of).collect();
        let codec = |codec| {
            let codec = Some(codec);
            [
                (codec, true, 4, None, None),
                (codec, true, 3, Some(3), None),
                (codec, false, 3, Some(3), Some(minutes)),
            ]
        };
        let all = [
            CodecArgument::Word,
            CodecArgument::Record,
            CodecArgument::Layers,
        ]
        .map(codec);
        assert_eq!(figures, all.concat());
        assert!(parts.iter().all(|part| !part.long && part.preemptions == 2));
    }
    assert_eq!(parts(&["--ops", "7"]).len(), 1);
}

#[test]
fn small_scopes_of_masstree_have_both_shapes_of_records() {
    let codecs = |more: &[&str]| parts(more).iter().map(Args::codec).collect::<Vec<_>>();
    assert_eq!(
        codecs(&["--exhaustive"]),
        [CodecArgument::Record, CodecArgument::Layers]
    );
    assert_eq!(
        codecs(&["--exhaustive", "--codec", "record"]),
        [CodecArgument::Record]
    );
    assert_eq!(
        codecs(&["--exhaustive", "--threads", "2"]),
        [CodecArgument::Record]
    );
    assert_eq!(
        codecs(&["--ops", "7", "--codec", "layers"]),
        [CodecArgument::Layers]
    );
}

#[test]
fn what_is_random_has_images_by_chance_and_what_is_exhaustive_has_none() {
    let random = |more: &[&str]| match parts(more)[0].images_tried() {
        sim::Images::Some { random } => Some(random),
        _ => None,
    };
    assert_eq!(random(&["--ops", "7"]), Some(RANDOM_IMAGES));
    assert_eq!(random(&["--threads", "2"]), Some(RANDOM_IMAGES));
    assert_eq!(random(&["--exhaustive"]), Some(0));
    assert_eq!(random(&["--images", "all"]), None);
}

/// The largest number of the type was once printed as a number of images.
#[test]
fn more_images_than_can_be_counted_are_no_number() {
    let [report, few] = [f64::MAX, 143.0].map(|images| report::Report {
        stats: Some(sim::Stats {
            images,
            ..sim::Stats::default()
        }),
        images_avoided: Some(images - 34.0),
        ..report::Report::new(&parts(&["--seed", "1"])[0], 1)
    });
    let json = report.json().unwrap_or_default();
    assert!(
        json.get("images").is_none() && json.get("images_avoided").is_none(),
        "{json}"
    );
    assert!(
        json["images_tried"].is_string() && json["points"].is_number(),
        "{json}"
    );
    assert!(
        report.words().contains("more than 10^300 images avoided"),
        "{}",
        report.words()
    );
    assert_eq!(
        few.json().unwrap_or_default()["images"].as_f64(),
        Some(143.0)
    );
    assert!(
        few.words().contains("\n109 images avoided"),
        "{}",
        few.words()
    );
}
