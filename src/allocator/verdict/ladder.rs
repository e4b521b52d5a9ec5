//! The questions, in their order.

use super::{About, Holds, Verdict};
use crate::base::units::GIB;

/// What every CUDA process uses outside the allocator: the CUDA context, loaded kernels, the workspaces of
/// cuBLAS and cuDNN. Usually 0.3 to 1 GiB, and less on small devices.
pub const USUAL_OUTSIDE: u64 = GIB;
/// [`USUAL_OUTSIDE`] is at most this part of a device.
const USUAL_PARTS: u64 = 8;

/// The part of `outside`, in use outside the allocator on a device of `capacity`, that somebody could give
/// back; `own` is what this process uses of it, if that is known.
pub fn spare(outside: About, own: Option<About>, capacity: Option<About>) -> About {
    let most = capacity.map_or(USUAL_OUTSIDE, |all| USUAL_OUTSIDE.min(all.bytes / USUAL_PARTS));
    let usual = own.unwrap_or(outside).bytes.min(most);
    outside.minus(About::exactly(usual))
}

/// Free memory of one kind.
#[derive(Debug, Clone, Copy, Default)]
pub struct Free {
    /// All of it.
    pub all: About,
    /// The part that is of the request's pool, size class and stream: it could serve the request where it lies.
    pub in_place: About,
}

/// The memory there was when a request failed. What is not known is nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Circumstances {
    /// The least that would have served the request where it lies.
    pub request: About,
    /// What the device was asked for: a segment.
    pub segment: About,
    /// The same in whole granules of an expandable segment.
    pub most: About,
    /// Free on the device.
    pub device_free: About,
    /// The largest free block of the request's own pool, size class and stream.
    pub largest: Option<About>,
    /// Free in blocks of the request's own pool and stream.
    pub own: Free,
    /// Free in other streams' blocks of the same pool.
    pub other_stream: About,
    /// Free in other pools.
    pub other_pool: About,
    /// Freed by the program, waiting for other streams.
    pub pending: Free,
    /// Of the device, in use outside this allocator, that somebody could give back.
    pub outside: About,
    /// Where the request's pool is not known to be the default one: what the default pool gives back before a
    /// request fails, and was not given back.
    pub kept_back: Option<About>,
    /// `own` counts what is pending, or of other streams, too.
    pub is_own_mixed: bool,
    /// Free or given back by others, but no more than on any busy device: it counts only where it is asked whether
    /// everything together would have been enough.
    pub usual: About,
    /// `outside` is the larger part, and what is free in the cache is not known to be in large pieces: others are
    /// asked about first.
    pub is_outside_first: bool,
    /// What is counted as free may have been pending.
    pub is_pending_unknown: bool,
}

/// What the ladder came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ruling {
    /// The first question that is answered yes.
    pub verdict: Verdict,
    /// Nothing that is not known could have made it another.
    pub is_certain: bool,
    /// The rounding of the figures could have made it another.
    pub within_rounding: bool,
}

impl Circumstances {
    /// What the device was asked for: whole granules where it had room for the segment alone.
    pub fn wanted(&self) -> About {
        let has_room = |bytes| self.device_free.covers(bytes).is_yes();
        if has_room(self.segment) && !has_room(self.most) { self.most } else { self.segment }
    }

    /// Whether `more` and what is free on the device cover what was asked of it.
    pub fn with_device(&self, more: About) -> Holds {
        if more.bytes == 0 {
            return Holds::No;
        }
        more.plus(self.device_free).covers(self.wanted())
    }

    /// Whether it would serve the request, where it lies or from the device.
    fn serves(&self, free: Free) -> Holds {
        // What serves in place need not be as large as a segment.
        let in_place =
            if free.in_place.bytes == 0 { Holds::No } else { free.in_place.covers(self.request) };
        self.with_device(free.all).max(in_place)
    }

    /// Whether everything together would.
    fn together(&self) -> Holds {
        let cached = self.own.all.plus(self.other_pool);
        let all = cached.plus(self.other_stream).plus(self.pending.all).plus(self.outside);
        all.plus(self.usual)
            .plus(self.device_free)
            .covers(self.wanted())
            .max(cached.covers(self.request))
    }

    /// Whether nothing that is free, were it all in one place, would have served the request.
    pub fn is_full(&self) -> bool {
        self.together() == Holds::No
    }

    fn rungs(&self) -> [(Verdict, Holds); 7] {
        let mut rungs = [
            (Verdict::MemoryLimit, self.device_free.covers(self.most)),
            (Verdict::Spurious, self.largest.map_or(Holds::No, |it| it.covers(self.request))),
            (Verdict::PendingFree, self.serves(self.pending)),
            (Verdict::PrivatePool, self.with_device(self.other_pool)),
            (Verdict::OtherStream, self.with_device(self.other_stream)),
            (Verdict::Fragmentation, self.serves(self.own)),
            (Verdict::NonPytorch, self.with_device(self.outside)),
        ];
        if self.is_outside_first {
            // Behind the device's own room.
            rungs[1..].rotate_right(1);
        }
        rungs
    }
}

/// Asks the questions of `c` one after the other.
pub fn rule(c: &Circumstances) -> Ruling {
    let rungs = c.rungs();
    let decisive = rungs.iter().position(|(_, holds)| holds.is_yes());
    let asked = rungs.get(..=decisive.unwrap_or(rungs.len() - 1)).unwrap_or(&rungs);
    let verdict = decisive.and_then(|at| rungs.get(at)).map_or(Verdict::Capacity, |rung| rung.0);
    let mut within_rounding = asked.iter().any(|(_, holds)| holds.is_close());
    let is_certain = match verdict {
        // Something in a mixture is of another kind, or the request was of the pool that seems to be another.
        Verdict::PrivatePool | Verdict::Fragmentation if c.is_own_mixed => false,
        Verdict::Capacity if c.is_own_mixed => {
            within_rounding |= c.together().is_close();
            c.together() == Holds::No
        }
        _ => !within_rounding,
    };
    let is_of_memory_free =
        !matches!(verdict, Verdict::MemoryLimit | Verdict::NonPytorch | Verdict::Capacity);
    let verdict = match c.kept_back {
        Some(bytes) if verdict != Verdict::MemoryLimit => {
            if c.with_device(bytes).is_yes() {
                Verdict::PrivatePool
            } else {
                Verdict::Unknown
            }
        }
        None if c.is_pending_unknown && is_of_memory_free => Verdict::Unknown,
        _ => verdict,
    };
    Ruling { verdict, is_certain, within_rounding }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::MIB;

    fn mib(n: u64) -> About {
        About::exactly(n * MIB)
    }

    fn free(all: About) -> Free {
        Free { all, ..Free::default() }
    }

    fn tight() -> Circumstances {
        let (request, device_free) = (mib(100), mib(10));
        let largest = Some(About::default());
        Circumstances {
            request,
            segment: request,
            most: request,
            device_free,
            largest,
            ..Circumstances::default()
        }
    }

    fn word(c: Circumstances) -> &'static str {
        rule(&c).verdict.word()
    }

    #[test]
    fn each_thing_that_would_have_helped_is_named() {
        let enough = mib(90);
        assert_eq!(word(tight()), "capacity");
        assert_eq!(word(Circumstances { device_free: mib(100), ..tight() }), "memory-limit");
        assert_eq!(word(Circumstances { largest: Some(mib(100)), ..tight() }), "spurious");
        assert_eq!(word(Circumstances { pending: free(enough), ..tight() }), "pending-free");
        assert_eq!(word(Circumstances { other_pool: enough, ..tight() }), "private-pool");
        assert_eq!(word(Circumstances { other_stream: enough, ..tight() }), "other-stream");
        assert_eq!(word(Circumstances { own: free(enough), ..tight() }), "fragmentation");
        assert_eq!(word(Circumstances { outside: enough, ..tight() }), "non-pytorch");
        let both = Circumstances { own: free(enough), other_stream: enough, ..tight() };
        assert_eq!(word(both), "other-stream", "the first question that is answered decides");
    }

    #[test]
    fn a_limit_is_told_from_a_lack_of_whole_granules() {
        let c = |request, most, device_free| Circumstances {
            request: mib(request),
            segment: mib(request),
            most: mib(most),
            device_free: mib(device_free),
            ..tight()
        };
        assert_eq!(word(c(300, 300, 310)), "memory-limit");
        assert_eq!(word(c(310, 320, 319)), "capacity");
        assert_eq!(c(310, 320, 319).wanted(), mib(320));
        assert_eq!(c(310, 320, 300).wanted(), mib(310));
        assert_eq!(word(c(310, 320, 320)), "memory-limit");
    }

    #[test]
    fn a_byte_short_does_not_help() {
        let short = free(About::exactly(90 * MIB - 1));
        assert_eq!(word(Circumstances { own: short, pending: short, ..tight() }), "capacity");
    }

    #[test]
    fn what_serves_in_place_need_not_be_a_segment() {
        let (request, segment, device_free) = (mib(9), mib(20), mib(0));
        let c = Circumstances { request, segment, most: segment, device_free, ..tight() };
        let in_place = Free { all: mib(12), in_place: mib(12) };
        assert_eq!(word(Circumstances { own: in_place, ..c }), "fragmentation");
        assert_eq!(word(Circumstances { pending: in_place, ..c }), "pending-free");
        let elsewhere = free(mib(12));
        let c = Circumstances { own: elsewhere, pending: elsewhere, other_pool: mib(12), ..c };
        assert_eq!(word(c), "capacity");
    }

    #[test]
    fn what_is_not_recorded_is_not_claimed() {
        let is_pending_unknown = true;
        let c = Circumstances { own: free(mib(90)), ..tight() };
        assert_eq!(word(c), "fragmentation");
        assert_eq!(word(Circumstances { is_pending_unknown, ..c }), "unknown");
        assert_eq!(word(Circumstances { is_pending_unknown, ..tight() }), "capacity");
        assert_eq!(word(Circumstances { kept_back: Some(mib(90)), ..c }), "private-pool");
        let kept_back = Some(About::exactly(90 * MIB - 1));
        assert_eq!(word(Circumstances { kept_back, ..c }), "unknown");
        assert_eq!(word(Circumstances { device_free: mib(100), kept_back, ..c }), "memory-limit");
    }

    #[test]
    fn what_the_figures_do_not_decide_is_not_certain() {
        let certainty = |c: Circumstances| {
            let Ruling { verdict, is_certain, within_rounding } = rule(&c);
            (verdict.word(), is_certain, within_rounding)
        };
        let rounded = |n: u64| About { bytes: n * MIB, error: MIB };
        assert_eq!(certainty(tight()), ("capacity", true, false));
        let close = Circumstances { own: free(rounded(90)), ..tight() };
        assert_eq!(certainty(close), ("fragmentation", false, true));
        let close = Circumstances { own: free(rounded(89)), ..tight() };
        assert_eq!(certainty(close), ("capacity", false, true));
        let mixed = Circumstances { own: free(rounded(95)), is_own_mixed: true, ..tight() };
        assert_eq!(certainty(mixed), ("fragmentation", false, false));
        let apart = Circumstances { own: free(rounded(50)), other_pool: rounded(50), ..tight() };
        assert_eq!(certainty(apart), ("capacity", true, false));
        let mixed = Circumstances { is_own_mixed: true, ..apart };
        assert_eq!(certainty(mixed), ("capacity", false, false), "all of it would be enough");
    }

    #[test]
    fn others_come_first_where_they_hold_more() {
        let both = Circumstances { own: free(mib(90)), outside: mib(500), ..tight() };
        assert_eq!(word(both), "fragmentation");
        let both = Circumstances { is_outside_first: true, ..both };
        assert_eq!(word(both), "non-pytorch");
        assert_eq!(word(Circumstances { device_free: mib(100), ..both }), "memory-limit");
    }

    #[test]
    fn what_any_busy_device_has_is_no_verdict_but_leaves_doubt() {
        let full = Circumstances { usual: mib(90), is_own_mixed: true, ..tight() };
        let ruling = rule(&full);
        assert_eq!((ruling.verdict.word(), ruling.is_certain), ("capacity", false));
        let full = Circumstances { usual: mib(80), ..full };
        assert!(rule(&full).is_certain);
    }

    #[test]
    fn what_every_process_takes_cannot_be_given_back() {
        let [all, own] = [5000, 1500].map(mib);
        assert_eq!(spare(all, None, None), mib(5000 - 1024));
        assert_eq!(spare(all, Some(own), None), mib(5000 - 1024));
        assert_eq!(spare(all, Some(mib(300)), Some(mib(80_000))), mib(4700));
        assert_eq!(spare(mib(900), None, Some(mib(1600))), mib(700));
        assert_eq!(spare(mib(100), None, Some(mib(1600))), mib(0));
    }
}
