//! The results as tables.

use lab::bench::KeyShape;
use lab::comparison::{Row, Table};

use crate::measure::Plan;
use crate::metric::Metric;
use crate::peers::PeerKind;
use crate::turns::Results;

/// Medians, one column for each store: a table for each group of figures.
pub(crate) fn tables(results: &Results, plan: &Plan, kinds: &[&'static PeerKind]) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    let mut group = "";
    for metric in plan.metrics() {
        if metric.group != group {
            group = metric.group;
            tables.push(Table {
                heading: group.to_owned(),
                columns: kinds.iter().map(|kind| kind.name.to_owned()).collect(),
                rows: Vec::new(),
            });
        }
        if let Some(table) = tables.last_mut() {
            table.rows.push(row(results, metric, kinds));
        }
    }
    tables
}

fn row(results: &Results, metric: &Metric, kinds: &[&'static PeerKind]) -> Row {
    let figure = |kind: &&'static PeerKind| match results.median(kind.name, metric) {
        Some(value) => metric.figure(value),
        None => "-".to_owned(),
    };
    let best = results.best(kinds, metric).map(|(kind, _)| kind.name);
    Row {
        title: metric.title.to_owned(),
        cells: kinds.iter().map(figure).collect(),
        best: kinds.iter().position(|kind| Some(kind.name) == best),
    }
}

/// The tables for a terminal.
pub(crate) fn text(all: &[Results], plan: &Plan, kinds: &[&'static PeerKind]) -> String {
    let mut text = String::new();
    for results in all {
        let shape = results.key_shape;
        if all.len() > 1 || shape != KeyShape::Random {
            text += &format!("\nWith {} keys: {}\n", shape.name(), shape.description());
        }
        for table in tables(results, plan, kinds) {
            text += "\n";
            text += &table.text();
        }
    }
    text
}
