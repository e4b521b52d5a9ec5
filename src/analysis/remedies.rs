//! Settings under which a request would not have failed: each one replayed.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use rayon::prelude::*;

use super::oom::{OomReport, Remedy};
use super::replay::{WhatIf, changed, option_change};
use crate::replay::{Known, Program, Simulation, infer, simulate};
use crate::snapshot::Snapshot;

/// A trace of more entries is not replayed a dozen times unasked.
const MOST_ENTRIES: usize = 2_000_000;
/// Options that are tried, with the first release that has them.
const TRIED: [(u32, &str); 9] = [
    (1, "expandable_segments:True"),
    (1, "max_split_size_mb:64"),
    (1, "max_split_size_mb:128"),
    (1, "max_split_size_mb:256"),
    (1, "max_split_size_mb:512"),
    (1, "roundup_power2_divisions:4"),
    (1, "roundup_power2_divisions:8"),
    (10, "garbage_collection_threshold:0.8,per_process_memory_fraction:0.98"),
    (10, "max_split_size_mb:128,garbage_collection_threshold:0.8,per_process_memory_fraction:0.98"),
];

/// Fills in the remedies of `ooms`, failures of `device`. None is claimed where the model does not
/// reproduce the recorded run, or does not fail when it is replayed under the recorded settings.
pub(super) fn remedies(
    snapshot: &Snapshot,
    device: usize,
    minor: Option<u32>,
    ooms: &mut [OomReport],
) {
    if ooms.is_empty() || snapshot.trace(device).len() > MOST_ENTRIES {
        return;
    }
    let inference = infer(snapshot, &[device], Known { minor, capacity: None });
    let Some(one) = inference.devices.first().filter(|one| one.verification.is_exact()) else {
        return;
    };
    let program = Program::of(snapshot, device, &one.hypothesis.settings);
    let run = |change: &WhatIf| simulate(&program, &changed(snapshot, one, change), None);
    let control = run(&WhatIf::default());
    let recorded: BTreeSet<usize> = control.ooms.iter().map(|(event, _)| *event).collect();
    let tried: Vec<(String, Simulation)> = TRIED
        .par_iter()
        .filter(|(since, _)| *since <= one.hypothesis.minor)
        .filter_map(|(_, option)| {
            let settings = option_change(snapshot, &one.hypothesis, option).ok()?;
            if settings.0 == one.hypothesis.settings {
                return None; // in effect already
            }
            let change = WhatIf { settings: Some(settings), ..WhatIf::default() };
            Some((option.to_string(), run(&change)))
        })
        .collect();
    for oom in ooms {
        let Ok(event) = usize::try_from(oom.event) else { continue };
        // A graph capture waits for nothing, which a replay cannot know of a request that fares better.
        let is_captured = oom.causes.iter().any(|cause| cause.kind == "pending-free");
        if !recorded.contains(&event) || is_captured {
            continue;
        }
        oom.remedies =
            tried.iter().map(|(option, done)| remedy(option, done, event, &recorded)).collect();
        oom.remedies
            .sort_by_key(|r| (Reverse(r.avoids_oom), r.peak_reserved_bytes, r.device_allocs));
    }
}

fn remedy(option: &str, done: &Simulation, event: usize, recorded: &BTreeSet<usize>) -> Remedy {
    let statistics = done.allocator.statistics();
    // A setting that makes another request fail in its place helps nobody.
    let mut up_to_it = done.ooms.iter().map(|(at, _)| *at).take_while(|at| *at <= event);
    Remedy {
        settings: option.to_owned(),
        avoids_oom: up_to_it.all(|at| at != event && recorded.contains(&at)),
        peak_reserved_bytes: statistics.reserved_bytes.all.peak,
        device_allocs: statistics.num_device_alloc,
        device_frees: statistics.num_device_free,
    }
}
