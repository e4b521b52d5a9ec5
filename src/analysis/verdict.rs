//! Why a request failed: the one thing that, had it been otherwise, would have served it.

use crate::allocator::{is_small_request, most_taken};
use crate::conf::Settings;
use crate::units::size;

/// The memory there was when a request failed, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances {
    /// The rounded request.
    pub(super) request: u64,
    /// What the device was asked for.
    pub(super) segment: u64,
    /// Free on the device.
    pub(super) device_free: u64,
    /// Held from the device.
    pub(super) reserved: u64,
    /// In use: allocated, or pending.
    pub(super) active: u64,
    /// The largest free block of the request's own pool, size class and stream.
    pub(super) largest: u64,
    /// Free in blocks of the request's own pool and stream.
    pub(super) own: u64,
    /// The part of `own` that is of the request's size class, and could serve it in place.
    pub(super) own_class: u64,
    /// Free in other streams' blocks of the same pool.
    pub(super) other_stream: u64,
    /// Free in other pools.
    pub(super) other_pool: u64,
    /// Freed by the program, waiting for other streams.
    pub(super) pending: u64,
    /// The part of `pending` that could serve the request in place.
    pub(super) pending_class: u64,
    /// Of the device, in use outside this allocator; known only where the device's size is.
    pub(super) outside: Option<u64>,
}

/// The verdict's word and one sentence with the numbers. The order of the questions is part of the
/// meaning: what is asked first is what is cheapest to change.
pub(super) fn verdict(c: &Circumstances, settings: &Settings) -> (&'static str, String) {
    let (wanted, free) = (size(c.segment), size(c.device_free));
    let with_device = |bytes: u64| bytes.saturating_add(c.device_free) >= c.segment;
    // What serves in place need not be as large as a segment.
    let in_place = |bytes: u64| bytes >= c.request;
    let most = most_taken(c.request, settings);
    if c.device_free >= most {
        let enough = c.reserved.saturating_add(most);
        return (
            "memory-limit",
            format!(
                "the device had {free} free and {wanted} was asked of it: a limit of the process \
                 (set_per_process_memory_fraction) or the driver refused it, at {} reserved; a limit of \
                 {} would be enough for it",
                size(c.reserved),
                size(enough)
            ),
        );
    }
    if c.largest >= c.request {
        let rule = if c.request < settings.max_split_size && c.largest >= settings.max_split_size {
            format!(
                "but max_split_size ({}) keeps blocks of that size for requests as large",
                size(settings.max_split_size)
            )
        } else {
            "and no rule kept it from serving it. Most likely it came back while the request waited \
             for other streams: PyTorch does not look again, and the same request, made once more, is \
             served (pytorch/pytorch#189504)"
                .to_owned()
        };
        return (
            "spurious",
            format!(
                "a free block of {} of the right pool and stream was there, {rule}",
                size(c.largest)
            ),
        );
    }
    if c.pending > 0 && (with_device(c.pending) || in_place(c.pending_class)) {
        let covers = if with_device(c.pending) {
            format!("with the {free} free on the device it covers the {wanted} asked for")
        } else {
            format!("it covers the {} asked for", size(c.request))
        };
        return (
            "pending-free",
            format!("{} was freed but still in use by other streams; {covers}", size(c.pending)),
        );
    }
    if c.other_pool > 0 && with_device(c.other_pool) {
        return (
            "private-pool",
            format!(
                "{} lies free in other pools (CUDA graphs, MemPool), out of reach; with the {free} free \
                 on the device it covers the {wanted} asked for",
                size(c.other_pool)
            ),
        );
    }
    if c.other_stream > 0 && with_device(c.other_stream) {
        return (
            "other-stream",
            format!(
                "{} lies free in segments of other streams, which this stream cannot use; with the \
                 {free} free on the device it covers the {wanted} asked for",
                size(c.other_stream)
            ),
        );
    }
    if c.own > 0 && (with_device(c.own) || in_place(c.own_class)) {
        let pieces = if c.own_class == 0 {
            let which = if is_small_request(c.request) { "larger than" } else { "up to" };
            format!("in blocks for requests {which} 1 MiB")
        } else {
            format!("in pieces of at most {}", size(c.largest))
        };
        let covers = if with_device(c.own) {
            format!("with the {free} free on the device it would cover the {wanted} asked for")
        } else {
            format!("it would cover the {} asked for", size(c.request))
        };
        return (
            "fragmentation",
            format!(
                "{} lies free in the request's own pool and stream, but {pieces}; {covers}, were it in \
                 one piece",
                size(c.own)
            ),
        );
    }
    if let Some(outside) = c.outside.filter(|outside| with_device(*outside)) {
        return (
            "non-pytorch",
            format!(
                "{} of the device is in use outside this allocator (CUDA context, libraries, other \
                 processes); with the {free} free it covers the {wanted} asked for",
                size(outside)
            ),
        );
    }
    ("capacity", full(c))
}

/// The verdict where no pool is recorded and `bytes`, which the default pool gives back before a request
/// fails, were not given back.
pub(super) fn kept_back(
    c: &Circumstances,
    bytes: u64,
    settings: &Settings,
) -> (&'static str, String) {
    let plain = verdict(c, settings);
    if plain.0 == "memory-limit" {
        return plain;
    }
    let (free, wanted) = (size(c.device_free), size(c.segment));
    let back = format!(
        "{} of free memory could have been given back to the device and was not: either the request was \
         for a private pool (use_mem_pool, a graph capture), for which up to 2.12 nothing is given back, or \
         that memory was in one that is gone by now; which is not recorded",
        size(bytes)
    );
    if bytes.saturating_add(c.device_free) >= c.segment {
        let covers = format!("with the {free} free on the device it covers the {wanted} asked for");
        ("private-pool", format!("{back}; {covers}"))
    } else {
        ("unknown", format!("{back}, nor what lay free in the request's own pool"))
    }
}

/// The verdict of a request for a private pool where what seems free may have waited for other streams: in
/// a graph capture nothing is waited for, as a request of the default pool does before it fails.
pub(super) fn without_completions(
    c: &Circumstances,
    settings: &Settings,
) -> (&'static str, String) {
    let plain = verdict(c, settings);
    if matches!(plain.0, "memory-limit" | "non-pytorch" | "capacity") {
        return plain;
    }
    let reason = format!(
        "{} was freed, but how much of it other streams still used is not recorded: the trace has no \
         free_completed entries (skip_actions)",
        size(c.reserved.saturating_sub(c.active))
    );
    ("unknown", reason)
}

/// Why no one thing would have been enough.
fn full(c: &Circumstances) -> String {
    let cache = c.own.saturating_add(c.other_stream).saturating_add(c.other_pool);
    let all = cache.saturating_add(c.device_free);
    let (held, request, wanted) = (size(c.active), size(c.request), size(c.segment));
    if all >= c.segment {
        let kinds = [
            (c.device_free, "on the device"),
            (c.own, "in the request's own pool and stream"),
            (c.other_stream, "in other streams' segments"),
            (c.other_pool, "in other pools"),
        ];
        let parts = kinds.iter().filter(|(bytes, _)| *bytes > 0);
        let parts: Vec<String> =
            parts.map(|(bytes, place)| format!("{} {place}", size(*bytes))).collect();
        return format!(
            "the program holds {held} and asks for {request} more; {} is free, but not of one kind ({})",
            size(all),
            parts.join(", ")
        );
    }
    let segment = if all >= c.request {
        format!(", for which the allocator asks the device for {wanted}")
    } else {
        String::new()
    };
    format!(
        "the program holds {held} and asks for {request} more{segment}; all that is free, on the device \
         and in the cache, is {}",
        size(all)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MIB;

    const TIGHT: Circumstances = Circumstances {
        request: 100 * MIB,
        segment: 100 * MIB,
        device_free: 10 * MIB,
        reserved: 1000 * MIB,
        active: 1000 * MIB,
        largest: 0,
        own: 0,
        own_class: 0,
        other_stream: 0,
        other_pool: 0,
        pending: 0,
        pending_class: 0,
        outside: None,
    };

    fn word(circumstances: Circumstances) -> &'static str {
        verdict(&circumstances, &Settings::default()).0
    }

    #[test]
    fn each_thing_that_would_have_helped_is_named() {
        let enough = 90 * MIB;
        assert_eq!(word(TIGHT), "capacity");
        assert_eq!(word(Circumstances { device_free: 100 * MIB, ..TIGHT }), "memory-limit");
        assert_eq!(word(Circumstances { largest: 100 * MIB, ..TIGHT }), "spurious");
        assert_eq!(word(Circumstances { pending: enough, ..TIGHT }), "pending-free");
        assert_eq!(word(Circumstances { other_pool: enough, ..TIGHT }), "private-pool");
        assert_eq!(word(Circumstances { other_stream: enough, ..TIGHT }), "other-stream");
        assert_eq!(word(Circumstances { own: enough, ..TIGHT }), "fragmentation");
        assert_eq!(word(Circumstances { outside: Some(enough), ..TIGHT }), "non-pytorch");
    }

    #[test]
    fn a_limit_is_told_from_a_lack_of_whole_granules() {
        let settings = Settings { expandable_segments: true, ..Settings::default() };
        let word = |request: u64, free: u64| {
            let c = Circumstances { request, segment: request, device_free: free, ..TIGHT };
            verdict(&c, &settings).0
        };
        assert_eq!(word(300 * MIB, 310 * MIB), "memory-limit");
        assert_eq!(word(310 * MIB, 319 * MIB), "capacity");
        assert_eq!(word(310 * MIB, 320 * MIB), "memory-limit");
    }

    #[test]
    fn a_byte_short_does_not_help() {
        let short = 90 * MIB - 1;
        assert_eq!(word(Circumstances { own: short, pending: short, ..TIGHT }), "capacity");
    }

    #[test]
    fn what_serves_in_place_need_not_be_a_segment() {
        let c = Circumstances { request: 9 * MIB, segment: 20 * MIB, device_free: 0, ..TIGHT };
        let (own, pending, other_pool) = (12 * MIB, 12 * MIB, 12 * MIB);
        assert_eq!(word(Circumstances { own, own_class: own, ..c }), "fragmentation");
        assert_eq!(word(Circumstances { pending, pending_class: pending, ..c }), "pending-free");
        assert_eq!(word(Circumstances { own, other_pool, pending, ..c }), "capacity");
    }

    #[test]
    fn a_full_device_is_told_from_one_where_no_one_thing_is_enough() {
        let reason = |c: Circumstances| verdict(&c, &Settings::default()).1;
        assert!(reason(TIGHT).ends_with("and in the cache, is 10 MiB"), "{}", reason(TIGHT));
        let part = 40 * MIB;
        let c = Circumstances { own: part, other_stream: part, other_pool: part, ..TIGHT };
        assert!(
            reason(c).contains("130 MiB is free, but not of one kind (10 MiB on the"),
            "{}",
            reason(c)
        );
        let c = Circumstances { request: 9 * MIB, segment: 20 * MIB, ..TIGHT };
        assert!(reason(c).contains("asks the device for 20 MiB; all that"), "{}", reason(c));
    }

    #[test]
    fn what_is_not_recorded_is_not_claimed() {
        let settings = Settings::default();
        let c = Circumstances { own: 90 * MIB, active: 910 * MIB, ..TIGHT };
        assert_eq!(word(c), "fragmentation");
        assert_eq!(without_completions(&c, &settings).0, "unknown");
        assert_eq!(without_completions(&TIGHT, &settings).0, "capacity");
        assert_eq!(kept_back(&c, 90 * MIB, &settings).0, "private-pool");
        assert_eq!(kept_back(&c, 90 * MIB - 1, &settings).0, "unknown");
        let c = Circumstances { device_free: 100 * MIB, ..c };
        assert_eq!(kept_back(&c, 90 * MIB, &settings).0, "memory-limit");
    }

    #[test]
    fn the_first_question_that_is_answered_decides() {
        let c = Circumstances { own: 90 * MIB, other_stream: 90 * MIB, ..TIGHT };
        assert_eq!(word(c), "other-stream");
    }
}
