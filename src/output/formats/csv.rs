//! The CSV of `oomscope timeline`: one row per bucket, numbers only.

use std::fmt::Display;

use crate::study::figures::Figure;
use crate::study::timeline::{DeviceTimeline, Series, TimelineReport};

/// One column; its first cell is the header.
type CsvColumn = Vec<String>;

/// One header, then the buckets of each device. Times are empty if not recorded.
pub fn timeline_csv(report: &TimelineReport) -> String {
    let mut out = String::new();
    for (i, device) in report.devices.iter().enumerate() {
        let columns = columns(device);
        for row in usize::from(i > 0)..=device.buckets.first_event.len() {
            let cells: Vec<&str> = columns.iter().filter_map(|column| column.get(row)).map(String::as_str).collect();
            out.push_str(&cells.join(","));
            out.push('\n');
        }
    }
    out
}

/// The header and the rows of `csv` with `path` as their first column.
pub fn csv_with_path(csv: &str, path: &str) -> (String, String) {
    let (header, rows) = csv.split_once('\n').unwrap_or((csv, ""));
    let path = quoted(path);
    let rows = rows.lines().fold(String::new(), |rows, row| rows + &path + "," + row + "\n");
    (format!("path,{header}\n"), rows)
}

/// `text` as one field.
fn quoted(text: &str) -> String {
    let is_plain = !text.contains([',', '"', '\n', '\r']);
    if is_plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

fn columns(device: &DeviceTimeline) -> Vec<CsvColumn> {
    let (buckets, series, marks) = (&device.buckets, &device.series, &device.marks);
    let mut columns = vec![
        column("device", buckets.first_event.iter().map(|_| device.device)),
        column("first_event", &buckets.first_event),
        column("last_event", &buckets.last_event),
        column("time_us", buckets.time_us.iter().map(|time| time.map_or(String::new(), |t| t.to_string()))),
    ];
    columns.extend(series.sizes().flat_map(|(figure, series)| extremes(figure, series)));
    columns.extend(series.ratios().flat_map(|(figure, series)| extremes(figure, series)));
    for (name, kind) in [
        ("oom", &marks.oom),
        ("reclaim", &marks.reclaim),
        ("empty_cache", &marks.empty_cache),
        ("snapshot", &marks.snapshot),
    ] {
        columns.push(column(name, &kind.in_bucket));
    }
    columns
}

fn column(name: &str, values: impl IntoIterator<Item = impl Display>) -> CsvColumn {
    [name.to_owned()].into_iter().chain(values.into_iter().map(|value| value.to_string())).collect()
}

fn extremes<T: Display>(figure: Figure, series: &Series<T>) -> [CsvColumn; 2] {
    let name = figure.json_key();
    [column(&format!("{name}_min"), &series.min), column(&format!("{name}_max"), &series.max)]
}
