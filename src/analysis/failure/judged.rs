//! The verdict on a failed request: the ladder's verdict, checked against replays and the program's next step.

use serde::Serialize;

use super::failed::FailureFacts;
use super::outlook::{Filling, NextStep, Outlook};
use super::remedies::TrialResults;
use crate::allocator::verdict::{Certainty, MemoryAtFailure, Verdict, decide};
use crate::replay::literal::Totals;
use crate::study::DeviceStudy;

/// A device is full if less than this part of the memory within reach is not in use (3 %).
const FULL_FRACTION: u64 = 32;

/// The verdict on a request that `failed`, with its certainty and reason. Fragmentation becomes capacity if the program
/// would fail again soon after, or if the device is full and no setting is known to serve the next step too. A verdict is
/// certain only if the model reproduces the recording and memory does not grow; a capacity verdict also requires a known
/// device size.
pub(super) fn judge(
    device: DeviceStudy<'_, '_>,
    failed: &FailureFacts,
    trials: &TrialResults,
    outlook: &Outlook,
    [is_reproduced, grows]: [bool; 2],
) -> (Verdict, Certainty, VerdictReason) {
    let ruling = decide(&failed.circumstances);
    let exceeds_reach = trials.as_recorded.is_some_and(|replay| replay.no_setting_helps);
    let is_dead_end = outlook.is_dead_end() || trials.only_postpones();
    let (reach, unused) = (failed.reach(), failed.unused());
    let is_full = unused < reach / FULL_FRACTION && !trials.has_lasting_remedy();
    let is_futile = ruling.verdict == Verdict::Fragmentation && (exceeds_reach || is_dead_end || is_full);
    let verdict = if is_futile { Verdict::Capacity } else { ruling.verdict };
    let is_confirmed = match verdict {
        // Only a replay of this and the next step shows that contiguous memory would have been enough.
        Verdict::Fragmentation => trials.has_lasting_remedy() && !grows && outlook.growth.is_none(),
        // On a device of unknown size other processes may hold memory.
        Verdict::Capacity => {
            let is_full = exceeds_reach || failed.circumstances.is_exhausted();
            is_full && device.capacity().is_some() && !trials.has_remedy()
        }
        Verdict::Unknown => false,
        _ => !outlook.is_dead_end() && !grows,
    };
    let guess = failed.pool_guess;
    let is_known = guess.pool.is_some() && !guess.is_open && is_reproduced;
    let is_certain = ruling.is_certain && is_known && is_confirmed;
    let reason = VerdictReason {
        dead_end: (verdict != ruling.verdict).then(|| {
            let layout_helps = !exceeds_reach && !is_dead_end;
            if layout_helps { DeadEnd::Full { unused, reach } } else { dead_end(*outlook, trials.has_remedy()) }
        }),
        ..VerdictReason::new(device, failed, ruling.verdict)
    };
    (verdict, if is_certain { Certainty::Certain } else { Certainty::Possible }, reason)
}

impl VerdictReason {
    pub(super) fn new(device: DeviceStudy<'_, '_>, failed: &FailureFacts, verdict: Verdict) -> Self {
        Self {
            verdict,
            memory: failed.circumstances,
            totals: failed.totals,
            asleep_bytes: device.sleep().map_or(0, |sleep| sleep.asleep_at(failed.entry)),
            outside_bytes: failed.outside,
            max_split_size: device.settings().max_split_size,
            dead_end: None,
            served: None,
        }
    }
}

/// Why contiguous memory would not have helped for long. `is_avoidable` if a replayed setting serves the request.
fn dead_end(outlook: Outlook, is_avoidable: bool) -> DeadEnd {
    match outlook {
        Outlook { growth: Some(growth), .. } if growth.explains => DeadEnd::Growth(growth.bytes_per_step),
        Outlook { next_step: Some(next), .. } if next.exceeds_room() => DeadEnd::NextStep(next),
        Outlook { filling: Some(filling), .. } if filling.exceeds_room() => DeadEnd::Filling(filling),
        Outlook { next_step: Some(_), .. } if is_avoidable => DeadEnd::EverySettingFails,
        _ => DeadEnd::ExceedsReach,
    }
}

/// The facts behind a verdict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VerdictReason {
    /// The verdict that the memory at the failure alone gives.
    pub verdict: Verdict,
    /// The free memory of each kind.
    pub memory: MemoryAtFailure,
    /// The totals of the allocator.
    pub totals: Totals,
    /// Bytes of the totals that an engine had unmapped: they were not on the device.
    pub asleep_bytes: u64,
    /// Bytes of device memory in use outside this allocator.
    pub outside_bytes: u64,
    /// The setting `max_split_size`, in bytes.
    pub max_split_size: u64,
    /// Why free memory in one piece would not have helped for long; `None` if that is not known.
    pub dead_end: Option<DeadEnd>,
    /// The memory that serves a tried request, and the bytes of the cache that are released for it.
    pub served: Option<(Served, u64)>,
}

/// Why a program would have failed soon, under any layout of its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadEnd {
    /// Its memory grows by this number of bytes a step.
    Growth(u64),
    /// Its next step needs more than would be left.
    NextStep(NextStep),
    /// The failing line fills memory.
    Filling(Filling),
    /// Its next step fails under every setting that was tried.
    EverySettingFails,
    /// Its memory exceeds the memory within reach.
    ExceedsReach,
    /// Nearly all memory within reach is in use; bytes.
    Full {
        /// The bytes that are not.
        unused: u64,
        /// All bytes within reach.
        reach: u64,
    },
}

/// The memory that would serve a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Served {
    /// `free-block` or `new-memory`.
    pub kind: &'static str,
    /// Address of the free block; null for new memory.
    pub address: Option<u64>,
    /// Size in bytes of the free block, or of the new device memory.
    pub bytes: u64,
}

/// A kind of memory that could have served a failed request, and why it did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CauseNote {
    /// Free in the request's pool and stream: the size of the largest block, and whether it is large enough.
    Own(u64, bool),
    /// Free in blocks of other streams.
    OtherStream,
    /// Free in private pools, and the request was for the default pool.
    PrivatePools,
    /// Free in other pools, and the request was for a private pool.
    OtherPools,
    /// Free in pools, and the pool of the request is not known.
    UnknownPool,
    /// Freed, and waiting for work on another stream.
    Pending,
    /// In use outside this allocator.
    Outside,
}
