//! Changes to the program of a device in full: the figures of each, and what the program would need without a line.

use crate::base::units::{signed_size, size};
use crate::output::document::{Cell, Document, Table, Text};
use crate::output::wording::{describe_outcome, location_label};
use crate::whatif::program::{ProgramDevice, ProgramRow};

/// Appends the figures of all changes to the program of `device`.
pub(super) fn add_program(document: &mut Document, device: &ProgramDevice) {
    document.heading(format!("Changes of the program on device {}", device.device));
    if device.reserved_before_bytes > 0 {
        document.paragraph(format!(
            "The recording started with {} reserved; the peaks are those of the same requests on an empty pool",
            size(device.reserved_before_bytes)
        ));
    }
    let header = ["change", "the job then", "allocated", "reserved", "saved", "sure"];
    let rows = [&device.as_recorded].into_iter().chain(&device.rows);
    let cells = rows.map(|row| {
        let mut cells = figures(row.label().into(), row);
        cells.push(row.sure.word().into());
        cells
    });
    document.table(Table::new(&header, &[0, 1, 5], cells));
    if !device.without.is_empty() {
        document.heading("Without a line");
        let header = ["line", "the job then", "allocated", "reserved", "saved", "held"];
        let cells = device.without.iter().map(|row| {
            let mut cells = figures(location_label(&row.location), row);
            cells.push(size(row.bytes_at_peak).into());
            cells
        });
        document.table(Table::new(&header, &[0, 1], cells));
    }
}

fn figures(name: Text, row: &ProgramRow) -> Vec<Cell> {
    vec![
        name.into(),
        describe_outcome(&row.then).into(),
        size(row.peak_allocated_bytes).into(),
        size(row.peak_reserved_bytes).into(),
        signed_size(row.reserved_gain_bytes.saturating_neg()).into(),
    ]
}
