//! Predicts the rest of the iteration that failed, and the iterations after it, by repeating complete ones.
//!
//! A later iteration makes the requests of its template, the last complete iteration, at the same offsets. Sizes follow
//! the trend of their offset. Frees follow the template as well: where it freed the block of an offset, the later
//! iteration frees its own block of that offset, the counterpart. A backward pass is different: it frees the blocks of
//! one call site from the latest to the earliest, so each iteration frees an older block than the last.

use std::ops::Range;

use super::history::IterationHistory;
use super::laws::{MAX_ERROR, Trend, is_constant};
use super::program_index::ProgramIndex;
use super::writer::ContinuationWriter;
use crate::study::iterations::{CallSites, Iterations, Repetition, RequestId, Requests};
use crate::whatif::outcome::WhyUnknown;

/// Sizes kept for each request of an iteration.
const KEPT_SIZES: usize = 4;
/// Maximum number of predicted requests of a program whose memory grows: every setting replays them all. One iteration
/// is always predicted.
const MAX_GROWING_REQUESTS: usize = 40_000;
/// At most 1/this of the predicted bytes may come from laws without support.
const MAX_UNSURE_PARTS: u64 = 10;

/// How sizes go on after the iteration that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextSizes {
    /// Sizes are constant or follow a trend.
    Regular,
    /// They vary without a rule; this iteration stands for the next.
    Irregular,
    /// Sizes differ for the first time; this iteration is repeated.
    NewSize,
}

/// The parts of a prediction, in numbers of requests after the failed one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Parts {
    /// Up to the end of the iteration that failed.
    pub(super) rest: usize,
    /// Up to the end of the next iteration.
    pub(super) one_more: usize,
    /// Leading requests whose sizes follow from laws.
    pub(super) sure: usize,
    /// The total of the requests is known, but not their number.
    pub(super) is_rough: bool,
    /// Why later ones are unsure, or not predicted.
    pub(super) limit: Option<WhyUnknown>,
}

/// Predicts what follows the last of `requests`.
pub(super) struct SteadyPredictor<'r, 'w, 'a> {
    requests: &'r Requests,
    index: &'r ProgramIndex,
    iterations: &'r Iterations,
    history: IterationHistory,
    writer: &'w mut ContinuationWriter<'r, 'a>,
    /// Blocks by iteration and offset; row 0 is the iteration that failed. `None` for requests made only once.
    blocks: Vec<Vec<Option<RequestId>>>,
    /// Sizes by offset, oldest first.
    series: Vec<Vec<u64>>,
    failed: RequestId,
}

impl<'r, 'w, 'a> SteadyPredictor<'r, 'w, 'a> {
    /// `None` if no earlier iteration has made the same requests as the last one so far.
    pub(super) fn new(
        requests: &'r Requests,
        index: &'r ProgramIndex,
        iterations: &'r Iterations,
        sites: &CallSites,
        writer: &'w mut ContinuationWriter<'r, 'a>,
    ) -> Option<Self> {
        let history = IterationHistory::new(requests, iterations, sites, &index.older_blocks)?;
        let failed = requests.count() - 1;
        let blocks = vec![(iterations.start()..=failed).map(Some).collect()];
        Some(Self { requests, index, iterations, history, writer, blocks, series: Vec::new(), failed })
    }

    /// Predicts the rest of the iteration that failed and the one after it; with `reach`, further ones until more bytes
    /// are live.
    pub(super) fn predict(mut self, sites: &CallSites, reach: Option<u64>) -> Parts {
        let (len, done) = (self.history.len, self.failed - self.iterations.start() + 1);
        let (now, is_rest_sure) = self.current_sizes();
        let made_once = self.made_once(sites);
        let (is_copy, repeated) = (self.is_copy(done), self.repeated(done, &made_once));
        let wanted = if reach.is_some() { usize::MAX } else { 1 };
        let further = if self.iterations.is_inner { self.sure_turns() } else { Some(wanted) };
        self.repeat_frees(0, done - 1);
        for (offset, bytes) in now.iter().enumerate().skip(done) {
            self.repeat_request(0, offset, *bytes, &made_once);
        }
        let rest = self.predicted();
        let (next_sizes, trend) = self.next_sizes(&now);
        let series =
            (0..len).map(|offset| self.history.sizes(offset).iter().rev().copied().chain([now[offset]]).collect());
        self.series = series.collect();
        let mut one_more = rest;
        for iteration in 1..=further.unwrap_or(0) {
            let is_full = reach.is_some_and(|reach| self.writer.live_bytes > reach);
            if iteration > 1 && (self.predicted() + len > MAX_GROWING_REQUESTS || is_full) {
                break;
            }
            self.blocks.push(Vec::with_capacity(len));
            for (offset, bytes) in now.iter().enumerate() {
                let bytes = if next_sizes == NextSizes::Regular { self.next_size(offset, trend) } else { *bytes };
                self.repeat_request(iteration, offset, bytes, &made_once);
            }
            if iteration == 1 {
                one_more = self.predicted();
            }
        }
        let is_shown = further.is_some() || !self.history.has_stackless();
        let requests = self.predicted();
        if self.iterations.is_inner {
            let is_sure = is_rest_sure && is_shown && is_copy && next_sizes == NextSizes::Regular;
            let sure = if is_sure { requests } else { 0 };
            let limit = Some(WhyUnknown::FirstIteration);
            return Parts { rest: requests, one_more: requests, sure, is_rough: false, limit };
        }
        let Repetition { period, matched } = self.iterations.repetition;
        let is_whole_match = !self.iterations.is_uniform || matched >= period || done >= period;
        let (sure, limit) = match () {
            () if !is_rest_sure => (0, Some(WhyUnknown::NewSizes)),
            () if !is_whole_match => (0, Some(WhyUnknown::SingleIteration)),
            () if next_sizes == NextSizes::Irregular => (rest, Some(WhyUnknown::IrregularSizes)),
            () if self.iterations.complete() < 2 => (repeated.min(rest), Some(WhyUnknown::SingleIteration)),
            () => (requests, None),
        };
        Parts { rest, one_more, sure, is_rough: false, limit }
    }

    /// The sizes of the iteration that failed, recorded and then predicted, and whether laws support the prediction.
    fn current_sizes(&self) -> (Vec<u64>, bool) {
        let recorded = self.iterations.start()..=self.failed;
        let mut sizes: Vec<u64> = recorded.map(|request| self.requests.bytes(request)).collect();
        let observed = self.history.observe(sizes.iter().copied().enumerate());
        let (mut rest_bytes, mut unsure_bytes) = (0u64, 0u64);
        for offset in sizes.len()..self.history.len {
            let size = self.history.predict(offset, &observed);
            sizes.push(size.bytes);
            rest_bytes = rest_bytes.saturating_add(size.bytes);
            unsure_bytes = unsure_bytes.saturating_add(if size.is_sure { 0 } else { size.bytes });
        }
        (sizes, unsure_bytes.saturating_mul(MAX_UNSURE_PARTS) <= rest_bytes)
    }

    /// Number of requests to repeat before the first whose block stays live, which the program may have made only once.
    fn repeated(&self, done: usize, made_once: &[bool]) -> usize {
        if self.iterations.complete() > 1 {
            return usize::MAX;
        }
        if !self.is_copy(done) {
            return 0;
        }
        let repeated = (done..self.history.len).filter(|offset| !made_once[*offset]);
        let stays = repeated.clone().position(|offset| self.writer.is_live(self.source(offset)));
        stays.unwrap_or_else(|| repeated.count())
    }

    /// Whether requests and frees so far equal those of the only complete iteration (in an inner loop: of the previous turn).
    /// If the rest of the iteration frees blocks, the compared part must have frees, too.
    fn is_copy(&self, done: usize) -> bool {
        let start = self.iterations.start();
        let source = self.source(0);
        let is_same = (0..done).all(|offset| {
            self.requests.bytes(source + offset) == self.requests.bytes(start + offset)
                // The frees after the failed request are not recorded.
                && (offset + 1 == done || self.freed_in(source, offset) == self.freed_in(start, offset))
        });
        let first_free = (0..self.history.len).find(|offset| self.freed_in(source, *offset) > 0);
        is_same && first_free.is_none_or(|offset| offset < done - 1)
    }

    /// Number of blocks of the iteration from request `first` on that are freed after its request at `offset`.
    fn freed_in(&self, first: RequestId, offset: usize) -> usize {
        self.index.freed_after(first + offset).filter(|block| *block >= first).count()
    }

    /// Minimum number of further turns of the backward pass. Each frees the blocks of one turn of the forward pass, the latest
    /// first. The last turn is not counted: it may differ, because inputs need no gradient. `None` without such frees, or if
    /// the current turn may be the last.
    fn sure_turns(&self) -> Option<usize> {
        let mut frees: Vec<(RequestId, usize)> = Vec::new();
        for offset in 0..self.history.len {
            let source = self.source(offset);
            let earlier = self.frees_one_earlier(source).unwrap_or_default();
            let pairs = self.index.freed_after(source).zip(earlier);
            let older = pairs.filter(|(block, before)| self.is_descending(*block, *before));
            frees.extend(older.map(|(block, before)| (block, before - block)));
        }
        if frees.is_empty() {
            return None;
        }
        let turns = (1..self.requests.count()).take_while(|turn| {
            frees.iter().all(|(block, distance)| self.live_before(*block, *distance, turn + 1).is_some())
        });
        turns.count().checked_sub(1)
    }

    /// Whether freeing `before` in one iteration and `block` in the next walks backwards, as a backward pass does.
    fn is_descending(&self, block: RequestId, before: RequestId) -> bool {
        let start = self.source(0);
        block < start && block < before && self.requests.site(block) == self.requests.site(before)
    }

    /// The block that is `times` the `distance` older than `block`, if it is live and of the same call site.
    fn live_before(&self, block: RequestId, distance: usize, times: usize) -> Option<RequestId> {
        let next = block.checked_sub(distance.checked_mul(times)?)?;
        let is_same_site = self.requests.site(next) == self.requests.site(block);
        (is_same_site && self.writer.is_live(next)).then_some(next)
    }

    /// Number of requests after the failed one.
    fn predicted(&self) -> usize {
        self.writer.len() - 1 - self.failed
    }

    /// Whether the only complete iteration allocated optimizer state, which happens once, at each offset.
    fn made_once(&self, sites: &CallSites) -> Vec<bool> {
        let is_only_one = self.iterations.complete() == 1;
        let made_once = self.iterations.range(self.history.source).map(|request| {
            let site = self.requests.site(request);
            is_only_one && self.writer.is_live(request) && sites.is_in_optimizer(site)
        });
        made_once.collect()
    }

    /// How sizes go on, and the trend of their total.
    fn next_sizes(&self, now: &[u64]) -> (NextSizes, Trend) {
        let mut totals = self.history.totals();
        let varied_before = !self.iterations.is_uniform || !is_constant(&totals);
        totals.push(now.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes)));
        let (trend, error) = Trend::of_series(&totals);
        let next = match () {
            () if self.iterations.is_uniform && error < MAX_ERROR => NextSizes::Regular,
            () if varied_before => NextSizes::Irregular,
            () => NextSizes::NewSize,
        };
        (next, trend)
    }

    /// The size at `offset` in the next iteration, which is added to its series.
    fn next_size(&mut self, offset: usize, trend: Trend) -> u64 {
        let series = &mut self.series[offset];
        let last = series.last().copied().unwrap_or(0);
        let next = if is_constant(&series[series.len().saturating_sub(KEPT_SIZES)..]) {
            last
        } else {
            trend.next(series).filter(|bytes| *bytes > 0).map_or(last, |bytes| bytes.div_ceil(512) * 512)
        };
        series.push(next);
        if series.len() > KEPT_SIZES {
            series.remove(0);
        }
        next
    }

    /// The recorded request that `offset` of an iteration repeats.
    fn source(&self, offset: usize) -> RequestId {
        self.iterations.starts()[self.history.source] + offset
    }

    /// Repeats the template's request at `offset`, and the frees after it.
    fn repeat_request(&mut self, iteration: usize, offset: usize, bytes: u64, made_once: &[bool]) {
        if made_once.get(offset) == Some(&true) {
            self.blocks[iteration].push(None);
            return;
        }
        let source = self.source(offset);
        let block = self.writer.request(source, bytes);
        self.blocks[iteration].push(Some(block));
        self.repeat_frees(iteration, offset);
    }

    /// Repeats what followed the request at `offset` of the last complete iteration.
    fn repeat_frees(&mut self, iteration: usize, offset: usize) {
        let source = self.source(offset);
        let earlier = self.frees_one_earlier(source);
        let mut free_count = 0;
        for op in self.index.ops_after(source) {
            self.writer.release(op);
            let Some(block) = self.index.freed_by(op) else { continue };
            let before = earlier.as_ref().and_then(|earlier| earlier.get(free_count)).copied();
            free_count += 1;
            if let Some(freed) = self.block_to_free(block, before, iteration) {
                self.writer.free(freed, op);
            }
        }
    }

    /// The blocks freed after the request one iteration before `source`, if as many are freed after `source`.
    fn frees_one_earlier(&self, source: RequestId) -> Option<Vec<RequestId>> {
        let is_known = self.iterations.is_uniform && self.iterations.complete() > 1;
        let earlier = source.checked_sub(self.history.len).filter(|_| is_known)?;
        let earlier: Vec<RequestId> = self.index.freed_after(earlier).collect();
        (self.index.freed_after(source).count() == earlier.len()).then_some(earlier)
    }

    /// The block that `iteration` frees, where its template freed `block` and the iteration before the template `before`.
    fn block_to_free(&mut self, block: RequestId, before: Option<RequestId>, iteration: usize) -> Option<RequestId> {
        if let Some(before) = before.filter(|before| self.is_descending(block, *before)) {
            // A backward pass: each iteration frees a block that is older by the same distance.
            return self.live_before(block, before - block, iteration + 1);
        }
        self.counterpart(block, iteration).filter(|found| self.writer.is_live(*found))
    }

    /// The block of `iteration`, or of one before it, that corresponds to the template's `block`.
    fn counterpart(&self, block: RequestId, iteration: usize) -> Option<RequestId> {
        let starts = self.iterations.starts();
        let own = starts.partition_point(|start| *start <= block).checked_sub(1)?;
        let offset = block - starts[own];
        // How many iterations before `iteration`.
        let back = self.history.source.checked_sub(own)?;
        let site = self.requests.site(block);
        let Some(row) = iteration.checked_sub(back) else {
            let requests = self.iterations.range(self.iterations.complete().checked_sub(back - iteration)?);
            let at_offset = requests.clone().nth(offset).filter(|request| self.requests.site(*request) == site);
            return at_offset.or_else(|| self.same_occurrence(block, starts[own], requests));
        };
        let (blocks, source) = (&self.blocks[row], self.source(0));
        let at = if self.requests.site(source + offset) == site {
            offset
        } else {
            self.same_occurrence(block, starts[own], source..source + blocks.len())? - source
        };
        *blocks.get(at)?
    }

    /// The request in `range` of the same call site as `block`, with as many of that site before it in the range as
    /// before `block` since `start`.
    fn same_occurrence(&self, block: RequestId, start: RequestId, range: Range<RequestId>) -> Option<RequestId> {
        let site = self.requests.site(block);
        let ordinal = (start..block).filter(|request| self.requests.site(*request) == site).count();
        range.filter(|request| self.requests.site(*request) == site).nth(ordinal)
    }
}
