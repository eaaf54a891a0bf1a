//! A figure as SVG: one panel beside the other, a line for each series.

use std::path::Path;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::{Figure, KEYS, Point};
use crate::failure::{Failure, Result};

const PANEL: (u32, u32) = (340, 300);

/// Where a panel is drawn.
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Draws a figure into a file.
pub(super) fn draw(figure: &Figure, path: &Path) -> Result<()> {
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

fn try_draw(figure: &Figure, path: &Path) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (panels, series) = (names(figure, |point| &point.panel), names(figure, |point| &point.series));
    let root = SVGBackend::new(path, (PANEL.0 * panels.len().max(1) as u32, PANEL.1)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(figure.title, ("sans-serif", 16))?;
    for (area, panel) in root.split_evenly((1, panels.len().max(1))).iter().zip(&panels) {
        let points: Vec<&Point> = figure.points.iter().filter(|point| point.panel == **panel).collect();
        let x_max = points.iter().map(|point| point.x).fold(0.0, f64::max) * 1.05;
        let least = points.iter().map(|point| point.x).fold(f64::INFINITY, f64::min);
        let chart = Panel { figure, points, series: &series };
        if figure.x == KEYS && least > 0.0 {
            chart.draw(area, panel, (least / 1.05..x_max).log_scale())?;
        } else {
            chart.draw(area, panel, 0.0..x_max)?;
        }
    }
    root.present()?;
    Ok(())
}

/// A panel.
struct Panel<'f> {
    figure: &'f Figure,
    points: Vec<&'f Point>,
    series: &'f [&'f String],
}

impl Panel<'_> {
    fn draw<X>(
        &self,
        area: &Area<'_>,
        name: &str,
        x: X,
    ) -> std::result::Result<(), Box<dyn std::error::Error>>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
    {
        let y_max = self.points.iter().map(|point| point.y).fold(0.0, f64::max) * 1.15;
        let mut chart = ChartBuilder::on(area)
            .caption(name, ("sans-serif", 13))
            .margin(8)
            .x_label_area_size(32)
            .y_label_area_size(44)
            .build_cartesian_2d(x, 0.0..y_max)?;
        let Figure { x, y, .. } = self.figure;
        chart.configure_mesh().x_desc(*x).y_desc(*y).x_labels(5).y_labels(6).draw()?;
        for (number, name) in self.series.iter().enumerate() {
            let color = Palette99::pick(number).to_rgba();
            let line = self.points.iter().filter(|point| point.series == **name);
            let line: Vec<(f64, f64)> = line.map(|point| (point.x, point.y)).collect();
            chart
                .draw_series(LineSeries::new(line, color.stroke_width(2)).point_size(3))?
                .label(name.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], color));
        }
        chart.configure_series_labels().border_style(BLACK.mix(0.3)).draw()?;
        Ok(())
    }
}
