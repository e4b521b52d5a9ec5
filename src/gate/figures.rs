//! The figure that each code is about, in a number and in a sentence.

use super::baseline::Peaks;
use crate::analysis::{Contribution, DeviceReport, LineShare};
use crate::figures::{Figure, Recording, State, Unknown};
use crate::model::Inferred;
use crate::units::{counted, size};

/// What is known of one device.
#[derive(Clone, Copy)]
pub(super) struct Measured<'a> {
    pub(super) device: &'a DeviceReport,
    /// What verification came to, where it was needed.
    pub(super) inferred: Option<&'a Inferred<'a>>,
    /// Its peaks replayed from an empty pool, where they were needed and there is a trace.
    pub(super) now: Option<&'a Peaks>,
    /// Those of the baseline.
    pub(super) before: Option<&'a Peaks>,
}

impl Measured<'_> {
    fn traced(&self, figure: u64) -> Result<u64, Unknown> {
        if self.device.timeline.is_some() { Ok(figure) } else { Err(Unknown::NoHistory) }
    }

    /// Some peak of the baseline, and now.
    fn replayed(&self, peak: fn(&Peaks) -> u64) -> Result<[u64; 2], Unknown> {
        let now = self.now.ok_or(Unknown::NoHistory)?;
        let before = self.before.ok_or_else(|| Unknown::NotInBaseline {
            device: now.device,
            snapshot: now.snapshot.clone(),
        })?;
        Ok([peak(before), peak(now)])
    }
}

impl Recording for Measured<'_> {
    fn state(&self) -> State {
        self.device.memory.state()
    }

    fn peak_reserved(&self) -> Result<u64, Unknown> {
        self.traced(self.device.peak.reserved_bytes)
    }

    fn peak_allocated(&self) -> Result<u64, Unknown> {
        self.traced(self.device.peak.allocated_bytes)
    }

    fn failed_requests(&self) -> Result<u64, Unknown> {
        self.traced(self.device.oom_count)
    }

    fn retries(&self) -> Result<u64, Unknown> {
        let inferred = self.inferred.filter(|one| one.verification.recorded > 0);
        let verification = &inferred.ok_or(Unknown::NoHistory)?.verification;
        if !verification.is_exact() {
            return Err(Unknown::Diverges { entry: verification.matched as u64 });
        }
        Ok(verification.allocator.statistics().num_alloc_retries)
    }

    fn replayed_peak_allocated(&self) -> Result<[u64; 2], Unknown> {
        self.replayed(|peaks| peaks.replayed_peak_allocated_bytes)
    }

    fn replayed_peak_reserved(&self) -> Result<[u64; 2], Unknown> {
        self.replayed(|peaks| peaks.replayed_peak_reserved_bytes)
    }
}

impl Measured<'_> {
    /// What the figure says, which is `told` in it.
    pub(super) fn sentence(&self, figure: Figure, told: &str) -> String {
        let memory = &self.device.memory;
        let free = &memory.fragmentation;
        let reserved = size(memory.reserved_bytes);
        match figure {
            Figure::GapRatio => format!(
                "{told} of the {reserved} reserved is not held by the program (empty_cache() would give \
                 {} of it back)",
                size(free.releasable_bytes)
            ),
            Figure::InactiveSplitRatio => {
                format!(
                    "{told} of the {reserved} reserved is free in segments that are partly in use"
                )
            }
            Figure::StrandedRatio => format!(
                "{told} of the {reserved} reserved is free and stuck beside live blocks, out of reach \
                 of empty_cache()"
            ),
            Figure::ExternalRatio => format!(
                "{told} of the {} free lies outside the largest free block of {}",
                size(memory.blocks.inactive.bytes),
                size(free.largest_free_block_bytes)
            ),
            Figure::RoundingRatio => format!(
                "{told} of the {} in use is rounding: more than the program asked for",
                size(memory.active_bytes)
            ),
            Figure::Reserved => format!("{told} is reserved at the snapshot"),
            Figure::PeakReserved => format!("reserved memory peaks at {told}"),
            Figure::PeakAllocated => format!("allocated memory peaks at {told}"),
            Figure::Ooms => self.failures(),
            Figure::Retries => self.retried(),
            _ if figure.needs_baseline() => self.growth(figure, told),
            _ => format!("{}: {told}", figure.meaning()),
        }
    }

    fn failures(&self) -> String {
        let failed = counted(self.device.oom_count, "request");
        let last = self.device.ooms.last().map_or_else(String::new, |oom| {
            format!("; the last asked for {}, verdict {}", size(oom.requested_bytes), oom.verdict)
        });
        format!("{failed} failed{last}")
    }

    fn retried(&self) -> String {
        let verification = self.inferred.map(|one| &one.verification);
        let count = verification.map_or(0, |v| v.allocator.statistics().num_alloc_retries);
        let open = match verification.map_or(0, |v| v.ambiguous) {
            0 => String::new(),
            calls => format!(" (give or take {calls}: the trace leaves that many calls open)"),
        };
        let were = if count == 1 { "was" } else { "were" };
        let requests = counted(count, "request");
        format!("{requests} {were} tried again after everything cached was given back{open}")
    }

    fn growth(&self, figure: Figure, told: &str) -> String {
        let (kind, peaks) = match figure {
            Figure::GrowthPeakAllocated | Figure::GrowthRatioPeakAllocated => {
                ("allocated", self.replayed_peak_allocated())
            }
            _ => ("reserved", self.replayed_peak_reserved()),
        };
        let Ok([before, now]) = peaks else { return String::new() };
        let peak = format!("the peak of {kind} memory, replayed from an empty pool,");
        if before == now {
            return format!("{peak} is {}, as in the baseline", size(now));
        }
        let (verb, by) = match told.strip_prefix('-') {
            Some(less) => ("shrank", less),
            None => ("grew", told),
        };
        format!("{peak} {verb} by {by}, from {} to {}", size(before), size(now))
    }

    /// The lines that make the figure, as far as the report has them, and what their bytes are.
    pub(super) fn known_lines(&self, figure: Figure) -> Option<(Vec<LineShare>, &'static str)> {
        match figure {
            Figure::Reserved => {
                Some((LineShare::of(&self.device.top_lines), "held at the snapshot"))
            }
            Figure::PeakAllocated
            | Figure::GrowthPeakAllocated
            | Figure::GrowthRatioPeakAllocated => {
                let at_peak = self.device.at_peak.as_ref()?;
                Some((LineShare::of(&at_peak.by_line.rows), "held when allocated memory peaked"))
            }
            Figure::Ooms => {
                let last = self.device.ooms.last()?;
                let (frame, bytes) = (last.culprit.clone()?, last.requested_bytes);
                Some((vec![LineShare { frame, bytes }], "asked for by the request that failed"))
            }
            _ => None,
        }
    }

    /// What else the lines that make it are to be added up by, and what their bytes are.
    pub(super) fn contribution(&self, figure: Figure) -> Option<(Contribution, &'static str)> {
        match figure {
            Figure::GapRatio
            | Figure::InactiveSplitRatio
            | Figure::StrandedRatio
            | Figure::ExternalRatio => {
                Some((Contribution::KeptApart, "of free memory kept apart by its blocks"))
            }
            Figure::RoundingRatio => Some((Contribution::Rounding, "of rounding in its blocks")),
            Figure::PeakReserved | Figure::GrowthPeakReserved | Figure::GrowthRatioPeakReserved => {
                let entry = self.device.peak.reserved_event;
                Some((Contribution::HeldAfter(entry), "held when reserved memory peaked"))
            }
            _ => None,
        }
    }
}
