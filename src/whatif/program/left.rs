//! What a past step left behind, freed at its end: a loss that is kept with its graph, outputs that stay until the next
//! ones take their name.

use rustc_hash::{FxHashMap, FxHashSet};

use super::change::{Changed, ProgramChange, Sure};
use super::recording::Recording;
use crate::base::ids::{StackId, row};
use crate::replay::calls::{Op, What};
use crate::study::held::Category;

/// What comes to less than this part of the peak is no reason.
const WORTH: u64 = 1000;

/// What lines leave behind in step after step, freed at the end of each.
pub(super) fn left_behind(recording: &Recording<'_, '_>) -> Vec<Changed> {
    changed(recording).into_iter().collect()
}

fn changed(recording: &Recording<'_, '_>) -> Option<Changed> {
    let purposes = recording.purposes();
    // What a line makes once may be there for good: a cache, a buffer.
    let mut steps: FxHashMap<StackId, FxHashSet<u32>> = FxHashMap::default();
    let mut left: Vec<(u32, u32)> = Vec::new();
    for (number, block) in recording.script.blocks.iter().enumerate() {
        let is_one = matches!(
            purposes[number],
            Category::Activations | Category::Temporaries | Category::Other
        );
        let step = block.asked.and_then(|call| recording.step_of(call));
        let Some(step) = step.filter(|_| is_one && !block.is_failed) else { continue };
        let goes = block.freed.map(|call| recording.step_of(call));
        if goes.is_none_or(|gone| gone.is_none_or(|gone| gone > step)) {
            steps.entry(recording.maker(row(number))).or_default().insert(step);
            left.push((row(number), step));
        }
    }
    let last = recording.script.acts.last().and_then(|act| recording.step_of(act.like))?;
    left.retain(|(block, step)| {
        *step < last && steps.get(&recording.maker(*block)).is_some_and(|steps| steps.len() > 1)
    });
    let bytes_at_peak =
        recording.bytes_at_peak(|block| left.binary_search_by_key(&block, |one| one.0).is_ok());
    let bytes = left.iter().fold(0u64, |sum, one| sum.saturating_add(recording.rounded(one.0)));
    // A loss of one number is left behind by most.
    if left.is_empty() || bytes < recording.peak.bytes / WORTH {
        return None;
    }
    // The last call of each step.
    let mut ends: FxHashMap<u32, u32> = FxHashMap::default();
    for act in &recording.script.acts {
        if let (What::Ask(_), Some(step)) = (act.what, recording.step_of(act.like)) {
            ends.insert(step, act.like);
        }
    }
    let mut after: FxHashMap<u32, Vec<Op>> = FxHashMap::default();
    for (block, step) in &left {
        let like = *ends.get(step)?;
        let what = What::Free { block: *block, is_moved: true };
        after.entry(like).or_default().push(Op { like, what });
    }
    let mut script = recording.script.clone();
    script.acts.clear();
    for act in &recording.script.acts {
        script.acts.push(*act);
        script.acts.extend(after.remove(&act.like).into_iter().flatten());
    }
    Some(Changed {
        change: ProgramChange::LeftBehind,
        sure: Sure::Exact,
        what: "what a past step left behind freed at its end (del)".to_owned(),
        line: recording.main_line(left.iter().map(|one| one.0)),
        bytes_at_peak,
        script,
    })
}
