//! Why a request failed, as far as its message tells.
//!
//! The questions of [`crate::analysis`]'s verdicts, in their order: a limit, private pools, the cache, memory
//! outside the allocator, else capacity. A message says neither which stream and pool the free memory
//! belongs to, nor in how many pieces it lies.

use super::about::{About, Answer, rough};
use super::reckoning::{LARGE_SEGMENT, Reckoning};
use super::{advice, backends};
use crate::allocator::SMALL_SEGMENT;
use crate::analysis::oom::Cause;
use crate::message::{Amount, Wording};

const SNAPSHOT: &str =
    "a snapshot recorded at the failure, which has every block with its size, stream and pool";

/// What a message comes to.
#[derive(Debug, Default)]
pub(super) struct Conclusion {
    pub(super) verdict: &'static str,
    pub(super) reason: String,
    pub(super) is_certain: bool,
    pub(super) within_rounding: bool,
    pub(super) settled_by: Option<String>,
    pub(super) settings_can_help: Option<bool>,
    pub(super) advice: Vec<String>,
    pub(super) causes: Vec<Cause>,
}

impl Conclusion {
    pub(super) fn unknown(reason: &str, advice: &[&str]) -> Self {
        Self {
            verdict: "unknown",
            reason: reason.to_owned(),
            advice: advice.iter().map(|line| (*line).to_owned()).collect(),
            ..Self::default()
        }
    }

    fn settled_by_snapshot(self) -> Self {
        Self { settled_by: Some(SNAPSHOT.to_owned()), ..self }
    }
}

/// Says what `r` comes to.
pub(super) fn conclude(r: &Reckoning) -> Conclusion {
    if r.is_absurd {
        return Conclusion {
            is_certain: true,
            settings_can_help: Some(false),
            ..Conclusion::unknown(
                "more than 2^60 bytes were asked for, which no machine has: a size was computed wrongly",
                &[
                    "Look at the shapes at the line above: a negative or uninitialised size, or a product of sizes that overflowed.",
                ],
            )
        };
    }
    match r.said.wording {
        Wording::Mps => backends::metal(r),
        Wording::Async => backends::asynchronous(r),
        _ => match (r.request, r.free) {
            (Some(request), Some(free)) => native(r, request, free),
            _ => cut_short(r),
        },
    }
}

/// The parts of a message that are missing.
pub(super) fn cut_short(r: &Reckoning) -> Conclusion {
    let reason = match (&r.said.requested, r.said.releases) {
        (Some(requested), Some(releases)) if releases.to_string() == "2.3" => format!(
            "{} was asked for; PyTorch 2.3 cuts the rest of its message off when the device is number 0",
            requested.text
        ),
        (Some(requested), _) => {
            format!("{} was asked for; the rest of the message is not in this text", requested.text)
        }
        (None, _) => "the message has no numbers".to_owned(),
    };
    Conclusion::unknown(&reason, &[]).settled_by_snapshot()
}

/// What the caching allocator says since 1.0.
fn native(r: &Reckoning, request: About, free: About) -> Conclusion {
    let free_text = text(r.said.free.as_ref());
    let most = most_taken(r, request);
    let device_has_room = free.covers(most);
    let lacks_granules = free.covers(request).is_yes() && !device_has_room.is_yes();
    let (wanted, needed) = if lacks_granules {
        let asked = text(r.said.requested.as_ref());
        (format!("{} (whole granules of an expandable segment, for {asked})", rough(most)), most)
    } else {
        (text(r.said.requested.as_ref()).to_owned(), request)
    };
    let with_free = |more: About| more.plus(free).covers(needed);
    let over_limit = over_limit(r, request);
    let settings = settings_can_help(r, free);
    let base =
        Conclusion { causes: causes(r), settings_can_help: settings, ..Conclusion::default() };
    if device_has_room.is_yes() {
        return Conclusion {
            within_rounding: device_has_room.is_close(),
            ..limited(r, request, over_limit, base)
        };
    }
    let Some((reserved, unallocated)) = r.reserved.zip(r.unallocated) else {
        return Conclusion { causes: base.causes, ..cut_short(r) };
    };
    let mut advice = Vec::new();
    if over_limit.is_some_and(Answer::is_yes) {
        advice.push(format!(
            "The limit of {} would have refused this request as well: with the {} reserved it makes {}.",
            text(r.said.allowed.as_ref()),
            rough(reserved),
            rough(reserved.plus(request))
        ));
    }
    let of_pools = with_free(r.private);
    if r.private.bytes > 0 && of_pools.is_yes() {
        advice.insert(0, "Let CUDA graphs share one pool (torch.cuda.graph(pool=...)), capture fewer shapes, and drop graphs and MemPools that are done.".to_owned());
        if unallocated.bytes > 0 && with_free(unallocated).is_yes() {
            advice.extend(advice::fragmentation(r));
        }
        return Conclusion {
            verdict: "private-pool",
            reason: format!(
                "{} lies free inside private pools (CUDA graphs, MemPool), which the message counts as \
                 allocated; with the {free_text} free on the device it covers the {wanted} asked for, but \
                 no request outside those pools can use it",
                text(r.said.private_pools.as_ref())
            ),
            within_rounding: of_pools.is_close(),
            // The request may be one of such a pool.
            settings_can_help: base.settings_can_help.filter(|can_help| *can_help),
            advice,
            ..base
        }
        .settled_by_snapshot();
    }
    let of_cache = with_free(unallocated);
    if unallocated.bytes > 0 && of_cache.is_yes() {
        advice.splice(0..0, advice::fragmentation(r));
        return Conclusion {
            verdict: "fragmentation",
            reason: format!(
                "{} is reserved by PyTorch but unallocated; with the {free_text} free on the device it \
                 would cover the {wanted} asked for, were it in one piece. A message cannot tell whether \
                 those pieces belong to the request's stream and pool",
                unallocated_text(r, unallocated)
            ),
            within_rounding: of_cache.is_close(),
            advice,
            ..base
        }
        .settled_by_snapshot();
    }
    let spare = r.spare_outside.unwrap_or_default();
    let of_others = with_free(spare);
    let outside_decides = spare.bytes > 0 && of_others.is_yes();
    if outside_decides {
        advice.splice(0..0, advice::outside(r));
    } else {
        advice.splice(0..0, advice::capacity(r, request, free, unallocated));
    }
    if outside_decides {
        let outside = r.outside.unwrap_or_default();
        let is_certain = of_others == Answer::Yes && !r.others().is_empty();
        let conclusion = Conclusion {
            verdict: "non-pytorch",
            reason: format!(
                "{} of the device is in use outside this process' allocator{}; without it the {wanted} \
                 asked for would fit. What the allocator holds itself is {}",
                rough(outside),
                who(r),
                rough(reserved)
            ),
            is_certain,
            within_rounding: of_others.is_close(),
            advice,
            ..base
        };
        return if is_certain {
            conclusion
        } else {
            Conclusion {
                settled_by: Some(
                    "nvidia-smi, while the job runs: it lists the processes on the device"
                        .to_owned(),
                ),
                ..conclusion
            }
        };
    }
    let together = with_free(r.private.plus(unallocated).plus(spare));
    let all_free = rough(free.plus(unallocated));
    // A cached block need only be as large as the request itself.
    let in_place = r.least_request().map(|least| r.private.plus(unallocated).covers(least));
    let is_certain = together == Answer::No && in_place == Some(Answer::No);
    let reason = match r.capacity {
        Some(capacity) if capacity.covers(request) == Answer::No => format!(
            "the request of {wanted} alone is larger than the device ({})",
            text(r.said.capacity.as_ref())
        ),
        _ if !together.is_yes() => format!(
            "the program holds {} and asks for {wanted} more; all that is free, on the device and in the \
             cache, is {all_free}",
            rough(reserved.minus(unallocated))
        ),
        _ => format!(
            "all that is free, on the device and in the cache, is {all_free}, less than the {wanted} asked \
             for; only together with private pools and memory outside PyTorch would it be enough"
        ),
    };
    let conclusion = Conclusion {
        verdict: "capacity",
        reason,
        is_certain,
        within_rounding: together.is_close() || of_cache.is_close() || of_others.is_close(),
        advice,
        ..base
    };
    if is_certain { conclusion } else { conclusion.settled_by_snapshot() }
}

/// Whether the process' own limit refuses the request; `None` without a limit.
fn over_limit(r: &Reckoning, request: About) -> Option<Answer> {
    let (allowed, reserved) = r.allowed.zip(r.reserved)?;
    Some(match allowed.covers(reserved.plus(request)) {
        Answer::Yes => Answer::No,
        Answer::No => Answer::Yes,
        Answer::Perhaps => Answer::PerhapsNot,
        Answer::PerhapsNot => Answer::Perhaps,
    })
}

/// The most that the device is asked for: expandable segments grow by whole granules.
fn most_taken(r: &Reckoning, request: About) -> About {
    if r.said.expandable != Some(true) {
        return request;
    }
    let granule = if request.bytes == SMALL_SEGMENT { SMALL_SEGMENT } else { LARGE_SEGMENT };
    let bytes = request.bytes.checked_next_multiple_of(granule).unwrap_or(request.bytes);
    About { bytes, ..request }
}

/// Settings move free memory about: they can help where what is free, within the limit, is enough.
/// What is free on the device serves a request smaller than a segment only where segments can grow.
fn settings_can_help(r: &Reckoning, free: About) -> Option<bool> {
    let (unallocated, least) = (r.unallocated?, r.least_request()?);
    let mut room = free;
    if let Some((allowed, reserved)) = r.allowed.zip(r.reserved) {
        let left = allowed.minus(reserved);
        if left.bytes < room.bytes {
            room = left;
        }
    }
    let covers = room.plus(unallocated).covers(least);
    if unallocated.bytes > 0 {
        return Some(covers != Answer::No);
    }
    // Without granules what is free may be enough.
    let is_cut = r.request != Some(least);
    Some((is_cut || r.said.expandable == Some(true)) && covers.is_yes())
}

/// The device had room: something else refused.
fn limited(r: &Reckoning, request: About, over: Option<Answer>, base: Conclusion) -> Conclusion {
    let (wanted, free) = (text(r.said.requested.as_ref()), text(r.said.free.as_ref()));
    let allowed = text(r.said.allowed.as_ref());
    let base = Conclusion { verdict: "memory-limit", ..base };
    if let (Some(over), Some(reserved)) = (over.filter(|over| over.is_yes()), r.reserved) {
        let needed = rough(reserved.plus(request));
        let mut advice = vec![format!(
            "Raise the limit to {needed} at least, or remove it: torch.cuda.set_per_process_memory_fraction(), \
             or per_process_memory_fraction in PYTORCH_CUDA_ALLOC_CONF. Serving frameworks set it too."
        )];
        if base.settings_can_help == Some(true) {
            advice.extend(advice::fragmentation(r));
        }
        return Conclusion {
            reason: format!(
                "the device had {free} free for the {wanted} asked of it, but the process may hold no more \
                 than {allowed}: it has {} reserved, and with this request it would hold {needed}",
                rough(reserved)
            ),
            is_certain: over == Answer::Yes,
            within_rounding: over.is_close(),
            advice,
            ..base
        };
    }
    if r.said.refused_by_pool {
        return Conclusion {
            reason: format!(
                "the device had {free} free for the {wanted} asked of it: the allocator of the MemPool in \
                 use refused, not the device"
            ),
            is_certain: true,
            advice: vec![
                "Look for warnings of that pool's allocator above this message.".to_owned(),
            ],
            ..base
        };
    }
    if r.said.exceeds_reserve {
        return Conclusion {
            reason: format!(
                "the device had {free} free for the {wanted} asked of it: the addresses reserved for an \
                 expandable segment are too few for one block of that size"
            ),
            is_certain: true,
            advice: vec![
                "Raise expandable_segments_reserve in PYTORCH_CUDA_ALLOC_CONF, or leave it unset."
                    .to_owned(),
            ],
            ..base
        };
    }
    let mut advice = vec![
        "Look for a limit outside PyTorch: of a container, a MIG slice, a virtual GPU, the driver.".to_owned(),
        "Look for another process on the GPU that comes and goes: the free memory is as it was a moment after the refusal.".to_owned(),
    ];
    if r.said.expandable == Some(true) {
        advice.push("Try without expandable_segments: under WSL2 and on some boards its mappings fail with memory free.".to_owned());
    }
    let no_limit = match over {
        Some(_) => format!("the limit of {allowed} is not reached"),
        None => "the message names no limit of PyTorch's own".to_owned(),
    };
    Conclusion {
        reason: format!(
            "the device had {free} free, enough for the {wanted} asked of it, and {no_limit}: a limit \
             outside PyTorch or the driver refused it, or the memory was given back only a moment later"
        ),
        settled_by: Some(
            "nvidia-smi, while the job runs, and the limits of its container".to_owned(),
        ),
        advice,
        ..base
    }
}

/// Who uses the memory outside the allocator.
fn who(r: &Reckoning) -> String {
    let mut parts: Vec<String> = r
        .others()
        .into_iter()
        .take(3)
        .map(|other| format!("process {}: {}", other.pid, other.in_use.text))
        .collect();
    if let Some(own) = r.own_outside.filter(|own| own.bytes > 0) {
        parts.push(format!("this process itself: {}", rough(own)));
    }
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// Where memory was that could have served the request, largest first.
fn causes(r: &Reckoning) -> Vec<Cause> {
    let cause =
        |kind, about: About, note: &str| Cause { kind, bytes: about.bytes, note: note.to_owned() };
    let mut causes = vec![
        cause(
            "fragmentation",
            r.unallocated.unwrap_or_default(),
            "reserved but unallocated, of whatever stream and in however many pieces",
        ),
        cause("private-pool", r.private, "free in private pools (CUDA graphs, MemPool)"),
        cause(
            "non-pytorch",
            r.outside.unwrap_or_default(),
            "of the device in use outside this allocator: other processes, the CUDA context, libraries",
        ),
    ];
    causes.retain(|cause| cause.bytes > 0);
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.bytes));
    causes
}

/// A number as it was printed.
pub(super) fn text(amount: Option<&Amount>) -> &str {
    amount.map_or("an unknown amount", |amount| &amount.text)
}

fn unallocated_text(r: &Reckoning, unallocated: About) -> String {
    r.said.unallocated.as_ref().map_or_else(|| rough(unallocated), |amount| amount.text.clone())
}
