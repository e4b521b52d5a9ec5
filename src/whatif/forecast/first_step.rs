//! The rest of the first optimizer step: its operations for each parameter whose turn is still to come.

use std::ops::Range;

use super::history::in_proportion;
use super::laws::{is_constant, scale};
use super::program_index::ProgramIndex;
use super::steady::Parts;
use super::writer::ContinuationWriter;
use crate::base::intern::SeededMap;
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

    /// The turns whose requests are all known. A first turn that fails is known up to its failed request.
    fn known(&self) -> Range<usize> {
        0..(self.count - 1).max(1)
    }

    /// The size of request `offset` in the turn of a parameter whose first request has `lead` bytes.
    fn size(&self, offset: usize, lead: u64) -> u64 {
        if let Some(turn) = self.known().find(|turn| self.lead(*turn) == lead) {
            return self.requests.bytes(self.start(turn) + offset);
        }
        let sizes: Vec<u64> = self.known().map(|turn| self.requests.bytes(self.start(turn) + offset)).collect();
        let leads: Vec<u64> = self.known().map(|turn| self.lead(turn)).collect();
        // Parameters of one size show no law: their state is as large as they are.
        let law = if is_constant(&leads) { None } else { scale(&sizes, &leads, lead) };
        law.unwrap_or_else(|| in_proportion(sizes[sizes.len() - 1], lead, leads[leads.len() - 1]))
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

/// Predicts the turns of the remaining parameters.
///
/// # Errors
/// The program is not in the first step of an optimizer.
pub(super) fn predict_first_step(
    index: &ProgramIndex,
    requests: &Requests,
    inner: Option<Repetition>,
    sites: &CallSites,
    writer: &mut ContinuationWriter<'_, '_>,
) -> Result<Parts, WhyUnknown> {
    let failed = requests.count() - 1;
    let earlier_sites = requests.sites().iter().rev().skip_while(|site| sites.is_in_optimizer(**site));
    let step = earlier_sites.clone().count();
    let (first, period) = match inner.filter(|inner| inner.period <= failed + 1 - step && inner.matched > 0) {
        Some(Repetition { period, matched }) => (failed + 1 - (period + matched).min(failed + 1), period),
        // A first turn has nothing to repeat. It is one if no earlier request was made in an optimizer.
        None if step <= failed && !earlier_sites.clone().any(|site| sites.is_in_optimizer(*site)) => {
            (step, failed + 1 - step)
        }
        None => return Err(WhyUnknown::NoLoop),
    };
    let turns = Turns { index, requests, first, period, count: (failed + 1 - first).div_ceil(period) };
    let remaining = remaining_parameters(&turns, sites);
    let current = turns.start(turns.count - 1);
    let offset = failed - current;
    // The earlier turn that is most like this one so far.
    let like = turns.known().max_by_key(|turn| {
        let sizes = (0..=offset).map(|at| (requests.bytes(turns.start(*turn) + at), requests.bytes(current + at)));
        (sizes.filter(|(before, now)| before == now).count(), *turn)
    });
    let like = like.unwrap_or(0);
    let mut blocks: Vec<RequestId> = (current..=failed).collect();
    turns.repeat_frees((like, offset), &blocks, writer);
    let lead = turns.lead(turns.count - 1);
    for at in offset + 1..period {
        turns.repeat_request((like, at), lead, &mut blocks, writer);
    }
    for lead in &remaining.sizes {
        blocks.clear();
        for at in 0..period {
            turns.repeat_request((turns.known().end - 1, at), *lead, &mut blocks, writer);
        }
    }
    let sure = writer.len() - 1 - failed;
    // A first turn does not show how many requests follow its failed one, nor do turns in an unknown order.
    let is_rough = turns.count == 1 || !remaining.is_in_order && !remaining.sizes.is_empty();
    Ok(Parts { rest: sure, one_more: sure, sure, is_rough, limit: Some(WhyUnknown::FirstIteration) })
}

/// The parameters that have not had their turn; none if the turns are not those of parameters.
#[derive(Default)]
struct Remaining {
    sizes: Vec<u64>,
    /// In the order of their turns, as far as sizes show it.
    is_in_order: bool,
}

fn remaining_parameters(turns: &Turns<'_>, sites: &CallSites) -> Remaining {
    let requests = turns.requests;
    let failed = requests.count() - 1;
    let mut calls =
        (0..failed).filter(|request| sites.has_frame(requests.site(*request), |frame| frame.is_module_call));
    let first_call = calls.next().unwrap_or(failed);
    // Only parameters with a gradient have turns.
    let mut gradients: SeededMap<u64, usize> = SeededMap::default();
    for request in (first_call..turns.first).filter(|request| requests.is_live_at(*request, failed)) {
        if !sites.has_python(requests.site(request)) {
            *gradients.entry(requests.bytes(request)).or_default() += 1;
        }
    }
    // Inputs are no parameters.
    let parameters = (0..first_call)
        .filter(|request| requests.is_live_at(*request, failed))
        .filter(|request| sites.has_frame(requests.site(*request), |frame| frame.is_torch_or_constructor))
        .map(|request| requests.bytes(request));
    // The latest first, because the first layers are frozen, if any.
    let trained = parameters.rev().filter(|bytes| {
        let left = gradients.get_mut(bytes).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    });
    let mut trained: Vec<u64> = trained.collect();
    trained.reverse();
    let leads: Vec<u64> = (0..turns.count).map(|turn| turns.lead(turn)).collect();
    if trained.starts_with(&leads) {
        return Remaining { sizes: trained.split_off(leads.len()), is_in_order: true };
    }
    // Groups of an optimizer have another order. Sizes that had their turn are of the group that has it now.
    for lead in &leads {
        let Some(at) = trained.iter().position(|bytes| bytes == lead) else { return Remaining::default() };
        trained.remove(at);
    }
    trained.sort_by_cached_key(|bytes| !leads.contains(bytes)); // stable
    Remaining { sizes: trained, is_in_order: false }
}
