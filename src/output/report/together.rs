//! The page of `oomscope plan --together`.

use super::phrases::add_warnings;
use super::summary::summary;
use crate::base::units::{duration, size};
use crate::output::document::{Cell, Document, Table, alarm, code};
use crate::whatif::together::{Clocks, TogetherGpu, TogetherReport};

/// Lays out `report`.
pub fn together(report: &TogetherReport) -> Document {
    let mut document = Document::default();
    let files = report.processes.iter().map(|process| process.path.as_str());
    document.title(code(files.collect::<Vec<_>>().join(", ")));
    summary(&mut document, &report.summary());
    add_warnings(&mut document, &report.warnings);
    gpus(&mut document, report);
    document.heading("Each process on a device of its own");
    let rows = report.processes.iter().map(|process| -> Vec<Cell> {
        let smallest = process.smallest_bytes.map_or_else(|| "not found".to_owned(), size);
        vec![size(process.peak_reserved_bytes).into(), smallest.into(), process.path.as_str().into()]
    });
    document.table(Table::new(&["peak reserved", "smallest device", "process"], &[2], rows));
    document.heading("Evidence");
    document.field(
        "memory",
        "of the GPU, without one CUDA context for each process; libraries such as NCCL take more, which recordings do not \
         show",
    );
    let outside = report.processes.iter().filter_map(|process| Some((process, process.outside_bytes?)));
    let outside = outside.filter(|(_, bytes)| *bytes > 0);
    let outside = outside.map(|(process, bytes)| {
        format!(
            "{} of the device were in use outside the allocator of {} when its request failed: contexts, libraries, other \
             processes",
            size(bytes),
            process.path
        )
    });
    document.fields("outside", outside);
    document.field("clocks", report.clocks.describe());
    let failed = report.gpus.iter().filter_map(|gpu| Some((gpu, gpu.as_timed.as_ref()?.failed.as_ref()?)));
    let failed = failed.map(|(gpu, failed)| format!("on {}, {}", gpu.gpu, report.describe_request(failed)));
    document.fields("as timed", failed);
    let overlap = report.overlap_us.zip(report.span_us);
    let overlap = overlap.map(|(overlap, span)| {
        format!("all were recorded at the same time for {} of {}", duration(overlap), duration(span))
    });
    document.fields("overlap", overlap);
    document
}

fn gpus(document: &mut Document, report: &TogetherReport) {
    document.heading("By GPU");
    let yes_or = |fits: bool, otherwise: String| -> Cell { if fits { "yes".into() } else { alarm(otherwise).into() } };
    let rows = report.gpus.iter().map(|gpu: &TogetherGpu| {
        let timed = match &gpu.as_timed {
            None => "".into(),
            Some(run) => match &run.failed {
                None => format!("yes, in {}", size(run.peak_bytes)).into(),
                Some(_) => Cell::from(alarm("no")),
            },
        };
        let fractions = match &gpu.fractions {
            _ if gpu.fits_at_any_time => String::new(),
            None => "no".to_owned(),
            Some(fractions) => fractions.iter().map(f64::to_string).collect::<Vec<_>>().join(", "),
        };
        vec![
            gpu.gpu.into(),
            size(gpu.usable_bytes).into(),
            yes_or(gpu.fits_at_any_time, format!("no: {}", size(report.sum_of_peaks_bytes))),
            fractions.into(),
            timed,
        ]
    });
    let header = ["GPU", "memory", "at any timing", "limited to", "as timed"];
    let mut table = Table::new(&header, &[0, 2, 3, 4], rows);
    if report.clocks != Clocks::Overlap {
        table = table.without_column(4);
    }
    if report.gpus.iter().all(|gpu| gpu.fits_at_any_time) {
        table = table.without_column(3);
    }
    document.table(table);
}
