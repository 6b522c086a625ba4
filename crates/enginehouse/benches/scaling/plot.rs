//! The plot: demand, engines, and how long sessions waited, over the same time.

use std::path::Path;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::{Sample, Wait};

const SIZE: (u32, u32) = (900, 900);
const TEXT: (&str, i32) = ("sans-serif", 14);
const TITLE: (&str, i32) = ("sans-serif", 16);
/// Room above the highest value.
const ROOM: f64 = 1.05;

/// A name, its color and its points.
type Line<'a> = (&'a str, &'a RGBColor, Vec<(f64, f64)>);
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

pub fn draw(file: &Path, samples: &[Sample], waits: &[Wait]) {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE).unwrap();
    let parts = root.split_evenly((3, 1));
    let until = samples.last().unwrap().at;
    let line = |of: fn(&Sample) -> usize| -> Vec<(f64, f64)> {
        samples.iter().map(|sample| (sample.at, of(sample) as f64)).collect()
    };
    lines(
        &mut chart(&parts[0], "Sessions", until, samples.iter().map(|sample| sample.sessions as f64)),
        &[
            ("open", &BLUE, line(|sample| sample.sessions)),
            ("waiting for an engine", &RED, line(|sample| sample.waiting)),
        ],
    );
    lines(
        &mut chart(&parts[1], "Engines", until, samples.iter().map(|sample| sample.engines as f64)),
        &[
            ("needed by open sessions", &BLACK, line(Sample::needed)),
            ("started", &BLUE, line(|sample| sample.engines)),
            ("serving", &GREEN, line(|sample| sample.serving)),
        ],
    );
    let seconds = |wait: &Wait| wait.took.as_secs_f64();
    let mut times = chart(&parts[2], "Seconds to the first row, by arrival", until, waits.iter().map(seconds));
    times
        .draw_series(waits.iter().map(|wait| Circle::new((wait.at.as_secs_f64(), seconds(wait)), 1, RED.filled())))
        .unwrap();
    root.present().unwrap();
}

/// Axes with this title, up to the highest of the values.
fn chart<'a, 'b>(
    area: &'a DrawingArea<SVGBackend<'b>, plotters::coord::Shift>,
    title: &str,
    until: f64,
    values: impl Iterator<Item = f64>,
) -> Chart<'a, 'b> {
    let highest = values.fold(0.1, f64::max) * ROOM;
    let mut chart = ChartBuilder::on(area)
        .caption(title, TITLE)
        .margin(8)
        .x_label_area_size(28)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..until, 0.0..highest)
        .unwrap();
    chart.configure_mesh().label_style(TEXT).x_desc("seconds").light_line_style(WHITE).draw().unwrap();
    chart
}

fn lines<'a, 'b: 'a>(chart: &mut Chart<'a, 'b>, of: &[Line<'_>]) {
    for (name, color, points) in of {
        let color = **color;
        chart
            .draw_series(LineSeries::new(points.iter().copied(), color))
            .unwrap()
            .label(*name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], color));
    }
    chart.configure_series_labels().label_font(TEXT).background_style(WHITE).border_style(BLACK).draw().unwrap();
}
