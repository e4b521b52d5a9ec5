//! What to do about a failed request: the row of its verdict, with what the recording shows besides.

use super::device::DeviceReport;
use crate::allocator::conf::shell_assignment;
use crate::allocator::verdict::{EMPTY_CACHE_NO_REMEDY, Snippet, Verdict};
use crate::analysis::failure::{Blocker, OomReport, Remedy};
use crate::base::units::{counted, percent, ratio, size};
use crate::stacks::frames::FrameReport;
use crate::study::attribution::Category;
use crate::study::memory::LiveByLine;
use crate::whatif::program::{ChangeCertainty, ProgramRow};

/// What may change a verdict of capacity, where the size of the device is not known.
const OTHERS: &str = "; or others on this GPU hold what is missing: --capacity with the GPU's memory (such as \
                      --capacity 80GiB) tells";

/// What to do, most useful first, and what to copy for the first of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Advised {
    pub(super) texts: Vec<String>,
    pub(super) copy: Option<String>,
}

/// What is known besides the failure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    /// The settings string of the file.
    pub(super) recorded: Option<&'a str>,
    /// Whether the size of the device was given.
    pub(super) is_device_known: bool,
}

/// Against `oom`, the last failure of `device`.
pub(super) fn against(oom: &OomReport, device: &DeviceReport, known: Known<'_>) -> Advised {
    let mut advised = first(oom, device, known.recorded);
    let texts = &mut advised.texts;
    if oom.verdict == Verdict::Capacity && !known.is_device_known && may_be_others(oom) {
        for text in texts.iter_mut().filter(|_| device.explained_by_growth(oom).is_none()) {
            *text = format!("{}{OTHERS}", text.trim_end_matches('.'));
        }
    }
    match oom.verdict {
        Verdict::Capacity => {
            texts.extend(largest(oom));
            texts.extend(what_would_fit(oom));
        }
        Verdict::Fragmentation => {
            texts.extend(oom.blockers.first().map(in_the_way));
            texts.push(EMPTY_CACHE_NO_REMEDY.to_owned());
        }
        Verdict::PendingFree => texts.extend(oom.pending.first().map(|line| {
            format!("Most of what waits was allocated at {}: {}.", named(line), size(line.bytes))
        })),
        Verdict::PrivatePool | Verdict::OtherStream => {
            texts.extend(oom.blockers.first().map(in_the_way));
        }
        Verdict::NonPytorch => {
            let outside = oom.causes.iter().find(|cause| cause.kind == Verdict::NonPytorch);
            texts.extend(outside.map(|cause| {
                format!(
                    "{} of the device is held outside this allocator: by other processes (rocm-smi lists them on \
                     AMD), or by this one: the CUDA context, {}.",
                    size(cause.bytes),
                    crate::allocator::verdict::OUTSIDE_ALLOCATOR_USERS
                )
            }));
        }
        _ => {}
    }
    advised
}

/// What comes first, and what to copy for it.
fn first(oom: &OomReport, device: &DeviceReport, recorded: Option<&str>) -> Advised {
    let one = |text: String, copy| Advised { texts: vec![text], copy };
    if device.explained_by_growth(oom).is_some() {
        let growing = device.leaks.suspects.first();
        let keeps = growing.map(|one| one.location.label());
        let what = keeps.map_or_else(
            || "what is kept after each step".to_owned(),
            |line| format!("what {line} keeps after each step"),
        );
        return one(
            format!("free {what}: no setting helps for long"),
            growing.and_then(|one| one.location.frame.as_ref()).map(FrameReport::file_line),
        );
    }
    // What comes after the request is known of some; of the others a verdict of capacity says that more comes.
    let lasting = |remedy: &&Remedy| {
        let goes_on = remedy.next_step.map(|next| !next.fails);
        remedy.avoids_oom && goes_on.unwrap_or(oom.verdict != Verdict::Capacity)
    };
    if let Some(remedy) = oom.remedies.iter().find(lasting).filter(|it| it.without.is_none()) {
        let text = format!("set {}: in a replay the request then succeeds", remedy.settings);
        return one(text, Some(shell_assignment(&remedy.settings, recorded)));
    }
    // What follows from the calls, not from a guess, and serves all of them.
    let is_sure = |row: &&ProgramRow| row.sure != ChangeCertainty::Guess && row.fits == Some(true);
    if let Some(change) = device.changes.first().filter(is_sure) {
        let text = format!("{}; in a replay every request is then served", change.label());
        return one(text, change.location.frame.as_ref().map(FrameReport::file_line));
    }
    let held = lines(oom).find_map(|line| line.location.frame.as_ref()).map(FrameReport::file_line);
    // Where settings were replayed, advice to try one is stale.
    let is_stale = matches!(oom.verdict, Verdict::Fragmentation | Verdict::Capacity);
    if let Some(why) = why_no_setting(oom).filter(|_| is_stale) {
        return one(format!("hold less at that moment: {}; {why}", means(oom)), held);
    }
    let row = oom.verdict.advice();
    let culprit = oom.location.frame.as_ref().map(FrameReport::file_line);
    let copy = match row.snippet {
        Snippet::AllocConf(option) => Some(shell_assignment(option, recorded)),
        Snippet::Command(words) => Some(words.to_owned()),
        Snippet::CodeLine => match oom.verdict {
            Verdict::Capacity => held.or(culprit),
            Verdict::PendingFree => {
                let waits = oom.pending.iter().find_map(|line| line.location.frame.as_ref());
                waits.map(FrameReport::file_line).or(culprit)
            }
            _ => culprit,
        },
        Snippet::Nothing => None,
    };
    one(row.text.to_owned(), copy)
}

/// What replays came to, where no setting is to be advised.
fn why_no_setting(oom: &OomReport) -> Option<&'static str> {
    let serving = || oom.remedies.iter().filter(|remedy| remedy.avoids_oom);
    match oom.undisturbed {
        Some(own) if own.no_setting_helps => Some("no allocator setting helps"),
        Some(_) if serving().next().is_some() => {
            let fails = |remedy: &Remedy| remedy.next_step.is_some_and(|next| next.fails);
            Some(if serving().any(|remedy| !fails(remedy)) {
                "a setting may serve this request, hardly what comes after it"
            } else {
                "the settings that were replayed only postpone the failure"
            })
        }
        Some(_) if !oom.remedies.is_empty() => {
            Some("no setting that was replayed serves the request")
        }
        _ => None,
    }
}

fn lines(oom: &OomReport) -> impl Iterator<Item = &LiveByLine> {
    oom.held.iter().flat_map(|held| &held.by_line.rows)
}

fn named(line: &LiveByLine) -> String {
    line.location.label()
}

/// How less is held of what most memory is for.
fn means(oom: &OomReport) -> &'static str {
    let known = oom.held.iter().flat_map(|held| &held.by_category);
    let most = known.filter(|of| of.category != Category::Other).map(|of| of.category).next();
    match most.unwrap_or(Category::Other) {
        Category::Parameters => "shard or offload the parameters, or keep them in lower precision",
        Category::Gradients => {
            "shard the gradients, or free them before they are needed again (set_to_none)"
        }
        Category::OptimizerState => {
            "shard or offload the optimizer's state, or keep it in lower precision"
        }
        Category::Activations => "a smaller batch or sequence, or activation checkpointing",
        Category::Communication => "smaller buckets, or fewer collectives at once",
        Category::Inputs => "a smaller batch, moved to the device only when it is used",
        _ => "a smaller batch or activation checkpointing",
    }
}

/// Who holds most.
fn largest(oom: &OomReport) -> Option<String> {
    let line = lines(oom).next()?;
    let all = oom.allocated_bytes;
    let share = percent(ratio(line.bytes, all));
    Some(format!(
        "Largest is {}: {} of {} allocated ({share}).",
        named(line),
        size(line.bytes),
        size(all)
    ))
}

/// What it takes at least for the request to be served.
fn what_would_fit(oom: &OomReport) -> Option<String> {
    let own = oom.undisturbed?;
    let over = own.needed_bytes.checked_sub(own.reach_bytes).filter(|over| *over > 0)?;
    Some(format!(
        "To fit, at least {} less has to be held at that moment, or {} be within reach instead of {}.",
        size(over),
        size(own.needed_bytes),
        size(own.reach_bytes)
    ))
}

/// Whether what others may hold would have served it: all that is free would not.
fn may_be_others(oom: &OomReport) -> bool {
    oom.device_free_bytes.saturating_add(oom.cached_bytes) < oom.segment_bytes
}

fn in_the_way(blocker: &Blocker) -> String {
    format!(
        "{} of {}, {}, {} {} of free memory apart: allocate them before the rest, or free them earlier.",
        counted(blocker.blocks, "block"),
        blocker.location.label(),
        size(blocker.bytes_held),
        if blocker.blocks == 1 { "keeps" } else { "keep" },
        size(blocker.bytes_unlocked)
    )
}
