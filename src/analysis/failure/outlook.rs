//! What would have come after a failed request: one more step, and where growth from step to step leads.

use serde::Serialize;

use super::failed::Failed;
use crate::replay::ops::Continuation;
use crate::study::DeviceStudy;

/// Requests in a row that fill memory.
const LEAST_RUN: usize = 8;
/// See [`Filling::is_too_much`].
const PARTS_TO_COME: u64 = 4;
/// The same for that to explain a failure: that the step that fails holds most is no
/// wonder, and of seven random sizes the six before it are in rising order once in 720 times.
const STEPS_THAT_EXPLAIN: usize = 6;
/// Steps that must have held more with this request than the one before, with none that held less between them.
const LEAST_STEPS: usize = 3;

/// What the program would have asked for next: what it asked for after the same request one step before, up to
/// this request once more. In bytes of blocks of 512, as no setting makes fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NextStep {
    /// Requests.
    pub requests: u64,
    /// The most that the program would have held beyond what it held with the failed request.
    pub needed_bytes: u64,
    /// What the failed request would have left of the memory within reach; `None` where more than that was
    /// needed for it.
    pub spare_bytes: Option<u64>,
}

impl NextStep {
    /// Whether no layout serves it, however little it wastes.
    pub(super) fn is_too_much(self) -> bool {
        self.spare_bytes.is_some_and(|spare| self.needed_bytes > spare)
    }
}

/// What the program held with the same request, step for step, up to the failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Growth {
    /// Steps in a row of which none held less than the one before, and at least three more.
    pub steps: u64,
    /// By how much, on average.
    pub bytes_per_step: u64,
    /// By how much in all.
    pub bytes: u64,
    /// How many more steps what is left would have lasted; `None` where not even this request would have been
    /// served.
    pub steps_left: Option<u64>,
    /// Whether that is why the request failed: without it there would have been room for it, and with the room
    /// that no layout wastes the program would not have gone on for as many steps again.
    pub explains: bool,
}

/// Requests of the line that failed, one after the other up to the failure: it was filling memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Filling {
    /// How many.
    pub requests: u64,
    /// Bytes of them that were not freed since.
    pub bytes: u64,
    /// What the failed request would have left of the memory within reach.
    pub spare_bytes: u64,
}

impl Filling {
    /// Whether what is left is little beside what was taken: of a run whose end is not known more than a part is
    /// probably to come.
    pub(super) fn is_too_much(self) -> bool {
        self.spare_bytes < self.bytes / PARTS_TO_COME
    }

    fn of(device: DeviceStudy<'_, '_>, failed: &Failed, spare: u64) -> Option<Self> {
        let (stacks, request) = (device.stacks(), &failed.request);
        let line = stacks.user_frame(request.stack)?;
        let is_its = |stack| stack == request.stack || stacks.user_frame(stack) == Some(line);
        let (requests, bytes) = device.program().similar_requests_before(request.entry, is_its);
        let spare_bytes = spare;
        (requests >= LEAST_RUN).then_some(Self { requests: requests as u64, bytes, spare_bytes })
    }
}

/// What came to pass before, and what would have come after.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Outlook {
    pub(super) next_step: Option<NextStep>,
    pub(super) growth: Option<Growth>,
    pub(super) filling: Option<Filling>,
}

impl Outlook {
    /// After a request that `failed`, which lacked `missing` bytes: the last of `device`, from which `prolonged`
    /// goes on where that is known.
    pub(super) fn of(
        device: DeviceStudy<'_, '_>,
        failed: &Failed,
        prolonged: Option<&Continuation<'_>>,
        missing: u64,
    ) -> Self {
        let c = &failed.circumstances;
        // What a limit keeps from the process is not within reach.
        let is_limited = c.device_free.covers(c.segment_in_granules).is_likely();
        let free = if is_limited { 0 } else { failed.request.device_free };
        let reach = failed.totals.reserved.saturating_add(free);
        let Some(prolonged) = prolonged else {
            let held = failed.totals.allocated.saturating_add(failed.request.bytes);
            let spare = reach.checked_sub(held);
            let filling = spare.and_then(|spare| Filling::of(device, failed, spare));
            return Self { filling, ..Self::default() };
        };
        let held = prolonged.live_by_step.last().copied().unwrap_or(0);
        let spare = reach.checked_sub(held);
        let next_step = NextStep {
            requests: prolonged.added_requests as u64,
            needed_bytes: prolonged.peak_after.saturating_sub(held),
            spare_bytes: spare,
        };
        let growth = growth(&prolonged.live_by_step, spare, missing);
        Self { next_step: Some(next_step), growth, filling: None }
    }

    /// Whether the program would have failed again soon after, however little its memory's layout wastes.
    pub(super) fn is_dead_end(&self) -> bool {
        self.growth.is_some_and(|growth| growth.explains)
            || self.next_step.is_some_and(NextStep::is_too_much)
            || self.filling.is_some_and(Filling::is_too_much)
    }
}

/// How `held`, the bytes of each step, grew up to the last: steps in a row of which none held less than the one
/// before.
fn growth(held: &[u64], spare: Option<u64>, missing: u64) -> Option<Growth> {
    let pairs = || held.windows(2).rev().take_while(|pair| pair[1] >= pair[0]);
    // What came before it began is no growth.
    let steps = pairs().enumerate().filter(|(_, pair)| pair[1] > pair[0]).last()?.0 + 1;
    let rises = pairs().filter(|pair| pair[1] > pair[0]).count();
    let first = held.len().checked_sub(steps + 1)?;
    let bytes = held.last()?.saturating_sub(*held.get(first)?);
    let bytes_per_step = bytes.checked_div(steps as u64)?;
    let steps_left = spare.and_then(|spare| spare.checked_div(bytes_per_step));
    let is_short = steps_left.is_none_or(|left| left < steps as u64);
    (rises >= LEAST_STEPS).then_some(Growth {
        steps: steps as u64,
        bytes_per_step,
        bytes,
        steps_left,
        explains: rises >= STEPS_THAT_EXPLAIN && bytes >= missing && is_short,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_of_every_step_and_explains_what_it_outweighs() {
        assert_eq!(growth(&[10, 20, 30], Some(5), 1), None, "too few steps to tell");
        assert_eq!(growth(&[10, 20, 30, 40, 35, 35], Some(5), 1), None, "it ended");
        let every_other = growth(&[9, 9, 9, 10, 10, 20, 20, 30, 30], Some(5), 1).unwrap();
        assert_eq!((every_other.steps, every_other.bytes), (6, 21));
        let few = growth(&[50, 10, 20, 30, 40], Some(25), 20).unwrap();
        assert_eq!((few.steps, few.bytes_per_step, few.bytes), (3, 10, 30));
        assert_eq!((few.steps_left, few.explains), (Some(2), false));
        let held = [50, 10, 20, 30, 40, 50, 60, 70];
        assert!(growth(&held, Some(25), 20).unwrap().explains);
        assert!(!growth(&held, Some(25), 61).unwrap().explains, "it is too little");
        assert!(!growth(&held, Some(99), 5).unwrap().explains, "it had time");
        let beyond = growth(&held, None, 5).unwrap();
        assert_eq!((beyond.steps_left, beyond.explains), (None, true));
    }
}
