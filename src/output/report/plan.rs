//! The page of `oomscope plan`.

use super::phrases::add_warnings;
use super::summary::summary;
use crate::allocator::verdict::Verdict;
use crate::base::units::{count, size};
use crate::output::document::{Cell, Document, Table, alarm, code};
use crate::stacks::frames::CodeLocation;
use crate::whatif::plan::{PlanCell, PlanChange, PlanGpu, PlanReport};

/// Prices have at most this many decimals.
const MAX_DECIMALS: i32 = 9;

/// Lays out `report`.
pub fn plan(report: &PlanReport) -> Document {
    let mut document = Document::default();
    let files = report.recordings.iter().map(|one| format!("{} at {}", one.path, one.size));
    let from = report.command.clone().unwrap_or_else(|| files.collect::<Vec<_>>().join(", "));
    document.title(code(from));
    summary(&mut document, &report.summary());
    add_warnings(&mut document, &report.warnings);
    sizes(&mut document, report);
    failures(&mut document, report);
    document.heading("Evidence");
    let confirmed = match report.runs.len() {
        0 => "nothing was run: every size is predicted by replay".to_owned(),
        _ => "* was run on this GPU (dry run) and came to its end; other sizes are predicted by replay".to_owned(),
    };
    document.field("sizes", confirmed);
    document.field(
        "~",
        "about: the calls of a changed program are inferred; or there is a warning, or the size is at least twice the \
         largest recorded one, or its dry run ended in may fit",
    );
    let has = |change| report.gpus.iter().any(|gpu| gpu.cell(change).is_some());
    let mut cells = report.gpus.iter().flat_map(|gpu| &gpu.cells);
    if let Some(cell) = cells.find(|cell| cell.change == PlanChange::Checkpoint) {
        let lines = cell.location.iter().chain(&cell.other_locations).map(CodeLocation::label);
        let lines = lines.collect::<Vec<_>>().join(", ");
        document.field(
            "checkpoint",
            format!("with activation checkpointing of the modules that these lines call: {lines}"),
        );
    }
    if has(PlanChange::StateSharded) {
        document.field("state/N", "with the optimizer's state sharded over N ranks");
    }
    if report.gpus.iter().any(|gpu| gpu.price.is_some()) {
        document.field("price", "of an hour, divided by the largest size as it is: it says nothing about speed");
    }
    let runs = report.runs.iter().map(|run| {
        let with = if run.expandable_segments { " with expandable_segments:True" } else { "" };
        let result = match (run.fits, run.is_certain) {
            (true, true) => format!("fits, {} reserved", size(run.reserved_bytes)),
            (true, false) => format!("may fit, {} reserved; what only a GPU knows decides", size(run.reserved_bytes)),
            (false, _) => "does not fit".to_owned(),
        };
        format!("{} {} on {}{with}: {result}", report.name, count(run.size), run.gpu)
    });
    document.fields("runs", runs);
    document
}

fn sizes(document: &mut Document, report: &PlanReport) {
    document.heading(format!("Largest {} that fits, by GPU and change", report.name));
    let mut columns: Vec<(PlanChange, Option<u64>)> = Vec::new();
    for cell in report.gpus.iter().flat_map(|gpu| &gpu.cells) {
        if !columns.contains(&(cell.change, cell.ranks)) {
            columns.push((cell.change, cell.ranks));
        }
    }
    let has_price = report.gpus.iter().any(|gpu| gpu.price.is_some());
    let titles = columns.iter().map(|(change, ranks)| match change {
        PlanChange::ExpandableSegments => "expandable".to_owned(),
        PlanChange::Checkpoint => "checkpoint".to_owned(),
        PlanChange::StateSharded => format!("state/{}", ranks.unwrap_or(1)),
        PlanChange::AsIs => "as it is".to_owned(),
    });
    let header = ["GPU", "memory"].map(str::to_owned).into_iter().chain(titles);
    let header: Vec<String> = header.chain(has_price.then(|| format!("price/{}", report.name))).collect();
    let label = |gpu: &PlanGpu, change: PlanChange, ranks: Option<u64>| -> Cell {
        let cell = gpu.cells.iter().find(|cell| (cell.change, cell.ranks) == (change, ranks));
        let is_too_small =
            |cell: &&PlanCell| report.wanted_size.is_some_and(|wanted| cell.size.is_some_and(|size| size < wanted));
        match cell {
            Some(cell) if is_too_small(&cell) => alarm(cell.short_label()).into(),
            Some(cell) => cell.short_label().into(),
            None => "".into(),
        }
    };
    let rows = report.gpus.iter().map(|gpu| {
        let sizes = columns.iter().map(|(change, ranks)| label(gpu, *change, *ranks));
        let price = has_price.then(|| gpu.price_per_size.map_or(String::new(), short_price).into());
        [gpu.gpu.into(), size(gpu.usable_bytes).into()].into_iter().chain(sizes).chain(price).collect::<Vec<Cell>>()
    });
    document.table(Table::new(&header, &[0], rows));
}

/// `price` with three digits.
fn short_price(price: f64) -> String {
    if price == 0.0 {
        return "0".to_owned();
    }
    let decimals = (0..MAX_DECIMALS).find(|decimals| price * 10f64.powi(*decimals) >= 100.0);
    format!("{price:.*}", usize::try_from(decimals.unwrap_or(MAX_DECIMALS)).unwrap_or_default())
}

/// The first request that fails at the next size, for the program as it is.
fn failures(document: &mut Document, report: &PlanReport) {
    let failing = report.gpus.iter().filter_map(|gpu| Some((gpu, gpu.cell(PlanChange::AsIs)?.fails.as_ref()?)));
    let rows: Vec<Vec<Cell>> = failing
        .map(|(gpu, failed)| {
            let is_known = failed.location.frame.is_some() || failed.location.backward.is_some();
            let line = if is_known { failed.location.label() } else { String::new() };
            let why = if failed.verdict == Verdict::Fragmentation { "fragmentation" } else { "capacity" };
            vec![
                gpu.gpu.into(),
                count(failed.size).into(),
                size(failed.requested_bytes).into(),
                why.into(),
                line.into(),
            ]
        })
        .collect();
    if !rows.is_empty() {
        document.heading("What fails at the next size, as it is");
        let header = ["GPU", &report.name, "request", "why", "line"].map(str::to_owned);
        document.table(Table::new(&header, &[0, 3, 4], rows));
    }
}
