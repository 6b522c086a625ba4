//! The plots: round trips by round, throughput and processor time by the size of a frame, and memory of idle sessions.

use std::path::Path;

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::cores::Placement;
use crate::idle::{Cost, Kind};
use crate::measured::{Measurements, Quantity};
use crate::route::Through;

const PANEL: (u32, u32) = (560, 300);
const TEXT: (&str, i32) = ("sans-serif", 13);
const TITLE: (&str, i32) = ("sans-serif", 15);
/// Above the highest value, and below the lowest one on a logarithmic axis.
const MARGIN: f64 = 1.15;
/// At the right of the last value, for the names of the lines: this part of a linear axis, and this factor of a logarithmic one.
const FOR_NAMES: f64 = 0.45;
const FACTOR_FOR_NAMES: f64 = 50.0;
const POINT: u32 = 3;

/// A name, its color and its points.
type Line = (&'static str, RGBColor, Vec<(f64, f64)>);
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// What a panel shows.
struct Panel {
    title: String,
    x: &'static str,
    /// Whether both axes are logarithmic.
    is_logarithmic: bool,
    lines: Vec<Line>,
}

fn color(through: Through) -> RGBColor {
    match through {
        Through::Nothing => BLACK,
        Through::OneHaproxy => GREEN,
        Through::TwoHaproxys => BLUE,
        Through::Enginehouse => RED,
    }
}

/// Draws everything that was measured into an SVG file: one row of panels for each quantity, pinned at the left.
pub fn draw(file: &Path, measurements: &Measurements, costs: &[Cost]) -> Result<()> {
    let mut rows: Vec<Vec<Panel>> = Vec::new();
    let of_placements = |panel: &dyn Fn(Placement) -> Panel| Vec::from(Placement::ALL.map(panel));
    if !measurements.frames().is_empty() {
        rows.push(of_placements(&|placement| by_round(measurements, placement, Quantity::RoundTrip, "p50")));
        rows.push(of_placements(&|placement| by_round(measurements, placement, Quantity::RoundTripP99, "p99")));
        rows.push(of_placements(&|placement| {
            by_size(measurements, placement, &Through::ALL, Quantity::Throughput, "GB of results per second")
        }));
        rows.push(of_placements(&|placement| {
            let relayed = &Through::ALL[1..];
            let title = "seconds of processor time of relays for a GB";
            by_size(measurements, placement, relayed, Quantity::ProcessorPerGigabyte, title)
        }));
    }
    if !costs.is_empty() {
        rows.push(vec![idle(costs)]);
    }
    let root = SVGBackend::new(file, (PANEL.0 * 2, PANEL.1 * rows.len().max(1) as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, row) in root.split_evenly((rows.len().max(1), 1)).iter().zip(&rows) {
        for (area, panel) in area.split_evenly((1, 2)).iter().zip(row) {
            draw_panel(area, panel)?;
        }
    }
    root.present()?;
    Ok(())
}

fn by_round(measurements: &Measurements, placement: Placement, quantity: Quantity, what: &str) -> Panel {
    let line = |through: Through| -> Line {
        let rounds = measurements.rounds(placement, through, quantity).into_iter();
        (through.name(), color(through), rounds.map(|(round, value)| (round as f64, value)).collect())
    };
    Panel {
        title: format!("{what} of round trips in µs, {}", placement.name()),
        x: "round",
        is_logarithmic: false,
        lines: Through::ALL.map(line).into(),
    }
}

fn by_size(
    measurements: &Measurements,
    placement: Placement,
    routes: &[Through],
    quantity: fn(usize) -> Quantity,
    what: &str,
) -> Panel {
    let point = |through: Through, bytes: usize| {
        Some((bytes as f64 / 1e3, measurements.spread(placement, through, quantity(bytes))?.median))
    };
    let line = |through: &Through| -> Line {
        let sizes = measurements.frames().into_iter();
        (through.name(), color(*through), sizes.filter_map(|bytes| point(*through, bytes)).collect())
    };
    Panel {
        title: format!("{what}, {}", placement.name()),
        x: "frame in kB",
        is_logarithmic: true,
        lines: routes.iter().map(line).collect(),
    }
}

fn idle(costs: &[Cost]) -> Panel {
    let line = |name, color, kind, role: &str| -> Line {
        let of_role = costs.iter().filter(|cost| cost.kind == kind && cost.role == role);
        (name, color, of_role.map(|cost| (cost.sessions as f64, cost.resident_kib)).collect())
    };
    Panel {
        title: "KiB of an idle session in each process".to_owned(),
        x: "sessions",
        is_logarithmic: false,
        lines: vec![
            line("proxy, unbound", RED, Kind::Unbound, "proxy"),
            line("proxy, bound", MAGENTA, Kind::Bound, "proxy"),
            line("agent, bound", BLACK, Kind::Bound, "agent"),
            line("first HAProxy", BLUE, Kind::Haproxy, "first HAProxy"),
            line("last HAProxy", GREEN, Kind::Haproxy, "last HAProxy"),
        ],
    }
}

fn draw_panel(area: &Area<'_>, panel: &Panel) -> Result<()> {
    let points = || panel.lines.iter().flat_map(|(_, _, points)| points);
    let range = |of: fn(&(f64, f64)) -> f64| {
        points().map(of).fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)))
    };
    let ((left, right), (bottom, top)) = (range(|point| point.0), range(|point| point.1));
    if left > right {
        return Ok(());
    }
    let mut builder = ChartBuilder::on(area);
    builder.caption(&panel.title, TITLE).margin(8).x_label_area_size(32).y_label_area_size(52);
    // The two kinds of axis are two types.
    macro_rules! draw {
        ($x:expr, $y:expr) => {{
            let mut chart = builder.build_cartesian_2d($x, $y)?;
            let mut mesh = chart.configure_mesh();
            mesh.label_style(TEXT).x_desc(panel.x).x_label_formatter(&|x| format!("{x:.0}"));
            mesh.light_line_style(WHITE).draw()?;
            for (name, color, points) in &panel.lines {
                let color = *color;
                let series = LineSeries::new(points.iter().copied(), color.filled()).point_size(POINT);
                chart
                    .draw_series(series)?
                    .label(*name)
                    .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], color));
            }
            let mut labels = chart.configure_series_labels();
            labels.position(SeriesLabelPosition::UpperRight).label_font(TEXT);
            labels.background_style(WHITE).border_style(BLACK).draw()?;
        }};
    }
    if panel.is_logarithmic {
        let bottom = bottom.max(f64::MIN_POSITIVE) / MARGIN;
        draw!((left / MARGIN..right * FACTOR_FOR_NAMES).log_scale(), (bottom..top * MARGIN).log_scale());
    } else {
        let width = (right - left).max(1.0);
        draw!(left..right + width * FOR_NAMES, 0.0..top.max(f64::MIN_POSITIVE) * MARGIN);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::measured::Round;

    #[test]
    fn what_was_measured_is_drawn() {
        let mut measurements = Measurements::default();
        for (placement, through) in Placement::ALL.into_iter().flat_map(|at| Through::ALL.map(|through| (at, through)))
        {
            for number in 1..=3 {
                let round = Round { placement, number };
                measurements.add(round, through, Quantity::RoundTrip, number as f64);
                measurements.add(round, through, Quantity::Throughput(1_000 * number), 2.0);
            }
        }
        let cost = Cost {
            kind: Kind::Unbound,
            role: "proxy",
            processes: 1,
            sessions: 1_000,
            resident_kib: 3.0,
            proportional_kib: 3.0,
            threads: 0,
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plot.svg");
        draw(&file, &measurements, &[cost]).unwrap();
        let drawn = std::fs::read_to_string(&file).unwrap();
        for text in ["p50 of round trips in µs, pinned", "GB of results per second, free", "KiB of an idle session"] {
            assert!(drawn.contains(text), "{text}");
        }
        draw(&file, &Measurements::default(), &[]).unwrap();
    }
}
