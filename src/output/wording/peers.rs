//! Why one rank of a job is unlike the others, and what to do about it.

use itertools::Itertools as _;

use crate::analysis::{Advice, DifferenceKind, RankDifference, RankRow, Ranks};
use crate::base::units::{count, counted, escape_name, size};
use crate::stacks::frames::CodeLocation;
use crate::study::attribution::Category;

/// Why this rank, in a sentence: `rank 2 gets an input of 128 KiB at train.py:34, its 3 peers 32 KiB`.
pub(crate) fn describe_difference(ranks: &Ranks) -> Option<String> {
    let found = ranks.difference.as_ref()?;
    let who = ranks.labels(&found.rows);
    let (bytes, usual, line) = (size(found.bytes), size(found.peers_bytes), line(found));
    let s = if found.rows.len() == 1 { "s" } else { "" };
    let others = match found.peers {
        1 => "the other rank".to_owned(),
        peers => format!("the median of the {} others", count(peers)),
    };
    let others = if found.peers_bytes == 0 { others } else { format!("{others}: {usual}") };
    Some(match found.kind {
        DifferenceKind::SharedGpu => {
            let all: Vec<usize> = found.rows.iter().chain(&found.foreign).copied().collect();
            format!("{} all use {} as their own", ranks.holders(&all), gpu(ranks, found))
        }
        DifferenceKind::ForeignMemory => {
            let owner = ranks.holders(&found.rows);
            let s = if found.foreign.len() == 1 { "s" } else { "" };
            let row = found.rows.first().and_then(|row| ranks.rows.get(*row));
            let reach = row.and_then(|row| row.capacity_bytes);
            let is_more =
                row.zip(reach).is_some_and(|(row, all)| row.peak_reserved_bytes.saturating_add(found.bytes) > all);
            let sum = if is_more { "; with its own that is more than the GPU has" } else { "" };
            let (others, gpu) = (ranks.holders(&found.foreign), gpu(ranks, found));
            format!("{others} hold{s} {bytes} on {gpu}, the GPU of {owner}{sum}")
        }
        DifferenceKind::Growth if found.peers_bytes == 0 => {
            format!("only {who} grow{s} from step to step: {bytes} a step at {line}")
        }
        DifferenceKind::Growth => format!("{who} grow{s} by {bytes} a step at {line}; {others}"),
        DifferenceKind::Parameters => format!("{who} hold{s} {bytes} of parameters; {others}"),
        DifferenceKind::OptimizerState => {
            format!("{who} hold{s} {bytes} of optimizer state for equal parameters; {others}")
        }
        DifferenceKind::Input => format!("{who} get{s} an input of {bytes} at {line}; {others}"),
        DifferenceKind::Routed => {
            format!("{who} request{s} {bytes} at {line} in the forward pass, from an input of the same size; {others}")
        }
        DifferenceKind::Alone => format!("in this step only {who} run{s} {line}"),
        DifferenceKind::Line if found.peers_bytes == 0 => {
            format!("{who} hold{s} {bytes} from {line}, where no other rank holds any")
        }
        DifferenceKind::Line => format!("{who} hold{s} {bytes} from {line}; {others}"),
    })
}

/// The action that evens the ranks out; `None` if `advice`, that for the rank alone, does so or is better.
pub(crate) fn even_out(ranks: &Ranks, advice: Option<&Advice>) -> Option<String> {
    use Advice::{Cure, Detach, FreeGrowth, LimitInput, LoadOnHost, NoGrad, RequestLess, Shapes};
    let found = ranks.difference.as_ref()?;
    let line = line(found);
    // It names what keeps the memory, or the input.
    let is_specific = matches!(
        advice,
        Some(
            Cure(_)
                | Shapes(..)
                | Detach(..)
                | FreeGrowth(..)
                | LimitInput(_)
                | RequestLess(_)
                | LoadOnHost(_)
                | NoGrad(_)
        )
    );
    Some(match found.kind {
        DifferenceKind::SharedGpu => "give each process its own GPU before its first allocation: \
                                      torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))"
            .to_owned(),
        DifferenceKind::ForeignMemory => format!(
            "allocate on the rank's own device at {line}, or in host memory (torch.load(.., map_location=\"cpu\"))"
        ),
        DifferenceKind::Parameters => "give the ranks with more parameters fewer layers, or split their largest layer \
                                       (embedding, head) over ranks"
            .to_owned(),
        DifferenceKind::OptimizerState => {
            "divide the optimizer state by bytes, not by the number of parameters: the largest shard decides".to_owned()
        }
        DifferenceKind::Routed => format!(
            "limit or balance the rows that this rank gets at {line}: of an expert, its tokens (capacity factor, \
             balancing loss)"
        ),
        DifferenceKind::Alone if !is_specific => {
            format!("do what only this rank does at {line} in smaller parts, or spread it over the ranks")
        }
        DifferenceKind::Input if !is_specific => {
            format!("cut, skip or spread the input at {line}, so that no rank gets a larger one")
        }
        // A step needs activations where they are.
        DifferenceKind::Line if matches!(found.category, Some(Category::Activations | Category::Temporaries)) => {
            return None;
        }
        DifferenceKind::Line if !is_specific => format!(
            "move what {line} keeps to host memory (.cpu()), or spread it over the ranks: only here it is so much"
        ),
        DifferenceKind::Alone | DifferenceKind::Input | DifferenceKind::Line | DifferenceKind::Growth => return None,
    })
}

fn line(found: &RankDifference) -> String {
    // A helper that all ranks use is called from elsewhere there.
    let caller = found.location.as_ref().and_then(|location| location.called_from.as_ref());
    match caller.filter(|_| found.kind == DifferenceKind::Alone) {
        Some(caller) => caller.brief_label(),
        None => found.location.as_ref().map_or_else(String::new, CodeLocation::brief_label),
    }
}

/// `GPU 0 of its host`
fn gpu(ranks: &Ranks, found: &RankDifference) -> String {
    let row = found.rows.first().and_then(|row| ranks.rows.get(*row));
    let number = row.and_then(|row| row.host_device).unwrap_or_default();
    match row.and_then(|row| row.host.as_deref()).filter(|_| ranks.has_several_hosts()) {
        Some(host) => format!("GPU {number} of {}", escape_name(host)),
        None => format!("GPU {number}"),
    }
}

/// The memory that every rank keeps from step to step: `parameters 636 MiB, optimizer state 192 MiB to 1.16 GiB a rank`.
pub(crate) fn describe_state(ranks: &Ranks) -> Option<String> {
    // An optimizer makes its state in the first step.
    let rows: Vec<&RankRow> =
        ranks.rows.iter().filter(|row| row.is_own_device && row.step.is_some_and(|step| step > 0)).collect();
    if rows.len() < 2 || !ranks.are_numbered() {
        return None;
    }
    let kinds = ["parameters", "optimizer state"].into_iter().enumerate();
    let parts = kinds.filter_map(|(index, name)| {
        let sizes = rows.iter().filter_map(|row| row.state_bytes.get(index)).copied();
        match (size(sizes.clone().min()?), size(sizes.max().filter(|most| *most > 0)?)) {
            (minimum, maximum) if minimum == maximum => Some(format!("{name} {maximum}")),
            (minimum, maximum) => Some(format!("{name} {minimum} to {maximum}")),
        }
    });
    let parts = parts.format(", ").to_string();
    (!parts.is_empty()).then(|| format!("{parts} a rank"))
}

/// `attempt 2 of 2`, and the other jobs of the directory.
pub(crate) fn describe_jobs(ranks: &Ranks) -> Vec<String> {
    let attempts = ranks.attempts.map(|attempts| format!("attempt {} of {}", attempts.shown, attempts.count));
    let others = ranks.other_jobs.iter().map(|job| {
        let failed = match job.failed {
            0 => "no request failed".to_owned(),
            failed => format!("{failed} ran out of memory"),
        };
        format!("not compared: {} of `{}` ({failed})", counted(job.ranks, "rank"), job.command)
    });
    attempts.into_iter().chain(others).collect()
}
