//! Why a request failed: the one thing that, had it been otherwise, would have served it.

use crate::allocator::granule;
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
    /// Free in other streams' blocks of the same pool.
    pub(super) other_stream: u64,
    /// Free in other pools.
    pub(super) other_pool: u64,
    /// Freed by the program, waiting for other streams.
    pub(super) pending: u64,
    /// Of the device, in use outside this allocator; known only where the device's size is.
    pub(super) outside: Option<u64>,
}

/// The verdict's word and one sentence with the numbers. The order of the questions is part of the
/// meaning: what is asked first is what is cheapest to change.
pub(super) fn verdict(c: &Circumstances, settings: &Settings) -> (&'static str, String) {
    let (wanted, free) = (size(c.segment), size(c.device_free));
    let with_device = |bytes: u64| bytes.saturating_add(c.device_free) >= c.segment;
    let sum = |bytes: u64| size(bytes.saturating_add(c.device_free));
    // Mapped memory is rounded to granules, which may have been what there was no room for.
    let slack = if settings.expandable_segments { granule(false, settings) } else { 0 };
    if c.device_free >= c.segment.saturating_add(slack) {
        return (
            "memory-limit",
            format!(
                "the device had {free} free and {wanted} was asked of it: a limit of the process \
                 (set_per_process_memory_fraction) or the driver refused it, at {} reserved",
                size(c.reserved)
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
    if c.pending > 0 && with_device(c.pending) {
        return (
            "pending-free",
            format!(
                "{} was freed but still in use by other streams; with the {free} free on the device it \
                 covers the {wanted} asked for",
                size(c.pending)
            ),
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
    if c.own > 0 && with_device(c.own) {
        return (
            "fragmentation",
            format!(
                "{} lies free in the request's own pool and stream, but in pieces of at most {}; with \
                 the {free} free on the device it would cover the {wanted} asked for, were it in one \
                 piece",
                size(c.own),
                size(c.largest)
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
    let cache = c.own.saturating_add(c.other_stream).saturating_add(c.other_pool);
    (
        "capacity",
        format!(
            "the program holds {} and asks for {} more; all that is free, on the device and in the \
             cache, is {}",
            size(c.active),
            size(c.request),
            sum(cache)
        ),
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
        other_stream: 0,
        other_pool: 0,
        pending: 0,
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
    fn a_byte_short_does_not_help() {
        let short = 90 * MIB - 1;
        assert_eq!(word(Circumstances { own: short, pending: short, ..TIGHT }), "capacity");
    }

    #[test]
    fn the_first_question_that_is_answered_decides() {
        let c = Circumstances { own: 90 * MIB, other_stream: 90 * MIB, ..TIGHT };
        assert_eq!(word(c), "other-stream");
    }
}
