//! The questions behind a verdict, in order.

use super::{ApproxBytes, Likelihood, Verdict};
use crate::base::units::GIB;

/// Bytes that any CUDA process may use outside the allocator: the CUDA context, loaded kernels, workspaces of cuBLAS
/// and cuDNN. Usually 0.3 to 1 GiB, and less on small devices.
pub const USUAL_OUTSIDE: u64 = GIB;
/// [`USUAL_OUTSIDE`] counts for at most 1/8 of a device.
const USUAL_OUTSIDE_DIVISOR: u64 = 8;

/// The part of `all` memory in use outside the allocator that could be released: all but the usual overhead of a
/// process. `own` is the part that this process uses, if known.
pub fn reclaimable_outside(all: ApproxBytes, own: Option<ApproxBytes>, capacity: Option<ApproxBytes>) -> ApproxBytes {
    let most = capacity.map_or(USUAL_OUTSIDE, |all| USUAL_OUTSIDE.min(all.bytes / USUAL_OUTSIDE_DIVISOR));
    let usual = own.unwrap_or(all).bytes.min(most);
    all.saturating_sub(ApproxBytes::exact(usual))
}

/// Free memory of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FreeMemory {
    /// Free memory of any pool, size class and stream.
    pub all: ApproxBytes,
    /// The part in the request's pool, size class and stream, which could serve it without going through the device.
    pub in_place: ApproxBytes,
}

/// Memory when a request failed. Unknown amounts are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryAtFailure {
    /// The minimum size of a free block that serves the request.
    pub request: ApproxBytes,
    /// The segment that was requested from the device.
    pub segment: ApproxBytes,
    /// The same, rounded up to whole granules if segments are expandable.
    pub segment_in_granules: ApproxBytes,
    /// Free on the device.
    pub device_free: ApproxBytes,
    /// The largest free block in the request's own pool, size class and stream.
    pub largest: Option<ApproxBytes>,
    /// Free in the request's own pool and stream.
    pub own: FreeMemory,
    /// Free in segments of other streams of the same pool.
    pub other_stream: ApproxBytes,
    /// Free in other pools.
    pub other_pool: ApproxBytes,
    /// Freed by the program, but still in use on other streams.
    pub pending: FreeMemory,
    /// In use outside this allocator, and reclaimable (see [`reclaimable_outside`]).
    pub outside: ApproxBytes,
    /// Free memory that the default pool releases before a request fails, but that was not released. Set if the
    /// request may belong to another pool.
    pub unreleased: Option<ApproxBytes>,
    /// `own_pool` may include pending memory or that of other streams.
    pub own_includes_others: bool,
    /// Reclaimable outside memory, but no more than any busy device has. It counts only in the question whether all
    /// memory together would suffice.
    pub usual_reclaimable: ApproxBytes,
    /// Ask about `outside` first: it is the larger part, and the free cached memory may be in small pieces.
    pub is_outside_first: bool,
    /// Memory counted as free may have been pending.
    pub is_pending_unknown: bool,
}

/// The verdict, and how certain it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Diagnosis {
    /// The first question answered yes.
    pub verdict: Verdict,
    /// No unknown amount could change the verdict.
    pub is_certain: bool,
    /// Rounding of the numbers could change the verdict.
    pub within_rounding: bool,
}

impl MemoryAtFailure {
    /// Bytes that the device had to provide. If it had room for the segment, whole granules must have been missing.
    pub fn needed_from_device(&self) -> ApproxBytes {
        let has_room = [self.segment, self.segment_in_granules].map(|bytes| self.device_free.covers(bytes).is_likely());
        if has_room == [true, false] { self.segment_in_granules } else { self.segment }
    }

    /// Whether `more`, together with the free memory of the device, covers the bytes needed from the device.
    pub fn suffices_with_device(&self, more: ApproxBytes) -> Likelihood {
        if more.bytes == 0 {
            return Likelihood::No;
        }
        more.saturating_add(self.device_free).covers(self.needed_from_device())
    }

    /// Whether `free` would serve the request, in place or after going back to the device.
    fn suffices(&self, free: FreeMemory) -> Likelihood {
        // In place, a block smaller than a segment is enough.
        let in_place = if free.in_place.bytes == 0 { Likelihood::No } else { free.in_place.covers(self.request) };
        self.suffices_with_device(free.all).max(in_place)
    }

    /// Whether all free memory together would serve the request.
    fn all_together_suffices(&self) -> Likelihood {
        let cached = self.own.all.saturating_add(self.other_pool);
        let others = [self.other_stream, self.pending.all, self.outside, self.usual_reclaimable, self.device_free];
        let all = others.into_iter().fold(cached, ApproxBytes::saturating_add);
        all.covers(self.needed_from_device()).max(cached.covers(self.request))
    }

    /// Whether all free memory in one piece would not have served the request.
    pub fn is_exhausted(&self) -> bool {
        self.all_together_suffices() == Likelihood::No
    }

    fn questions(&self) -> [(Verdict, Likelihood); 7] {
        let mut questions = [
            (Verdict::MemoryLimit, self.device_free.covers(self.segment_in_granules)),
            (Verdict::Spurious, self.largest.map_or(Likelihood::No, |block| block.covers(self.request))),
            (Verdict::PendingFree, self.suffices(self.pending)),
            (Verdict::PrivatePool, self.suffices_with_device(self.other_pool)),
            (Verdict::OtherStream, self.suffices_with_device(self.other_stream)),
            (Verdict::Fragmentation, self.suffices(self.own)),
            (Verdict::NonPytorch, self.suffices_with_device(self.outside)),
        ];
        if self.is_outside_first {
            // `NonPytorch` moves to second place, after `MemoryLimit`.
            questions[1..].rotate_right(1);
        }
        questions
    }
}

/// The verdict: the first question that the memory answers yes.
pub fn decide(c: &MemoryAtFailure) -> Diagnosis {
    let questions = c.questions();
    let first_yes = questions.iter().position(|(_, answer)| answer.is_likely());
    let answered = questions.get(..=first_yes.unwrap_or(questions.len() - 1)).unwrap_or(&questions);
    let verdict = first_yes.and_then(|at| questions.get(at)).map_or(Verdict::Capacity, |question| question.0);
    let mut within_rounding = answered.iter().any(|(_, answer)| answer.is_within_rounding());
    let is_certain = match verdict {
        // Some of the memory may be of another kind, or the request may belong to the pool counted as another.
        Verdict::PrivatePool | Verdict::Fragmentation => !c.own_includes_others && !within_rounding,
        Verdict::Capacity if c.own_includes_others => {
            within_rounding |= c.all_together_suffices().is_within_rounding();
            c.is_exhausted()
        }
        _ => !within_rounding,
    };
    let is_about_free_memory = !matches!(verdict, Verdict::MemoryLimit | Verdict::NonPytorch | Verdict::Capacity);
    let verdict = match c.unreleased {
        Some(_) if verdict == Verdict::MemoryLimit => verdict,
        Some(bytes) if c.suffices_with_device(bytes).is_likely() => Verdict::PrivatePool,
        Some(_) => Verdict::Unknown,
        None if c.is_pending_unknown && is_about_free_memory => Verdict::Unknown,
        None => verdict,
    };
    Diagnosis { verdict, is_certain, within_rounding }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::MIB;

    fn mib(n: u64) -> ApproxBytes {
        ApproxBytes::exact(n * MIB)
    }

    fn free(all: ApproxBytes) -> FreeMemory {
        FreeMemory { all, ..FreeMemory::default() }
    }

    fn tight() -> MemoryAtFailure {
        let (request, device_free) = (mib(100), mib(10));
        let largest = Some(ApproxBytes::default());
        MemoryAtFailure {
            request,
            segment: request,
            segment_in_granules: request,
            device_free,
            largest,
            ..MemoryAtFailure::default()
        }
    }

    fn word(c: MemoryAtFailure) -> &'static str {
        decide(&c).verdict.word()
    }

    #[test]
    fn each_verdict_names_the_memory_that_would_have_sufficed() {
        let enough = mib(90);
        assert_eq!(word(tight()), "capacity");
        assert_eq!(word(MemoryAtFailure { device_free: mib(100), ..tight() }), "memory-limit");
        assert_eq!(word(MemoryAtFailure { largest: Some(mib(100)), ..tight() }), "spurious");
        assert_eq!(word(MemoryAtFailure { pending: free(enough), ..tight() }), "pending-free");
        assert_eq!(word(MemoryAtFailure { other_pool: enough, ..tight() }), "private-pool");
        assert_eq!(word(MemoryAtFailure { other_stream: enough, ..tight() }), "other-stream");
        assert_eq!(word(MemoryAtFailure { own: free(enough), ..tight() }), "fragmentation");
        assert_eq!(word(MemoryAtFailure { outside: enough, ..tight() }), "non-pytorch");
        let both = MemoryAtFailure { own: free(enough), other_stream: enough, ..tight() };
        assert_eq!(word(both), "other-stream", "the first question that is answered decides");
    }

    #[test]
    fn memory_limit_needs_room_for_whole_granules() {
        for (request, in_granules, device_free, verdict, needed) in [
            (300, 300, 310, "memory-limit", 300),
            (310, 320, 319, "capacity", 320),
            (310, 320, 300, "capacity", 310),
            (310, 320, 320, "memory-limit", 310),
        ] {
            let memory = MemoryAtFailure {
                request: mib(request),
                segment: mib(request),
                segment_in_granules: mib(in_granules),
                device_free: mib(device_free),
                ..tight()
            };
            assert_eq!((word(memory), memory.needed_from_device()), (verdict, mib(needed)));
        }
    }

    #[test]
    fn memory_that_is_a_byte_short_does_not_suffice() {
        let short = free(ApproxBytes::exact(90 * MIB - 1));
        assert_eq!(word(MemoryAtFailure { own: short, pending: short, ..tight() }), "capacity");
    }

    #[test]
    fn memory_in_place_may_be_smaller_than_a_segment() {
        let (request, segment, device_free) = (mib(9), mib(20), mib(0));
        let c = MemoryAtFailure { request, segment, segment_in_granules: segment, device_free, ..tight() };
        let in_place = FreeMemory { all: mib(12), in_place: mib(12) };
        assert_eq!(word(MemoryAtFailure { own: in_place, ..c }), "fragmentation");
        assert_eq!(word(MemoryAtFailure { pending: in_place, ..c }), "pending-free");
        let elsewhere = free(mib(12));
        let c = MemoryAtFailure { own: elsewhere, pending: elsewhere, other_pool: mib(12), ..c };
        assert_eq!(word(c), "capacity");
    }

    #[test]
    fn unrecorded_memory_gives_an_unknown_verdict() {
        let is_pending_unknown = true;
        let c = MemoryAtFailure { own: free(mib(90)), ..tight() };
        assert_eq!(word(c), "fragmentation");
        assert_eq!(word(MemoryAtFailure { is_pending_unknown, ..c }), "unknown");
        assert_eq!(word(MemoryAtFailure { is_pending_unknown, ..tight() }), "capacity");
        assert_eq!(word(MemoryAtFailure { unreleased: Some(mib(90)), ..c }), "private-pool");
        let unreleased = Some(ApproxBytes::exact(90 * MIB - 1));
        assert_eq!(word(MemoryAtFailure { unreleased, ..c }), "unknown");
        assert_eq!(word(MemoryAtFailure { device_free: mib(100), unreleased, ..c }), "memory-limit");
    }

    fn certainty(memory: MemoryAtFailure) -> (&'static str, bool, bool) {
        let Diagnosis { verdict, is_certain, within_rounding } = decide(&memory);
        (verdict.word(), is_certain, within_rounding)
    }

    fn rounded(mib: u64) -> ApproxBytes {
        ApproxBytes { bytes: mib * MIB, error: MIB }
    }

    #[test]
    fn verdicts_within_rounding_are_not_certain() {
        assert_eq!(certainty(tight()), ("capacity", true, false));
        let close = MemoryAtFailure { own: free(rounded(90)), ..tight() };
        assert_eq!(certainty(close), ("fragmentation", false, true));
        let close = MemoryAtFailure { own: free(rounded(89)), ..tight() };
        assert_eq!(certainty(close), ("capacity", false, true));
        let mixed = MemoryAtFailure { own: free(rounded(95)), own_includes_others: true, ..tight() };
        assert_eq!(certainty(mixed), ("fragmentation", false, false));
        let apart = MemoryAtFailure { own: free(rounded(50)), other_pool: rounded(50), ..tight() };
        assert_eq!(certainty(apart), ("capacity", true, false));
        let mixed = MemoryAtFailure { own_includes_others: true, ..apart };
        assert_eq!(certainty(mixed), ("capacity", false, false), "all of it would be enough");
    }

    #[test]
    fn memory_of_others_comes_first_if_they_hold_more() {
        let both = MemoryAtFailure { own: free(mib(90)), outside: mib(500), ..tight() };
        assert_eq!(word(both), "fragmentation");
        let both = MemoryAtFailure { is_outside_first: true, ..both };
        assert_eq!(word(both), "non-pytorch");
        assert_eq!(word(MemoryAtFailure { device_free: mib(100), ..both }), "memory-limit");
    }

    #[test]
    fn usual_memory_makes_capacity_uncertain() {
        let full = MemoryAtFailure { usual_reclaimable: mib(90), own_includes_others: true, ..tight() };
        let ruling = decide(&full);
        assert_eq!((ruling.verdict.word(), ruling.is_certain), ("capacity", false));
        let full = MemoryAtFailure { usual_reclaimable: mib(80), ..full };
        assert!(decide(&full).is_certain);
    }

    #[test]
    fn usual_outside_memory_is_not_reclaimable() {
        let [all, own] = [5000, 1500].map(mib);
        assert_eq!(reclaimable_outside(all, None, None), mib(5000 - 1024));
        assert_eq!(reclaimable_outside(all, Some(own), None), mib(5000 - 1024));
        assert_eq!(reclaimable_outside(all, Some(mib(300)), Some(mib(80_000))), mib(4700));
        assert_eq!(reclaimable_outside(mib(900), None, Some(mib(1600))), mib(700));
        assert_eq!(reclaimable_outside(mib(100), None, Some(mib(1600))), mib(0));
    }
}
