//! The peaks of `oomscope fit` by size, as curves.

use std::collections::BTreeSet;

use crate::base::units::size;
use crate::output::document::{Curve, CurveLine, CurveMark, CurvePoint, LineRole};
use crate::whatif::fit::{FitCurve, FitDevice, FitReport, Largest, SizeReport};

/// One curve with its title per device and second number, the largest second number first.
pub fn fit_curves(report: &FitReport) -> Vec<(String, Curve)> {
    let of_device = |device: &FitDevice| {
        let seconds: BTreeSet<Option<u64>> = device.curves.iter().map(|curve| curve.second).collect();
        let one = |second: Option<u64>| {
            let of = match report.devices.len() {
                1 => String::new(),
                _ => format!(" of device {}", device.device),
            };
            let with = second.map_or_else(String::new, |second| format!(" with x{second}"));
            (format!("Peak{of} by size{with}"), curve(device, second))
        };
        seconds.into_iter().rev().map(one).collect::<Vec<_>>()
    };
    report.devices.iter().flat_map(of_device).collect()
}

fn curve(device: &FitDevice, second: Option<u64>) -> Curve {
    let answer = device.by_second.iter().find(|of| of.second == second);
    let (largest, best) = match answer {
        Some(of) => (of.largest_safe.as_ref(), of.best.as_ref()),
        None => (device.largest_safe.as_ref(), device.best.as_ref()),
    };
    let of_second = || device.curves.iter().filter(|curve| curve.second == second);
    let as_recorded = of_second().next();
    let with_best = best.and_then(|best| of_second().skip(1).find(|curve| curve.settings == best.settings));
    // Sizes far beyond the capacity would only flatten the chart.
    let most = device.capacity_bytes.map_or(u64::MAX, |capacity| capacity.saturating_add(capacity / 3));
    let mut lines = Vec::new();
    if let Some(curve) = with_best {
        let name = format!("reserved with {}", curve.settings);
        lines.push(line(name, LineRole::Alternative, curve, most, |of| of.peak_reserved_bytes));
    }
    if let Some(curve) = as_recorded {
        let with = if curve.settings.is_empty() { String::new() } else { format!(" with {}", curve.settings) };
        let named = |what: &str| format!("{what}{with}");
        lines.push(line(named("allocated"), LineRole::Secondary, curve, most, |of| of.peak_allocated_bytes));
        lines.push(line(named("reserved"), LineRole::Main, curve, most, |of| of.peak_reserved_bytes));
    }
    let mark = |largest: Option<&Largest>, look: LineRole, with: &str| {
        let at = largest?.to_size().filter(|at| at.first > 0)?;
        Some(CurveMark { x: at.first, label: format!("{at} fits{with}"), role: look })
    };
    let with = best.map_or_else(String::new, |best| format!(" with {}", best.settings));
    let marks = [mark(best, LineRole::Alternative, &with), mark(largest, LineRole::Main, "")];
    Curve {
        x_label: match second {
            Some(second) => format!("the first number of the size, with x{second}"),
            None => "size".to_owned(),
        },
        lines,
        limits: device.capacity_bytes.map(|bytes| (bytes, "device capacity".to_owned())).into_iter().collect(),
        marks: marks.into_iter().flatten().collect(),
    }
}

/// A line of the sizes below the first that allocates more than `max_bytes`, so that all lines end together.
fn line(
    name: String,
    look: LineRole,
    curve: &FitCurve,
    max_bytes: u64,
    bytes: impl Fn(&SizeReport) -> u64,
) -> CurveLine {
    let beyond = curve.sizes.iter().position(|of| of.peak_allocated_bytes > max_bytes);
    let sizes = &curve.sizes[..beyond.unwrap_or(curve.sizes.len())];
    let point = |of: &SizeReport| CurvePoint {
        x: of.size.first,
        bytes: bytes(of),
        tooltip: format!(
            "{}: {} {name}{}",
            of.size,
            size(bytes(of)),
            match of.fits {
                Some(true) => ", fits",
                Some(false) => ", does not fit",
                None => "",
            }
        ),
        is_measured: of.is_recorded,
        fails: of.fits == Some(false),
    };
    let points = sizes.iter().map(point).collect();
    CurveLine { name, role: look, points }
}
