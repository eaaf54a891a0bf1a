//! A figure as SVG: one panel beside the other, a line for each series.

use std::path::Path;

use plotters::prelude::*;

use super::{Figure, Point};
use crate::failure::Failure;

const PANEL: (u32, u32) = (340, 300);

/// Draws a figure into a file.
pub(super) fn draw(figure: &Figure, path: &Path) -> Result<(), Failure> {
    let drawn = try_draw(figure, path);
    drawn.map_err(|error| {
        Failure::io(format!("draw {}", path.display()))(std::io::Error::other(error.to_string()))
    })
}

fn names(figure: &Figure, name: impl Fn(&Point) -> &String) -> Vec<&String> {
    let mut names: Vec<&String> = Vec::new();
    for point in &figure.points {
        if !names.contains(&name(point)) {
            names.push(name(point));
        }
    }
    names
}

fn try_draw(figure: &Figure, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let (panels, series) = (names(figure, |point| &point.panel), names(figure, |point| &point.series));
    let root = SVGBackend::new(path, (PANEL.0 * panels.len().max(1) as u32, PANEL.1)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(figure.title, ("sans-serif", 16))?;
    for (area, panel) in root.split_evenly((1, panels.len().max(1))).iter().zip(&panels) {
        let points: Vec<&Point> = figure.points.iter().filter(|point| point.panel == **panel).collect();
        let most = |value: fn(&Point) -> f64| points.iter().map(|point| value(point)).fold(0.0, f64::max);
        let (x_max, y_max) = (most(|point| point.x) * 1.05, most(|point| point.y) * 1.15);
        let mut chart = ChartBuilder::on(area)
            .caption(panel, ("sans-serif", 13))
            .margin(8)
            .x_label_area_size(32)
            .y_label_area_size(44)
            .build_cartesian_2d(0.0..x_max, 0.0..y_max)?;
        chart.configure_mesh().x_desc(figure.x).y_desc(figure.y).x_labels(5).y_labels(6).draw()?;
        for (number, name) in series.iter().enumerate() {
            let color = Palette99::pick(number).to_rgba();
            let line: Vec<(f64, f64)> = points
                .iter()
                .filter(|point| point.series == **name)
                .map(|point| (point.x, point.y))
                .collect();
            chart
                .draw_series(LineSeries::new(line, color.stroke_width(2)).point_size(3))?
                .label(name.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], color));
        }
        chart.configure_series_labels().border_style(BLACK.mix(0.3)).draw()?;
    }
    root.present()?;
    Ok(())
}
