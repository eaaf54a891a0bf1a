//! The results as a table for a person.

use crate::measure::Plan;
use crate::peers::Kind;
use crate::turns::Results;

/// Medians, one column for each store; the best of a line has a star.
pub(crate) fn text(results: &Results, plan: &Plan, kinds: &[&'static Kind]) -> String {
    let mut text = String::new();
    let mut group = "";
    for metric in plan.metrics() {
        if metric.group != group {
            group = metric.group;
            text += &format!("\n{group:<44}");
            for kind in kinds {
                text += &format!("{:>11}", kind.name);
            }
            text += "\n";
        }
        let best = results.best(kinds, metric).map(|(kind, _)| kind.name);
        text += &format!("  {:<42}", metric.title);
        for kind in kinds {
            let figure = results
                .median(kind.name, metric)
                .map_or("-".to_owned(), |value| metric.figure(value));
            let star = if best == Some(kind.name) { "*" } else { "" };
            text += &format!("{:>11}", format!("{star}{figure}"));
        }
        text += "\n";
    }
    text
}
