//! An iteration that needs more than those before it, because its input is larger.

use std::ops::Range;

use serde::Serialize;

use super::growth::median;
use super::requests::RequestId;
use super::{ProgramLoops, Requests};
use crate::base::warning::words;
use crate::stacks::frames::CodeLocation;

/// An iteration is unusual if it needs at least this percentage of the usual memory.
const MIN_UNUSUAL_PERCENT: u64 = 110;

/// Among inputs that vary, one is an exception if its iteration needs at least this multiple of the earlier ones.
const MIN_SINGLE_RATIO: u64 = 2;

/// Fewer inputs may be in ascending order by chance.
const MIN_GROWING: usize = 3;

words! {
    /// How the inputs of iterations change
    pub enum InputChange {
        /// They become larger from iteration to iteration
        Growing = "growing",
        /// They vary
        Varying = "varying",
        /// Only that of the failed iteration is much larger than those before
        Single = "single",
    }
}

/// An iteration that needs more memory than those before it at the same request, because its input is larger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnusualInput {
    /// How inputs change from iteration to iteration.
    pub change: InputChange,
    /// Bytes of the first request of the iteration whose size differs: its input.
    pub input_bytes: u64,
    /// The median of its bytes in the iterations before.
    pub usual_input_bytes: u64,
    /// The maximum of its bytes in the iterations before.
    pub most_input_bytes: u64,
    /// Peak of allocated bytes in this iteration beyond those at its start, up to the failed request.
    pub needed_bytes: u64,
    /// The maximum of the same up to the same request in the iterations before.
    pub most_bytes: u64,
    /// Number of iterations before.
    pub iterations: u64,
    /// The training step of the failed iteration, counted from 0; absent if iterations are not training steps, or if the
    /// recording lacks the first ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// The line of its input.
    pub location: CodeLocation,
}

impl UnusualInput {
    /// Bytes that no iteration before needed.
    pub fn excess_bytes(&self) -> u64 {
        self.needed_bytes.saturating_sub(self.most_bytes)
    }
}

impl ProgramLoops {
    /// The input of the last iteration, if it is the reason why the iteration needs more than the ones before. `step_at`
    /// and `location_of` are the training step and the line of an entry.
    pub fn unusual_input(
        &self,
        step_at: impl Fn(usize) -> Option<u32>,
        location_of: impl Fn(usize) -> CodeLocation,
    ) -> Option<UnusualInput> {
        let iterations =
            self.iterations.as_ref().filter(|iterations| iterations.complete() > 1 && !iterations.is_inner)?;
        let requests = &self.requests;
        let start = iterations.start();
        let len = requests.count() - start;
        // Up to the same request.
        let before = (0..iterations.complete()).map(|index| iterations.range(index));
        let before = before.map(|range| range.start..range.end.min(range.start + len));
        let needed_bytes = requests.needed_in(start..requests.count());
        let needs: Vec<u64> = before.clone().map(|range| requests.needed_in(range)).collect();
        let most_bytes = needs.iter().copied().max()?;
        let usual_bytes = median(needs);
        if needed_bytes <= most_bytes || !is_unusual(usual_bytes, needed_bytes) {
            return None;
        }
        let mut requests_with_sizes = (start..requests.count()).map(|request| {
            let same = before.clone().map(|range| range.start + (request - start));
            let same = same.filter(|before| requests.site(*before) == requests.site(request));
            (request, same.map(|before| requests.bytes(before)).collect::<Vec<u64>>())
        });
        let (input, sizes) =
            requests_with_sizes.find(|(request, sizes)| requests.bytes(*request) != median(sizes.clone()))?;
        let input_bytes = requests.bytes(input);
        let most_input_bytes = sizes.iter().copied().max()?;
        let is_constant = sizes.iter().all(|bytes| *bytes == most_input_bytes);
        let change = match () {
            () if is_constant || needed_bytes >= most_bytes.saturating_mul(MIN_SINGLE_RATIO) => InputChange::Single,
            () if sizes.len() >= MIN_GROWING && sizes.is_sorted() => InputChange::Growing,
            () => InputChange::Varying,
        };
        let usual_input_bytes = median(sizes);
        let is_reason = input_bytes > most_input_bytes && is_unusual(usual_input_bytes, input_bytes);
        let iterations_before = iterations.complete() as u64;
        // An iteration may start in the step before, with the requests of its optimizer.
        let first_input = iterations.starts()[0] + (input - start);
        let [first, step] = [first_input, input].map(|request| step_at(requests.entry(request)).map(u64::from));
        is_reason.then(|| UnusualInput {
            change,
            input_bytes,
            usual_input_bytes,
            most_input_bytes,
            needed_bytes,
            most_bytes,
            iterations: iterations_before,
            step: step.filter(|step| first.is_some_and(|first| step - first == iterations_before)),
            location: location_of(requests.entry(input)),
        })
    }
}

fn is_unusual(usual: u64, now: u64) -> bool {
    now.saturating_mul(100) >= usual.saturating_mul(MIN_UNUSUAL_PERCENT)
}

impl Requests {
    /// Peak of the live bytes during the requests of `range`, beyond those at its start.
    pub(super) fn needed_in(&self, range: Range<RequestId>) -> u64 {
        let at_start = self.live_before(range.start);
        let live = range.map(|request| self.live_before(request).saturating_add_unsigned(self.bytes(request)));
        u64::try_from(live.max().unwrap_or(0).saturating_sub(at_start)).unwrap_or(0)
    }
}
