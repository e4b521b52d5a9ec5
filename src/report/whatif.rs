//! The page of `oomscope whatif`.

use super::style::{Style, wrap};
use super::table::table;
use crate::analysis::{WhatIfReport, WhatIfRow};
use crate::units::{count, plain, size};

/// The page for a person.
pub fn whatif_page(report: &WhatIfReport, style: Style) -> String {
    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(&wrap(text, style.width, ""));
        out.push('\n');
    };
    line(&style.heading(&plain(&report.path)));
    let device = match report.capacity_bytes {
        Some(capacity) => format!("on a device of {}", size(capacity)),
        None => "on a device without bounds: no request failed, so the file shows none".to_owned(),
    };
    line(&format!("Replayed by the rules of PyTorch {}, {device}", report.torch_version));
    line(&format!(
        "Whatever the setting, {} are needed: what the program held at once",
        size(report.lower_bound_bytes)
    ));
    for warning in &report.warnings {
        line(&format!("warning: {} [{}]", warning.message, warning.code));
    }
    let mut devices: Vec<u64> = report.rows.iter().map(|row| row.device).collect();
    devices.dedup();
    for device in devices {
        let rows: Vec<&WhatIfRow> = report.rows.iter().filter(|row| row.device == device).collect();
        out.push('\n');
        out.push_str(&style.heading(&format!("Device {device}")));
        out.push('\n');
        let cells = rows.iter().map(|row| cells(row)).collect();
        let header =
            ["fails", "peak reserved", "fits from", "allocs", "frees", "retries", "settings"];
        out.push_str(&table(style, &header, &[6], cells));
    }
    out
}

fn cells(row: &WhatIfRow) -> Vec<String> {
    let settings = if row.settings.is_empty() { "as recorded" } else { &row.settings };
    vec![
        if row.ooms == 0 { "no".to_owned() } else { count(row.ooms as u64) },
        size(row.peak_reserved_bytes),
        row.smallest_capacity_bytes.map_or_else(|| "never".to_owned(), size),
        count(row.device_allocs),
        count(row.device_frees),
        count(row.retries),
        settings.replace(',', ", "),
    ]
}
