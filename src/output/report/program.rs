//! The needs of a program without one of its lines.

use crate::base::units::{signed_size, size};
use crate::output::document::{Cell, Document, Table};
use crate::output::wording::{describe_outcome, location_label};
use crate::whatif::program::ProgramDevice;

/// Appends it for the lines of `device` that hold most.
pub(super) fn add_program(document: &mut Document, device: &ProgramDevice) {
    if device.without.is_empty() {
        return;
    }
    document.heading(format!("GPU {} without a line", device.device));
    if device.reserved_before_bytes > 0 {
        document.paragraph(format!(
            "The recording started with {} reserved; the peaks are those of the same requests on an empty pool",
            size(device.reserved_before_bytes)
        ));
    }
    let header = ["line", "the job then", "allocated", "reserved", "saved", "held"];
    let rows = device.without.iter().map(|row| -> Vec<Cell> {
        vec![
            location_label(&row.location).into(),
            describe_outcome(&row.then).into(),
            size(row.peak_allocated_bytes).into(),
            size(row.peak_reserved_bytes).into(),
            signed_size(row.reserved_gain_bytes.saturating_neg()).into(),
            size(row.bytes_at_peak).into(),
        ]
    });
    document.table(Table::new(&header, &[0, 1], rows));
}
