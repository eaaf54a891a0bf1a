//! A figure as SVG: one panel beside the other, a line for each series.

use std::path::PathBuf;

use plotters::coord::ranged1d::{AsRangedCoord, DefaultFormatting, KeyPointHint, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::{Args, Figure, KEYS, Point, THREADS};
use terminal::failure::{Failure, Result};
use terminal::output_file::OutputFile;

/// Bytes of a large drawing: this much room is asked for before anything is measured.
const DRAWING_BYTES: usize = 256 << 10;
const PANEL: (u32, u32) = (400, 340);
/// Most letters are less wide than three fifths of their height.
const TITLE_SIZE: u32 = 16;

/// Where a panel is drawn.
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn<T> = std::result::Result<T, Box<dyn std::error::Error>>;

impl Args {
    /// The file of a figure: with its number before the extension, unless only one figure is
    /// wanted.
    fn plot_path(&self, number: u8) -> Option<PathBuf> {
        let path = self.plot.as_ref()?;
        if self.figure.is_some() {
            return Some(path.clone());
        }
        let [stem, extension] = [path.file_stem(), path.extension()]
            .map(|part| part.unwrap_or_default().to_string_lossy());
        let extension = if extension.is_empty() {
            "svg"
        } else {
            &extension
        };
        Some(path.with_file_name(format!("{stem}-{number}.{extension}")))
    }

    /// Makes sure that the drawings can be written, before hours of measurement.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a file that is named as another kind of picture; [`Failure::Output`]
    /// for the first that cannot be written, or exists and may not be replaced.
    pub fn try_plots(&self, numbers: &[u8]) -> Result<()> {
        let extension = self.plot.as_ref().and_then(|path| path.extension());
        if let Some(other) = extension.filter(|extension| !extension.eq_ignore_ascii_case("svg")) {
            let other = other.to_string_lossy();
            return Err(Failure::Usage(format!(
                "figures are drawn as SVG; name the file .svg, not .{other}"
            )));
        }
        for path in numbers.iter().filter_map(|number| self.plot_path(*number)) {
            OutputFile::rehearse(&path, self.force, DRAWING_BYTES)?;
        }
        Ok(())
    }
}

/// The processor, and how many of its cores this process may use.
pub(super) fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or(std::env::consts::ARCH, |(_, model)| model.trim());
    match std::thread::available_parallelism().map_or(1, usize::from) {
        1 => format!("{model}, 1 core"),
        cores => format!("{model}, {cores} cores"),
    }
}

/// Draws a figure into its file, if that is wanted and anything was measured.
pub(super) fn draw(figure: &Figure, args: &Args, number: u8, setup: &str) -> Result<()> {
    let Some(path) = args.plot_path(number) else {
        return Ok(());
    };
    if figure.points.is_empty() {
        return Ok(());
    }
    let drawing = try_draw(figure, setup).map_err(|error| {
        Failure::io(format!("draw {}", path.display()))(std::io::Error::other(error.to_string()))
    })?;
    OutputFile::write_whole(&path, args.force, drawing.as_bytes())?;
    Ok(())
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

/// The drawing, as the text of an SVG file.
fn try_draw(figure: &Figure, setup: &str) -> Drawn<String> {
    let panels = names(figure, |point| &point.panel);
    let wanted =
        TITLE_SIZE * figure.title.chars().count().max(setup.chars().count()) as u32 * 3 / 5;
    let width = wanted.max(PANEL.0 * panels.len() as u32);
    let mut drawing = String::new();
    let area = SVGBackend::with_string(&mut drawing, (width, PANEL.1)).into_drawing_area();
    draw_panels(figure, setup, &area)?;
    // The text is whole when the area is dropped.
    drop(area);
    Ok(drawing)
}

/// Draws the title and the panels.
fn draw_panels(figure: &Figure, setup: &str, whole: &Area<'_>) -> Drawn<()> {
    let panels = names(figure, |point| &point.panel);
    let series = names(figure, |point| &point.series);
    whole.fill(&WHITE)?;
    let root = whole
        .titled(figure.title, ("sans-serif", TITLE_SIZE))?
        .titled(setup, ("sans-serif", 11))?;
    for (area, panel) in root.split_evenly((1, panels.len())).iter().zip(&panels) {
        let points: Vec<&Point> = figure
            .points
            .iter()
            .filter(|point| point.panel == **panel)
            .collect();
        let mut all_x: Vec<f64> = points.iter().map(|point| point.x).collect();
        all_x.sort_by(f64::total_cmp);
        all_x.dedup();
        let least = all_x.first().copied().unwrap_or(0.0);
        let most = all_x.last().copied().unwrap_or(1.0) * 1.05;
        let chart = Panel {
            figure,
            points,
            series: &series,
        };
        // Fewer than two decades would have a single label on an axis of decades.
        if figure.x == KEYS && least > 0.0 && most >= 10.0 * least {
            chart.draw(area, panel, (least / 1.05..most).log_scale())?;
        } else if figure.x == THREADS {
            chart.draw(
                area,
                panel,
                Threads {
                    range: (0.0..most).into(),
                    measured: all_x,
                },
            )?;
        } else {
            chart.draw(area, panel, 0.0..most)?;
        }
    }
    root.present()?;
    Ok(())
}

/// A number on an axis: 2, 0.5, 20k, 1M.
fn label(number: f64) -> String {
    match number {
        number if number >= 1e6 => format!("{}M", number / 1e6),
        number if number >= 1e4 => format!("{}k", number / 1e3),
        number => ((number * 1e3).round() / 1e3).to_string(),
    }
}

/// The axis of numbers of threads: marked only where something was measured, as there is no half of
/// a thread.
struct Threads {
    range: RangedCoordf64,
    measured: Vec<f64>,
}

impl Ranged for Threads {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.range.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.measured.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.range.range()
    }
}

/// A panel.
struct Panel<'f> {
    figure: &'f Figure,
    points: Vec<&'f Point>,
    series: &'f [&'f String],
}

impl Panel<'_> {
    fn draw<X>(&self, area: &Area<'_>, name: &str, x: X) -> Drawn<()>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
    {
        let y_max = self.points.iter().map(|point| point.y).fold(0.0, f64::max) * 1.25;
        let mut chart = ChartBuilder::on(area)
            .caption(name, ("sans-serif", 13))
            .margin(8)
            .x_label_area_size(32)
            .y_label_area_size(56)
            .build_cartesian_2d(x, 0.0..y_max)?;
        let Figure { x, y, .. } = self.figure;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(*x)
            .y_desc(*y)
            .x_labels(5)
            .y_labels(6)
            .x_label_formatter(&|x| label(*x));
        mesh.y_label_formatter(&|y| label(*y)).draw()?;
        for (number, name) in self.series.iter().enumerate() {
            let color = Palette99::pick(number).to_rgba();
            let line = self.points.iter().filter(|point| point.series == **name);
            let line: Vec<(f64, f64)> = line.map(|point| (point.x, point.y)).collect();
            if line.is_empty() {
                continue;
            }
            chart
                .draw_series(LineSeries::new(line, color.stroke_width(2)).point_size(3))?
                .label(name.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], color));
        }
        let mut names = chart.configure_series_labels();
        names
            .position(self.emptier_side())
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3));
        names.draw()?;
        Ok(())
    }

    /// The side on which the highest point is lower.
    fn emptier_side(&self) -> SeriesLabelPosition {
        let middle = self.points.iter().map(|point| point.x).fold(0.0, f64::max) / 2.0;
        let highest = |is_left: bool| {
            let side = self
                .points
                .iter()
                .filter(|point| (point.x < middle) == is_left);
            side.map(|point| point.y).fold(0.0, f64::max)
        };
        match highest(true) < highest(false) {
            true => SeriesLabelPosition::UpperLeft,
            false => SeriesLabelPosition::UpperRight,
        }
    }
}
