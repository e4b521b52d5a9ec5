//! The figure that each code is about, in a number and in a sentence.

use super::baseline::Peaks;
use super::code::Code;
use super::limits::Amount;
use crate::analysis::{Contribution, DeviceReport, LineShare};
use crate::replay::Inferred;
use crate::units::{change, counted, ratio, size};

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

const NO_TRACE: &str = "no history was recorded; call \
                        torch.cuda.memory._record_memory_history() before the work";

impl Measured<'_> {
    /// The figure; or why the file cannot tell.
    pub(super) fn figure(&self, code: Code) -> Result<Amount, String> {
        let memory = &self.device.memory;
        let free = &memory.fragmentation;
        let traced = |amount: Amount| {
            if self.device.timeline.is_some() { Ok(amount) } else { Err(NO_TRACE.to_owned()) }
        };
        match code {
            Code::GapRatio => Ok(Amount::Ratio(free.gap_ratio)),
            Code::InactiveSplitRatio => Ok(Amount::Ratio(free.inactive_split_ratio)),
            Code::StrandedRatio => Ok(Amount::Ratio(free.stranded_ratio)),
            Code::ExternalRatio => Ok(Amount::Ratio(free.external_ratio)),
            Code::RoundingRatio => Ok(Amount::Ratio(free.rounding_ratio)),
            Code::Reserved => Ok(Amount::bytes(memory.reserved_bytes)),
            Code::PeakReserved => traced(Amount::bytes(self.device.peak.reserved_bytes)),
            Code::PeakAllocated => traced(Amount::bytes(self.device.peak.allocated_bytes)),
            Code::Ooms => traced(Amount::Count(self.device.oom_count)),
            Code::Retries => self.retries(),
            Code::GrowthPeakAllocated | Code::GrowthPeakReserved => {
                let (before, now) = self.compared(code)?;
                Ok(Amount::Bytes(change(before, now)))
            }
            Code::GrowthRatioPeakAllocated | Code::GrowthRatioPeakReserved => {
                let (before, now) = self.compared(code)?;
                let grown = match now.checked_sub(before) {
                    Some(more) if before == 0 && more > 0 => {
                        return Err("the peak of the baseline is 0".to_owned());
                    }
                    Some(more) => ratio(more, before),
                    None => -ratio(before - now, before),
                };
                Ok(Amount::Ratio(grown))
            }
        }
    }

    fn retries(&self) -> Result<Amount, String> {
        let inferred = self.inferred.filter(|one| one.verification.recorded > 0);
        let verification = &inferred.ok_or_else(|| NO_TRACE.to_owned())?.verification;
        if !verification.is_exact() {
            return Err(format!(
                "the model and the recording part at entry {}: see `oomscope replay`",
                verification.matched
            ));
        }
        Ok(Amount::Count(verification.allocator.statistics().num_alloc_retries))
    }

    /// The peak of the baseline and the one of now.
    fn compared(&self, code: Code) -> Result<(u64, u64), String> {
        let now = self.now.ok_or_else(|| NO_TRACE.to_owned())?;
        let before = self.before.ok_or_else(|| {
            format!(
                "the baseline has no device {} of {}; save it again with --save-baseline",
                now.device, now.snapshot
            )
        })?;
        let of = |peaks: &Peaks| match code {
            Code::GrowthPeakAllocated | Code::GrowthRatioPeakAllocated => {
                peaks.replayed_peak_allocated_bytes
            }
            _ => peaks.replayed_peak_reserved_bytes,
        };
        Ok((of(before), of(now)))
    }

    /// What the figure says, which is `told` in it.
    pub(super) fn sentence(&self, code: Code, told: &str) -> String {
        let memory = &self.device.memory;
        let free = &memory.fragmentation;
        let reserved = size(memory.reserved_bytes);
        match code {
            Code::GapRatio => format!(
                "{told} of the {reserved} reserved is not held by the program (empty_cache() would give \
                 {} of it back)",
                size(free.releasable_bytes)
            ),
            Code::InactiveSplitRatio => {
                format!(
                    "{told} of the {reserved} reserved is free in segments that are partly in use"
                )
            }
            Code::StrandedRatio => format!(
                "{told} of the {reserved} reserved is free and stuck beside live blocks, out of reach \
                 of empty_cache()"
            ),
            Code::ExternalRatio => format!(
                "{told} of the {} free lies outside the largest free block of {}",
                size(memory.blocks.inactive.bytes),
                size(free.largest_free_block_bytes)
            ),
            Code::RoundingRatio => format!(
                "{told} of the {} in use is rounding: more than the program asked for",
                size(memory.active_bytes)
            ),
            Code::Reserved => format!("{told} is reserved at the snapshot"),
            Code::PeakReserved => format!("reserved memory peaks at {told}"),
            Code::PeakAllocated => format!("allocated memory peaks at {told}"),
            Code::Ooms => self.failures(),
            Code::Retries => self.retried(),
            Code::GrowthPeakAllocated
            | Code::GrowthPeakReserved
            | Code::GrowthRatioPeakAllocated
            | Code::GrowthRatioPeakReserved => self.growth(code, told),
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

    fn growth(&self, code: Code, told: &str) -> String {
        let kind = match code {
            Code::GrowthPeakAllocated | Code::GrowthRatioPeakAllocated => "allocated",
            _ => "reserved",
        };
        let Ok((before, now)) = self.compared(code) else { return String::new() };
        let (before_told, now_told) = (size(before), size(now));
        let (verb, told) = match told.strip_prefix('-') {
            Some(less) => ("shrank", less),
            None => ("grew", told),
        };
        let peak = format!("the peak of {kind} memory, replayed from an empty pool,");
        if before == now {
            format!("{peak} is {now_told}, as in the baseline")
        } else {
            format!("{peak} {verb} by {told}, from {before_told} to {now_told}")
        }
    }

    /// The lines that make the figure, as far as the report has them, and what their bytes are.
    pub(super) fn known_lines(&self, code: Code) -> Option<(Vec<LineShare>, &'static str)> {
        match code {
            Code::Reserved => Some((LineShare::of(&self.device.top_lines), "held at the snapshot")),
            Code::PeakAllocated | Code::GrowthPeakAllocated | Code::GrowthRatioPeakAllocated => {
                let at_peak = self.device.at_peak.as_ref()?;
                Some((LineShare::of(&at_peak.by_line.rows), "held when allocated memory peaked"))
            }
            Code::Ooms => {
                let last = self.device.ooms.last()?;
                let (frame, bytes) = (last.culprit.clone()?, last.requested_bytes);
                Some((vec![LineShare { frame, bytes }], "asked for by the request that failed"))
            }
            _ => None,
        }
    }

    /// What else the lines that make it are to be added up by, and what their bytes are.
    pub(super) fn contribution(&self, code: Code) -> Option<(Contribution, &'static str)> {
        match code {
            Code::GapRatio
            | Code::InactiveSplitRatio
            | Code::StrandedRatio
            | Code::ExternalRatio => {
                Some((Contribution::KeptApart, "of free memory kept apart by its blocks"))
            }
            Code::RoundingRatio => Some((Contribution::Rounding, "of rounding in its blocks")),
            Code::PeakReserved | Code::GrowthPeakReserved | Code::GrowthRatioPeakReserved => {
                let entry = self.device.peak.reserved_event;
                Some((Contribution::HeldAfter(entry), "held when reserved memory peaked"))
            }
            _ => None,
        }
    }
}
