//! The page of `oomscope plan --together`.

use super::notes::{add_notes, add_other_notes};
use crate::base::units::{duration, size};
use crate::output::document::{Cell, Document, Judgement, Table, Text, code, faint};
use crate::output::wording::command_line;
use crate::whatif::together::{Clocks, TogetherGpu, TogetherProcess, TogetherReport};

/// Lays out `report`.
pub fn together(report: &TogetherReport) -> Document {
    let mut document = Document::default();
    let peaks = format!("peaks add up to {}", size(report.sum_of_peaks_bytes));
    document.headline(report.headline(), faint(peaks));
    add_notes(&mut document, &report.warnings);
    document.table(gpus(report));
    document.table(processes(report));
    document.fields("why", report.describe_failure());
    document.fields("do", report.summary().action);
    let largest = report.processes.iter().max_by_key(|process| process.peak_reserved_bytes);
    document.fields("next", largest.and_then(|largest| command_line("analyze", &largest.path)).map(code));
    let mut sections = Document::default();
    add_evidence(&mut sections, report);
    add_other_notes(&mut sections, &report.warnings);
    document.add_sections(sections);
    document
}

/// One row for each GPU: whether the processes fit at any timing, limited, and as they were timed.
fn gpus(report: &TogetherReport) -> Table {
    let row = |gpu: &TogetherGpu| -> Vec<Cell> {
        let mark = match (gpu.fits_at_any_time, gpu.fractions.is_some() || gpu.fits_as_timed()) {
            (true, _) => Judgement::Good,
            (false, true) => Judgement::Perhaps,
            (false, false) => Judgement::Bad,
        };
        let timed = gpu.as_timed.as_ref().map_or_else(String::new, |run| match &run.failed {
            None => format!("yes, in {}", size(run.peak_bytes)),
            Some(_) => "no".to_owned(),
        });
        let fractions = match &gpu.fractions {
            _ if gpu.fits_at_any_time => String::new(),
            None => "no".to_owned(),
            Some(fractions) => fractions.iter().map(f64::to_string).collect::<Vec<_>>().join(", "),
        };
        let any = if gpu.fits_at_any_time { "yes" } else { "no" };
        vec![
            Cell::Marked(mark, gpu.gpu.into()),
            size(gpu.usable_bytes).into(),
            any.into(),
            fractions.into(),
            timed.into(),
        ]
    };
    let header = ["GPU", "memory", "at any timing", "limited to", "as timed"];
    let mut table = Table::new(&header, &[0], report.gpus.iter().map(row)).wide().optional_columns(&[2]);
    if report.clocks != Clocks::Overlap {
        table = table.without_column(4);
    }
    if report.gpus.iter().all(|gpu| gpu.fits_at_any_time) {
        table = table.without_column(3);
    }
    table
}

fn processes(report: &TogetherReport) -> Table {
    let row = |process: &TogetherProcess| -> Vec<Cell> {
        let smallest = process.smallest_bytes.map_or_else(|| "not found".to_owned(), size);
        vec![code(&*process.path).into(), size(process.peak_reserved_bytes).into(), smallest.into()]
    };
    let header = ["process, on a device of its own", "peak reserved", "smallest device"];
    Table::new(&header, &[0], report.processes.iter().map(row)).wide()
}

fn add_evidence(document: &mut Document, report: &TogetherReport) {
    document.heading("Evidence");
    let memory = "of the GPU, without one CUDA context for each process; recordings do not show what libraries such as NCCL \
                  take";
    document.field("memory", memory);
    let outside = report.processes.iter().filter_map(|process| Some((process, process.outside_bytes?)));
    let outside = outside.filter(|(_, bytes)| *bytes > 0);
    let outside = outside.map(|(process, bytes)| {
        let bytes = format!("{} in use outside the allocator of ", size(bytes));
        Text::from(bytes).and(code(&*process.path)).and(" when its request failed")
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
}
