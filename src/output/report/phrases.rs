//! Phrases that several pages share.

use std::collections::BTreeSet;

use itertools::Itertools as _;

use crate::analysis::{RankRow, SnapshotReport};
use crate::base::units::{count, counted, percent, ratio, size};
use crate::output::document::{Document, Stack, Text, code};
use crate::output::wording::{category_label, frame_label, guessed_label};
use crate::stacks::frames::{CodeLocation, FrameReport, Origin};
use crate::stacks::phases::Phase;
use crate::study::attribution::{Category, MemoryBreakdown};
use crate::study::memory::MemoryReport;
use crate::whatif::FailedRequest;

/// Lines below it in a table: the caller, the forward line, the compiled region.
pub(super) fn location_details(location: &CodeLocation) -> Vec<Text> {
    let caller = location.called_from.as_ref().map(|frame| Text::from("called from ").and(frame_label(frame)));
    let forward = location.forward.as_ref().map(|frame| Text::from("for the forward line ").and(frame_label(frame)));
    let region = location.compile_context.as_deref();
    let region = region.map(|region| region.strip_prefix("Torch-Compiled Region: ").unwrap_or(region));
    let compiled = region.map(|region| Text::from("in compiled region ").and(code(region)));
    [caller, forward, compiled].into_iter().flatten().collect()
}

/// An operation, with its share of the bytes if that is below 100%.
pub(super) fn operation_label(operation: Option<&str>, share: Option<f64>) -> Option<Text> {
    let share = share.filter(|share| *share < 1.0).map(|share| format!(" ({} of it)", percent(share)));
    operation.map(|operation| share.into_iter().fold(code(operation), Text::and))
}

/// The Python frames of a stack, outside the interpreter's internals; `left_out` frames of it are not in the report.
pub(super) fn stack_block(name: &'static str, frames: &[FrameReport], left_out: u64) -> Stack {
    let shown = frames.iter().filter(|frame| matches!(frame.origin, Origin::User | Origin::Package | Origin::Torch));
    let shown = shown.map(|frame| format!("{} {}", frame.file_line(), frame.name)).collect_vec();
    let folded = (frames.len() - shown.len()) as u64;
    Stack { name, frames: shown, folded_frames: folded.saturating_add(left_out) }
}

/// `and 3 others: --full`: those of `all` that are not `shown`, and with `more` where they are; `None` if there are none.
pub(super) fn and_others(all: usize, shown: usize, noun: &str, more: &str) -> Option<String> {
    let others = all.saturating_sub(shown) as u64;
    (others > 0).then(|| format!("and {}{more}", counted(others, noun)))
}

/// The file in one line: release, size, entries, settings.
pub(super) fn describe_file(snapshot: &SnapshotReport) -> String {
    let settings = match snapshot.settings_string.as_deref() {
        None if snapshot.found_settings.is_empty() => "allocator settings not recorded".to_owned(),
        None => format!("allocator settings not recorded; inferred by replay: {}", snapshot.found_settings.join(",")),
        Some("") => "default allocator settings".to_owned(),
        Some(settings) => format!("settings {settings}"),
    };
    let entries = counted(snapshot.events, "trace entry");
    format!("written by PyTorch {}, {}, {entries}, {settings}", snapshot.torch_version, size(snapshot.size_bytes))
}

/// Appends the requests that failed in a replay.
pub(super) fn add_failed_requests(document: &mut Document, ooms: &[FailedRequest]) {
    const SHOWN: usize = 5;
    let shown = ooms.iter().take(SHOWN);
    let shown = shown.map(|oom| format!("{} at entry {}", size(oom.requested_bytes), count(oom.event as u64)));
    let more = ooms.len().checked_sub(SHOWN).filter(|more| *more > 0);
    document.fields("failed", shown.chain(more.map(|more| format!("and {} more", count(more as u64)))));
}

/// Private pools are mentioned if they keep this share of reserved memory.
const MIN_PRIVATE_RATIO: f64 = 0.01;

/// Describes the memory that private pools keep, and what for by `held`; `None` if that is hardly any.
pub(super) fn describe_private_pools(memory: &MemoryReport, held: Option<&MemoryBreakdown>) -> Option<String> {
    let pools = memory.private_pools?;
    let purposes = held.iter().flat_map(|held| &held.pools_for).copied().map(category_label).join(", ");
    let (kinds, purposes) = match purposes.as_str() {
        "" => (" (CUDA graphs, MemPool)", String::new()),
        purposes => ("", format!(" for {purposes}")),
    };
    let (keep, them) = if pools.count == 1 { ("keeps", "it") } else { ("keep", "them") };
    let (count, [bytes, free]) =
        (counted(pools.count, "private pool"), [pools.reserved_bytes, pools.inactive_bytes].map(size));
    (ratio(pools.reserved_bytes, memory.reserved_bytes) >= MIN_PRIVATE_RATIO)
        .then(|| format!("{count}{kinds} {keep} {bytes}{purposes}; {free} of it is free for {them} alone"))
}

/// Categories of an engine with a smaller share of its memory are not listed.
const MIN_ENGINE_RATIO: f64 = 0.01;

/// The memory of serving engines and of all other code, by category; empty without an engine.
pub(super) fn describe_engines(held: Option<&MemoryBreakdown>) -> Vec<String> {
    let engines = held.iter().flat_map(|held| &held.by_engine).map(|row| {
        let bytes = row.share.bytes;
        let large = row.by_category.iter().filter(|of| ratio(of.share.bytes, bytes) >= MIN_ENGINE_RATIO);
        let large = large.filter(|of| of.category != Category::Other);
        let parts = large.map(|of| format!("{} {}", guessed_label(of.category, of.confidence), size(of.share.bytes)));
        let all = format!("{} {}", row.engine.map_or("other code", |engine| engine.name), size(bytes));
        [all, parts.format(", ").to_string()].into_iter().filter(|text| !text.is_empty()).join(": ")
    });
    engines.collect()
}

/// `step 24, forward`
pub(super) fn step_label(step: Option<u32>, phase: Phase) -> Option<String> {
    let phase = match phase {
        Phase::Init => Some("building the model"),
        Phase::Data => Some("before a forward pass"),
        Phase::Forward => Some("forward"),
        Phase::Backward => Some("backward"),
        Phase::Optimizer => Some("optimizer step"),
        Phase::Other => None,
    };
    let step = step.map(|step| format!("step {step}"));
    Some(step.into_iter().chain(phase.map(str::to_owned)).join(", ")).filter(|label| !label.is_empty())
}

pub(super) fn pool_label(id: [u64; 2]) -> String {
    match id {
        [0, 0] => "default".to_owned(),
        [a, 0] => format!("graph {a}"),
        [a, b] => format!("({a}, {b})"),
    }
}

/// The paths of rows without their common directory and ending.
pub(super) struct Names {
    directory: String,
    ending: String,
}

impl Names {
    pub(super) fn from_paths<'p>(paths: impl Iterator<Item = &'p str> + Clone) -> Self {
        let common = paths.clone().reduce(common_prefix);
        let directory = common.and_then(|common| Some(&common[..=common.rfind('/')?]));
        Self { directory: directory.unwrap_or_default().to_owned(), ending: common_ending(paths) }
    }

    pub(super) fn shorten<'p>(&self, path: &'p str) -> &'p str {
        let name = path.strip_prefix(&self.directory).unwrap_or(path);
        name.strip_suffix(&self.ending).unwrap_or(name)
    }
}

/// A name for each of `rows`: its path without what all share; the device, where a path has several.
pub(super) fn row_names(rows: &[RankRow]) -> Vec<String> {
    let names = Names::from_paths(rows.iter().map(|row| &*row.path));
    let paths: BTreeSet<&str> = rows.iter().map(|row| &*row.path).collect();
    let names = rows.iter().map(|row| match names.shorten(&row.path) {
        _ if paths.len() == 1 => format!("GPU {}", row.device),
        name if paths.len() < rows.len() => format!("{name} GPU {}", row.device),
        name => name.to_owned(),
    });
    names.collect()
}

fn common_prefix<'p>(a: &'p str, b: &'p str) -> &'p str {
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b);
    &a[..same.map(|(c, _)| c.len_utf8()).sum()]
}

/// The common ending of all paths, such as `.pickle.gz`; empty if they have different ones, or none of these.
fn common_ending<'p>(mut paths: impl Iterator<Item = &'p str> + Clone) -> String {
    let first = paths.clone().next().unwrap_or_default();
    let name = first.rsplit_once('/').map_or(first, |(_, name)| name);
    let start = [".pickle", ".pkl", ".json"].iter().find_map(|ending| name.rfind(ending));
    let ending = start.map(|start| &name[start..]);
    ending.filter(|ending| paths.all(|path| path.ends_with(ending))).unwrap_or_default().to_owned()
}
