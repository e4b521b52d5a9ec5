//! Advice for a failed request: the advice of its verdict, refined by what the recording shows.

use crate::allocator::conf::shell_assignment;
use crate::allocator::verdict::{EMPTY_CACHE_NO_REMEDY, OUTSIDE_ALLOCATOR_USERS, Snippet, Verdict};
use crate::analysis::failure::{Blocker, OomReport, Remedy};
use crate::base::units::{counted, percent, ratio, size};
use crate::stacks::frames::{CodeLocation, FrameReport};
use crate::study::attribution::{Category, Leaks};
use crate::study::memory::LiveByLine;
use crate::whatif::program::{ChangeCertainty, ProgramRow};

/// Qualifies a capacity verdict if the size of the device is unknown.
const UNKNOWN_CAPACITY_NOTE: &str = "; or other processes hold the missing memory: give the GPU's memory to find out \
                                     (such as --capacity 80GiB)";

/// Advice, most useful first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FailureAdvice {
    pub(super) texts: Vec<String>,
    /// Text to copy for the first piece of advice.
    pub(super) copy: Option<String>,
}

/// The evidence other than the failure itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Evidence<'a> {
    pub(super) leaks: &'a Leaks,
    /// Replayed changes to the program, the best first.
    pub(super) changes: &'a [ProgramRow],
    /// The recorded settings string.
    pub(super) settings_string: Option<&'a str>,
    pub(super) is_capacity_known: bool,
}

/// Bytes of growth per step that explain `oom`: it used up the missing memory, and would have used up more.
pub(super) fn explaining_growth(oom: &OomReport, leaks: &Leaks) -> Option<u64> {
    let growth = oom.growth.filter(|growth| growth.explains).map(|growth| growth.bytes_per_step);
    growth.or_else(|| leaks.explain_shortfall(oom.shortfall_bytes).then_some(leaks.bytes_per_step))
}

/// Recommends actions for `oom`, the last failure of a device.
pub(super) fn advise(oom: &OomReport, evidence: Evidence<'_>) -> FailureAdvice {
    let mut advice = first_advice(oom, evidence);
    let texts = &mut advice.texts;
    if oom.verdict == Verdict::Capacity
        && !evidence.is_capacity_known
        && is_device_too_full(oom)
        && explaining_growth(oom, evidence.leaks).is_none()
    {
        for text in &mut *texts {
            *text = format!("{}{UNKNOWN_CAPACITY_NOTE}", text.trim_end_matches('.'));
        }
    }
    match oom.verdict {
        Verdict::Capacity => {
            texts.extend(describe_largest_line(oom));
            texts.extend(describe_excess(oom));
        }
        Verdict::Fragmentation => {
            texts.extend(oom.blockers.first().map(describe_blocker));
            texts.push(EMPTY_CACHE_NO_REMEDY.to_owned());
        }
        Verdict::PendingFree => texts.extend(oom.pending.first().map(|line| {
            let location = line.location.label();
            format!("Most of the pending memory was allocated at {location}: {}.", size(line.bytes))
        })),
        Verdict::PrivatePool | Verdict::OtherStream => {
            texts.extend(oom.blockers.first().map(describe_blocker));
        }
        Verdict::NonPytorch => {
            let outside = oom.causes.iter().find(|cause| cause.kind == Verdict::NonPytorch);
            texts.extend(outside.map(|cause| {
                format!(
                    "{} of the device is held outside this allocator: by other processes (rocm-smi lists them on \
                     AMD), or by this one: the CUDA context, {OUTSIDE_ALLOCATOR_USERS}.",
                    size(cause.bytes),
                )
            }));
        }
        Verdict::MemoryLimit | Verdict::Spurious | Verdict::Unknown | Verdict::Served => {}
    }
    advice
}

/// The most useful piece of advice, and the text to copy for it.
fn first_advice(oom: &OomReport, evidence: Evidence<'_>) -> FailureAdvice {
    let advice = |text: String, copy| FailureAdvice { texts: vec![text], copy };
    let file_line = |location: &CodeLocation| location.frame.as_ref().map(FrameReport::file_line);
    if explaining_growth(oom, evidence.leaks).is_some() {
        let suspect = evidence.leaks.suspects.first();
        let target = suspect.map_or_else(
            || "what is kept after each step".to_owned(),
            |suspect| format!("what {} keeps after each step", suspect.location.label()),
        );
        return advice(
            format!("free {target}: no setting helps for long"),
            suspect.and_then(|suspect| file_line(&suspect.location)),
        );
    }
    // Without a replay of the next step, a capacity verdict predicts that later requests fail too.
    let is_lasting = |remedy: &&Remedy| {
        let next_succeeds = remedy.next_step.map(|next| !next.fails);
        remedy.avoids_oom && next_succeeds.unwrap_or(oom.verdict != Verdict::Capacity)
    };
    let remedy = oom.remedies.iter().find(is_lasting);
    if let Some(remedy) = remedy.filter(|remedy| remedy.without.is_none()) {
        let text = format!("set {}: in a replay the request then succeeds", remedy.settings);
        return advice(text, Some(shell_assignment(&remedy.settings, evidence.settings_string)));
    }
    let is_sure = |row: &&ProgramRow| row.sure != ChangeCertainty::Guess && row.fits == Some(true);
    if let Some(change) = evidence.changes.first().filter(is_sure) {
        let text = format!("{}; in a replay every request then succeeds", change.label());
        return advice(text, file_line(&change.location));
    }
    let holder = live_lines(oom).find_map(|line| file_line(&line.location));
    // The verdict's own advice is to try a setting, which is stale once settings have been replayed.
    let is_stale = matches!(oom.verdict, Verdict::Fragmentation | Verdict::Capacity);
    if let Some(why) = why_no_setting_helps(oom).filter(|_| is_stale) {
        let reduction = suggest_reduction(oom);
        return advice(format!("hold less memory at that time: {reduction}; {why}"), holder);
    }
    let row = oom.verdict.advice();
    let culprit = file_line(&oom.location);
    let copy = match row.snippet {
        Snippet::AllocConf(option) => Some(shell_assignment(option, evidence.settings_string)),
        Snippet::Command(words) => Some(words.to_owned()),
        Snippet::CodeLine if oom.verdict == Verdict::Capacity => holder.or(culprit),
        Snippet::CodeLine if oom.verdict == Verdict::PendingFree => {
            oom.pending.iter().find_map(|line| file_line(&line.location)).or(culprit)
        }
        Snippet::CodeLine => culprit,
        Snippet::Nothing => None,
    };
    advice(row.text.to_owned(), copy)
}

/// The result of the replays, if none of them recommends a setting.
fn why_no_setting_helps(oom: &OomReport) -> Option<&'static str> {
    let successful = || oom.remedies.iter().filter(|remedy| remedy.avoids_oom);
    let as_recorded = oom.as_recorded?;
    if as_recorded.no_setting_helps {
        return Some("no allocator setting helps");
    }
    if oom.remedies.is_empty() {
        return None;
    }
    let fails_later = |remedy: &Remedy| remedy.next_step.is_some_and(|next| next.fails);
    Some(if successful().next().is_none() {
        "under every replayed setting the request fails"
    } else if successful().all(fails_later) {
        "the replayed settings only postpone the failure"
    } else {
        "a setting may serve this request, but probably not the ones after it"
    })
}

fn live_lines(oom: &OomReport) -> impl Iterator<Item = &LiveByLine> {
    oom.held.iter().flat_map(|held| &held.by_line.rows)
}

/// How to reduce the memory of the largest known category.
fn suggest_reduction(oom: &OomReport) -> &'static str {
    let mut categories = oom.held.iter().flat_map(|held| &held.by_category).map(|row| row.category);
    let largest = categories.find(|category| *category != Category::Other);
    match largest.unwrap_or(Category::Other) {
        Category::Parameters => "shard or offload the parameters, or keep them in lower precision",
        Category::Gradients => "shard the gradients, or free them before they are needed again (set_to_none)",
        Category::OptimizerState => "shard or offload the optimizer's state, or keep it in lower precision",
        Category::Activations => "a smaller batch or sequence, or activation checkpointing",
        Category::Communication => "smaller buckets, or fewer collectives at once",
        Category::Inputs => "a smaller batch, moved to the device only when it is used",
        Category::Temporaries | Category::Other => "a smaller batch or activation checkpointing",
    }
}

fn describe_largest_line(oom: &OomReport) -> Option<String> {
    let line = live_lines(oom).next()?;
    let (label, allocated) = (line.location.label(), oom.allocated_bytes);
    let share = percent(ratio(line.bytes, allocated));
    let (bytes, allocated) = (size(line.bytes), size(allocated));
    Some(format!("The largest holder is {label}: {bytes} of {allocated} allocated ({share})."))
}

/// The excess over the reachable memory, which no memory layout can serve.
fn describe_excess(oom: &OomReport) -> Option<String> {
    let as_recorded = oom.as_recorded?;
    let (needed, reach) = (as_recorded.needed_bytes, as_recorded.reach_bytes);
    let excess = needed.checked_sub(reach).filter(|excess| *excess > 0)?;
    Some(format!(
        "To fit, the program has to hold at least {} less at that time, or needs {} within reach instead of {}.",
        size(excess),
        size(needed),
        size(reach)
    ))
}

/// Whether even all free memory, in one piece, would have been too little.
fn is_device_too_full(oom: &OomReport) -> bool {
    oom.device_free_bytes.saturating_add(oom.cached_bytes) < oom.segment_bytes
}

fn describe_blocker(blocker: &Blocker) -> String {
    format!(
        "{} of {}, {}, {} {} of free memory apart: allocate them before the rest, or free them earlier.",
        counted(blocker.blocks, "block"),
        blocker.location.label(),
        size(blocker.bytes_held),
        if blocker.blocks == 1 { "keeps" } else { "keep" },
        size(blocker.bytes_unlocked)
    )
}
