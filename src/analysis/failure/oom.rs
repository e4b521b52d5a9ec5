//! The report on a failed request.

use std::ops::Deref;

use serde::Serialize;

use super::failed::FailureFacts;
use super::judged::judge;
use super::judged_request::JudgedRequest;
use super::outlook::Outlook;
use super::remedies::{RecordedReplay, Remedy, TrialResults};
use crate::base::details::promised;
use crate::study::DeviceStudy;
use crate::study::attribution::MemoryBreakdown;
use crate::study::iterations::UnusualInput;
use crate::whatif::JobOutcome;
use crate::whatif::forecast::Forecast;

/// A failed request: an `oom` entry of a trace. A [`JudgedRequest`] with replays.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(remote = "Self")]
pub struct OomReport {
    /// The request, the memory and the verdict.
    #[serde(flatten)]
    pub request: JudgedRequest,
    /// The input of the failed iteration, if that is why the iteration needs more than those before; only for a failure
    /// that ended a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unusual_input: Option<UnusualInput>,
    /// No request follows in the trace, and those that would have are not known: the verdict is about this request alone.
    pub is_rest_unknown: bool,
    /// The replay under the recorded settings; absent if the model does not reproduce the trace or no setting was
    /// tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_recorded: Option<RecordedReplay>,
    /// Replays under other settings, those that avoid the failure first; only for the last 16 failures of a trace that
    /// the model reproduces.
    pub remedies: Vec<Remedy>,
    /// Attribution of the memory; only for the last failure of a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<MemoryBreakdown>,
}

promised! {
    OomReport {
        event, time_us, requested_bytes, segment_bytes, shortfall_bytes, stream, pool_id, device_free_bytes, reserved_bytes,
        allocated_bytes, cached_bytes, largest_free_block_bytes, verdict, verdict_reason, confidence, culprit, called_from,
        backward, operation, frames, frames_left_out, held,
    }
}

impl Deref for OomReport {
    type Target = JudgedRequest;

    fn deref(&self) -> &JudgedRequest {
        &self.request
    }
}

/// Evidence about a failed request, other than the memory at that time.
#[derive(Default)]
pub(super) struct FailureContext<'p> {
    /// Replays under other settings.
    pub(super) trials: TrialResults,
    /// No request follows in the trace.
    pub(super) ends_trace: bool,
    /// The requests that follow, for a failure that ended the trace.
    pub(super) forecast: Option<&'p Forecast<'p>>,
    /// Attribution of the memory, for the last failure of a trace.
    pub(super) held: Option<MemoryBreakdown>,
    /// The model reproduces the recording.
    pub(super) is_reproduced: bool,
    /// A line grows with every step.
    pub(super) grows: bool,
}

impl OomReport {
    pub(super) fn new(device: DeviceStudy<'_, '_>, failed: FailureFacts, context: FailureContext<'_>) -> Self {
        let FailureContext { trials, ends_trace, forecast, held, is_reproduced, grows } = context;
        let outlook = if ends_trace { Outlook::after_failure(device, &failed, forecast) } else { Outlook::default() };
        let judgement = judge(device, &failed, &trials, &outlook, [is_reproduced, grows]);
        let is_known = |remedy: &Remedy| {
            remedy.avoids_oom && matches!(remedy.then, JobOutcome::GoesOn { .. } | JobOutcome::FailsAgain { .. })
        };
        Self {
            is_rest_unknown: ends_trace && !trials.remedies.iter().any(is_known),
            request: JudgedRequest::new(device, failed, &judgement, outlook),
            unusual_input: forecast.and_then(|known| known.unusual_input.clone()),
            as_recorded: trials.as_recorded,
            remedies: trials.remedies,
            held,
        }
    }
}
