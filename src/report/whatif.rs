//! The page of `oomscope whatif`.

use super::sheet::Page;
use super::style::Style;
use crate::units::{count, counted, duration, plain, size};
use crate::whatif::{WhatIfReport, WhatIfRow};

/// The page for a person.
pub fn whatif_page(report: &WhatIfReport, style: Style) -> String {
    let mut page = Page::new(style);
    page.line(&style.heading(&plain(&report.path)));
    let device = match report.capacity_bytes {
        Some(capacity) => format!("on a device of {}", size(capacity)),
        None => "on a device without bounds: no request failed, so the file shows none".to_owned(),
    };
    page.text(&format!("Replayed by the rules of PyTorch {}, {device}", report.torch_version));
    page.text(&format!(
        "Whatever the setting, {} are needed: what the program held at once",
        size(report.lower_bound_bytes)
    ));
    if let Some(gpu) = &report.costs_of {
        page.text(&format!(
            "How long device calls take is estimated from calls measured on {}",
            plain(gpu)
        ));
    }
    page.warnings(&report.warnings);
    let mut devices: Vec<u64> = report.rows.iter().map(|row| row.device).collect();
    devices.dedup();
    for device in devices {
        let rows: Vec<&WhatIfRow> = report.rows.iter().filter(|row| row.device == device).collect();
        page.heading(&format!("Device {device}"));
        let cells = rows.iter().map(|row| cells(row)).collect();
        // What calls cost says more than how many there are, and settings need the room.
        let header: &[&str] = if rows.iter().any(|row| row.device_time_us.is_some()) {
            &["fails", "peak reserved", "fits from", "allocs", "calls take", "settings"]
        } else {
            &["fails", "peak reserved", "fits from", "allocs", "frees", "retries", "settings"]
        };
        page.table(header, &[header.len() - 1], cells);
    }
    if let Some(out @ 1..) = report.rows_tried.checked_sub(report.rows.len()) {
        page.text(&format!("and {} that --top leaves out", counted(out as u64, "more row")));
    }
    page.out
}

fn cells(row: &WhatIfRow) -> Vec<String> {
    let settings = if row.settings.is_empty() { "as recorded" } else { &row.settings };
    let mut cells = vec![
        if row.ooms == 0 { "no".to_owned() } else { count(row.ooms as u64) },
        size(row.peak_reserved_bytes),
        row.smallest_capacity_bytes.map_or_else(|| "never".to_owned(), size),
        count(row.device_allocs),
    ];
    match row.device_time_us {
        Some(us) => cells.push(duration(us)),
        None => cells.extend([count(row.device_frees), count(row.retries)]),
    }
    cells.push(settings.replace(',', ", "));
    cells
}
