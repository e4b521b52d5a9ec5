//! The rest of the first optimizer step: what it does for each parameter, for those that have not had their turn.

use super::history::in_proportion;
use super::laws::scale;
use super::program_index::ProgramIndex;
use super::writer::ContinuationWriter;
use crate::base::intern::SeededSet;
use crate::study::iterations::{CallSites, Repetition, RequestId, Requests};
use crate::whatif::outcome::WhyUnknown;

/// Turns of an optimizer step, one parameter after the other.
struct Turns<'r> {
    index: &'r ProgramIndex,
    requests: &'r Requests,
    /// The first request of the first turn.
    first: RequestId,
    period: usize,
    /// Including the one that failed.
    count: usize,
}

impl Turns<'_> {
    fn start(&self, turn: usize) -> RequestId {
        self.first + turn * self.period
    }

    /// The bytes of a turn's first request.
    fn lead(&self, turn: usize) -> u64 {
        self.requests.bytes(self.start(turn))
    }

    /// The size of request `offset` in the turn of a parameter whose first request has `lead` bytes.
    fn size(&self, offset: usize, lead: u64) -> u64 {
        let earlier = 0..self.count - 1;
        if let Some(turn) = earlier.clone().find(|turn| self.lead(*turn) == lead) {
            return self.requests.bytes(self.start(turn) + offset);
        }
        let sizes: Vec<u64> = earlier.clone().map(|turn| self.requests.bytes(self.start(turn) + offset)).collect();
        let leads: Vec<u64> = earlier.map(|turn| self.lead(turn)).collect();
        let last = leads.last().copied().unwrap_or(1);
        scale(&sizes, &leads, lead).unwrap_or_else(|| in_proportion(sizes.last().copied().unwrap_or(lead), lead, last))
    }

    /// Repeats request `offset` of `turn` for a parameter whose first request has `lead` bytes, and the frees after it.
    fn repeat_request(
        &self,
        (turn, offset): (usize, usize),
        lead: u64,
        blocks: &mut Vec<RequestId>,
        writer: &mut ContinuationWriter<'_, '_>,
    ) {
        blocks.push(writer.request(self.start(turn) + offset, self.size(offset, lead)));
        self.repeat_frees((turn, offset), blocks, writer);
    }

    fn repeat_frees(
        &self,
        (turn, offset): (usize, usize),
        blocks: &[RequestId],
        writer: &mut ContinuationWriter<'_, '_>,
    ) {
        let start = self.start(turn);
        for op in self.index.ops_after(start + offset) {
            let freed = self.index.freed_by(op).and_then(|block| block.checked_sub(start));
            if let Some(block) = freed.and_then(|at| blocks.get(at)) {
                writer.free(*block, op);
            }
        }
    }
}

/// Predicts the turns of the remaining parameters, and returns the number of requests.
///
/// # Errors
/// The program is not in the first step of an optimizer.
pub(super) fn predict_first_step(
    index: &ProgramIndex,
    requests: &Requests,
    inner: Repetition,
    sites: &CallSites,
    writer: &mut ContinuationWriter<'_, '_>,
) -> Result<usize, WhyUnknown> {
    let failed = requests.count() - 1;
    let Repetition { period, matched } = inner;
    let is_in_optimizer = |request: RequestId| sites.has_frame(requests.site(request), |frame| frame.is_optimizer);
    if !(failed + 1 - period..=failed).all(is_in_optimizer) {
        return Err(WhyUnknown::NoLoop);
    }
    let first = failed + 1 - (period + matched).min(failed + 1);
    let turns = Turns { index, requests, first, period, count: (failed + 1 - first).div_ceil(period) };
    if turns.count < 2 {
        return Err(WhyUnknown::NoLoop);
    }
    let remaining = remaining_parameters(&turns, sites);
    let current = turns.start(turns.count - 1);
    let offset = failed - current;
    // The earlier turn that is most like this one so far.
    let equal = |turn: &usize| {
        let sizes = (0..=offset).map(|at| (requests.bytes(turns.start(*turn) + at), requests.bytes(current + at)));
        sizes.filter(|(before, now)| before == now).count()
    };
    let like = (0..turns.count - 1).max_by_key(|turn| (equal(turn), *turn)).unwrap_or(0);
    let mut blocks: Vec<RequestId> = (current..=failed).collect();
    turns.repeat_frees((like, offset), &blocks, writer);
    let lead = turns.lead(turns.count - 1);
    for at in offset + 1..period {
        turns.repeat_request((like, at), lead, &mut blocks, writer);
    }
    for lead in remaining.unwrap_or_default() {
        blocks.clear();
        for at in 0..period {
            turns.repeat_request((turns.count - 2, at), lead, &mut blocks, writer);
        }
    }
    Ok(writer.len() - 1 - failed)
}

/// The sizes of the parameters that have not had their turn; `None` if the turns are not those of parameters.
fn remaining_parameters(turns: &Turns<'_>, sites: &CallSites) -> Option<Vec<u64>> {
    let requests = turns.requests;
    let failed = requests.count() - 1;
    let is_call = |request: &RequestId| sites.has_frame(requests.site(*request), |frame| frame.is_module_call);
    let first_call = (0..failed).find(is_call).unwrap_or(failed);
    let stays = |request: &RequestId| requests.freed_after(*request) as usize >= failed;
    // Inputs are no parameters.
    let is_model =
        |request: &RequestId| sites.has_frame(requests.site(*request), |frame| frame.is_torch_or_constructor);
    let parameters = (0..first_call).filter(stays).filter(is_model).map(|request| requests.bytes(request));
    let parameters: Vec<u64> = parameters.collect();
    // Only parameters with a gradient have turns.
    let is_gradient = |request: &RequestId| !sites.has_python(requests.site(*request));
    let gradients = (first_call..turns.first).filter(stays).filter(is_gradient).map(|request| requests.bytes(request));
    let known: SeededSet<u64> = parameters.iter().copied().collect();
    let mut gradients: Vec<u64> = gradients.filter(|bytes| known.contains(bytes)).collect();
    gradients.sort_unstable();
    let start = parameters.len().checked_sub(gradients.len())?;
    let trained = &parameters[start..];
    let mut by_size = trained.to_vec();
    by_size.sort_unstable();
    if by_size != gradients {
        return None;
    }
    let mut leads = (0..turns.count).map(|turn| turns.lead(turn));
    let is_in_order = leads.by_ref().zip(trained).all(|(lead, bytes)| lead == *bytes);
    (is_in_order && turns.count <= trained.len()).then(|| trained[turns.count..].to_vec())
}
