//! The page of `oomscope plan`, its summary, and the words of its cells.

use itertools::Itertools as _;

use super::fit::recording_label;
use super::notes::{add_notes, with_other_notes};
use crate::allocator::verdict::Verdict;
use crate::analysis::ServingPlanReport;
use crate::base::units::{count, counted, size};
use crate::output::document::{Cell, Document, Judgement, Table, TableOf, Text, alarm, amount, code, faint, strong};
use crate::output::wording::{Summary, command_line, format_requests, location_label};
use crate::snapshot::Serving;
use crate::stacks::frames::CodeLocation;
use crate::whatif::Sureness;
use crate::whatif::plan::{PlanCell, PlanChange, PlanGpu, PlanReport};

/// Lays out `report`.
pub fn plan(report: &PlanReport) -> Document {
    let from = match report.runs.len() as u64 {
        0 => counted(report.recordings.len() as u64, "recording"),
        runs => counted(runs, "dry run"),
    };
    let summary = report.summary();
    let mut document = Document::with_headline(strong(summary.answer), faint(from));
    add_notes(&mut document, &report.warnings);
    document.table(sizes(report).note(legend(report).map(faint)));
    document.fields("do", summary.action);
    let next = report.recordings.last().and_then(|largest| command_line("whatif --program", &largest.path));
    document.fields("next", next.map(code));
    let mut sections = Document::default();
    failures(&mut sections, report);
    runs(&mut sections, report);
    add_evidence(&mut sections, report);
    document.with_sections(with_other_notes(sections, &report.warnings))
}

/// The largest size of each GPU, with each change.
fn sizes(report: &PlanReport) -> TableOf<&PlanGpu> {
    let columns = [
        (PlanChange::AsIs, "as it is"),
        (PlanChange::ExpandableSegments, "expandable"),
        (PlanChange::Checkpoint, "checkpoint"),
    ];
    let wanted = report.wanted_size;
    let table = Table::from_rows(&report.gpus)
        .text(format!("largest {} on", report.name), move |gpu| match wanted {
            None => Cell::from(gpu.gpu),
            Some(wanted) if gpu.cell(PlanChange::AsIs).is_some_and(|cell| cell.serves(wanted)) => {
                Cell::marked(Judgement::Good, gpu.gpu)
            }
            Some(wanted) if gpu.cells.iter().any(|cell| cell.serves(wanted)) => {
                Cell::marked(Judgement::Perhaps, gpu.gpu)
            }
            Some(_) => Cell::marked(Judgement::Bad, gpu.gpu),
        })
        .number("memory", |gpu| amount(gpu.usable_bytes))
        .optional();
    let columns = columns.into_iter().filter(|(change, _)| report.gpus.iter().any(|gpu| gpu.cell(*change).is_some()));
    let table = columns.fold(table, |table, (change, title)| {
        table.number(title, move |gpu| match gpu.cell(change) {
            Some(cell) if wanted.is_some_and(|wanted| !cell.serves(wanted)) => alarm(cell.short_label()),
            cell => cell.map_or_else(Text::default, |cell| cell.short_label().into()),
        })
    });
    table.wide()
}

/// The signs of the table: `* was run on this GPU · ~ about`.
fn legend(report: &PlanReport) -> Option<String> {
    let mut cells = report.gpus.iter().flat_map(|gpu| &gpu.cells);
    let signs = [
        (cells.clone().any(|cell| cell.certainty == Sureness::Confirmed), "* a dry run on this GPU ended"),
        (cells.any(|cell| cell.short_label().starts_with('~')), "~ about"),
    ];
    let signs = signs.into_iter().filter(|(is_used, _)| *is_used).map(|(_, text)| text).join(" · ");
    Some(signs).filter(|signs| !signs.is_empty())
}

/// The first request that fails at the next size, for the program as it is.
fn failures(document: &mut Document, report: &PlanReport) {
    let failing = report.gpus.iter().filter_map(|gpu| {
        let cell = gpu.cell(PlanChange::AsIs)?;
        Some((gpu, cell.size?.saturating_add(1), cell.fails.as_ref()?))
    });
    let table = Table::from_rows(failing)
        .text("fails first on", |(gpu, ..)| gpu.gpu)
        .text("at", |(.., failed)| location_label(&failed.location))
        .text("why", |(.., failed)| if failed.verdict == Verdict::Fragmentation { "fragmentation" } else { "capacity" })
        .number(report.name.clone(), |(_, next, _)| count(*next))
        .number("requested", |(.., failed)| size(failed.requested_bytes));
    document.table(table.wide());
}

/// The dry runs.
fn runs(document: &mut Document, report: &PlanReport) {
    let table = Table::from_rows(&report.runs)
        .text("dry run on", |run| {
            let mark = match (run.fits, run.is_certain) {
                (true, true) => Judgement::Good,
                (true, false) => Judgement::Perhaps,
                (false, _) => Judgement::Bad,
            };
            Cell::marked(mark, run.gpu.as_str())
        })
        .text("", |run| if run.expandable_segments { "expandable_segments:True" } else { "" })
        .number(report.name.clone(), |run| count(run.size))
        .number("reserved", |run| if run.fits { size(run.reserved_bytes) } else { String::new() });
    document.table(table.wide());
}

fn add_evidence(document: &mut Document, report: &PlanReport) {
    document.heading("Evidence");
    document.fields("command", report.command.as_deref().map(code));
    document.fields("recording", report.recordings.iter().map(recording_label));
    document.field("sizes", "without * are predicted by replay");
    document.field(
        "~",
        "about: the calls of a changed program are inferred; or there is a warning, or the size is at least twice the \
         largest recorded one, or its dry run ended in may fit",
    );
    let mut cells = report.gpus.iter().flat_map(|gpu| &gpu.cells);
    if let Some(cell) = cells.find(|cell| cell.change == PlanChange::Checkpoint) {
        let lines = cell.location.iter().chain(&cell.other_locations).map(location_label);
        let lines = lines.map(|line| Text::from("activation checkpointing of the modules called at ").and(line));
        document.fields("checkpoint", lines);
    }
}

/// Adds the columns of what an engine made of the memory.
pub(super) fn with_room<R>(table: TableOf<R>, serving: fn(&R) -> Option<&Serving>) -> TableOf<R> {
    table
        .number("weights", |row| serving(row).and_then(|one| one.weight_bytes).map_or_else(String::new, size))
        .number("KV cache", |row| serving(row).and_then(|one| one.kv_cache_bytes).map_or_else(String::new, size))
        .number("tokens", |row| serving(row).and_then(|one| one.kv_cache_tokens).map_or_else(String::new, count))
}

/// Lengths of requests, in tokens.
const LENGTHS: [u64; 3] = [8192, 32_768, 131_072];

/// Lays out the starts of an engine.
pub fn serving_plan(report: &ServingPlanReport) -> Document {
    let runs = counted(report.rows.len() as u64, "dry run");
    let mut document = Document::with_headline(strong(report.summary().answer), faint(runs));
    let table = Table::from_rows(&report.rows).text("requests of so many tokens at once, on", |row| {
        Cell::marked(if row.is_started() { Judgement::Good } else { Judgement::Bad }, row.label())
    });
    let table = with_room(table, |row| row.serving.as_ref());
    let table = LENGTHS.iter().fold(table, |table, length| {
        table.number(format!("x {}", count(*length)), |row| {
            let requests = row.serving.as_ref().and_then(|serving| serving.requests_at(*length));
            requests.map_or_else(String::new, format_requests)
        })
    });
    document.table(table.wide());
    for (row, reason) in report.rows.iter().filter_map(|row| Some((row, row.reason.as_ref()?))) {
        document.warning("not-started", format!("{}: {reason}", row.label()));
    }
    document
}

/// Most GPUs whose sizes the first line lists.
const MAX_LISTED: usize = 5;

impl PlanReport {
    /// The smallest GPU for the wanted size, or the sizes of all.
    pub fn summary(&self) -> Summary {
        let (answer, action) = match self.wanted_size {
            Some(wanted) => self.describe_smallest(wanted),
            None => (self.describe_sizes(), self.describe_best_change()),
        };
        Summary { action, ..Summary::from_answer(answer) }
    }

    /// `the largest BATCH: 24 on t4, 66 on a10`
    fn describe_sizes(&self) -> String {
        let name = &self.name;
        let mut sizes = self.gpus.iter().map(|gpu| {
            let label = gpu.cells.first().map_or_else(|| "any".to_owned(), PlanCell::label);
            format!("{label} on {}", gpu.gpu)
        });
        let sizes = if sizes.len() > MAX_LISTED {
            format!("from {}", [sizes.next(), sizes.next_back()].into_iter().flatten().format(" to "))
        } else {
            sizes.join(", ")
        };
        format!("the largest {name} as it is: {sizes}")
    }

    /// The change with which most fits on the smallest GPU.
    fn describe_best_change(&self) -> Option<String> {
        let gpu = self.gpus.first()?;
        let (as_is, others) = gpu.cells.split_first()?;
        let best = others.iter().filter(|cell| cell.size > as_is.size).max_by_key(|cell| cell.size)?;
        Some(format!("on {}, {} {} with {}", gpu.gpu, self.name, best.label(), best.describe_change()))
    }

    fn describe_smallest(&self, wanted: u64) -> (String, Option<String>) {
        let name = format!("{} {}", self.name, count(wanted));
        let as_is = self.gpus.iter().find(|gpu| gpu.cells.first().is_some_and(|cell| cell.serves(wanted)));
        let mut smaller = self.gpus.iter().take_while(|gpu| as_is.is_none_or(|found| found.gpu != gpu.gpu));
        let changed = smaller.find_map(|gpu| Some((gpu, gpu.cells.iter().skip(1).find(|cell| cell.serves(wanted))?)));
        let action = changed.map(|(gpu, cell)| {
            let verb = if cell.certainty == Sureness::Confirmed { "fits" } else { "should fit" };
            format!("{name} {verb} on {} with {}", gpu.gpu, cell.describe_change())
        });
        let answer = match as_is {
            Some(gpu) => {
                let is_certain = gpu.cells[0].certainty <= Sureness::Checked;
                let verb = if is_certain { "fits" } else { "should fit" };
                format!("the smallest GPU for {name} is {}: it {verb} as it is, in {}", gpu.gpu, size(gpu.usable_bytes))
            }
            None => format!("{name} fits none of these GPUs as it is"),
        };
        (answer, action)
    }
}

impl PlanCell {
    fn serves(&self, wanted: u64) -> bool {
        self.size.is_none_or(|size| size >= wanted)
    }
    /// The size: `24`, or `about 24` if the changed calls are inferred, a warning makes it an estimate, or other kernels
    /// may run there than at the recorded sizes.
    pub fn label(&self) -> String {
        self.label_with("about ")
    }

    /// The same for a table: `24 *` if a run confirmed it, or `~24`.
    pub fn short_label(&self) -> String {
        let star = if self.certainty == Sureness::Confirmed { " *" } else { "" };
        format!("{}{star}", self.label_with("~"))
    }

    fn label_with(&self, about: &str) -> String {
        let is_sure = self.sure == Sureness::Checked && self.certainty <= Sureness::Checked;
        match self.size {
            None => "any".to_owned(),
            Some(0) => "none".to_owned(),
            Some(size) if is_sure => count(size),
            Some(size) => format!("{about}{}", count(size)),
        }
    }

    /// The change: `activation checkpointing at model.py:12`.
    pub fn describe_change(&self) -> String {
        let what = self.change.title();
        let line = self.location.as_ref().filter(|_| self.change == PlanChange::Checkpoint);
        let others = match self.other_locations.len() as u64 {
            0 => String::new(),
            others => format!(" and {}", counted(others, "other line")),
        };
        line.map_or_else(|| what.to_owned(), |line| format!("{what} of {}{others}", CodeLocation::label(line)))
    }
}

impl PlanChange {
    /// The change in words.
    pub fn title(self) -> &'static str {
        match self {
            Self::AsIs => "as it is",
            Self::ExpandableSegments => "expandable_segments:True",
            Self::Checkpoint => "activation checkpointing",
        }
    }
}
