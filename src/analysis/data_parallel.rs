//! `torch.nn.DataParallel`, which gathers outputs and gradients on one device.

use super::advice::{Advice, DataParallelImbalance};
use super::device::DeviceReport;
use crate::allocator::verdict::Verdict;
use crate::base::ids::{FrameId, StackId};
use crate::stacks::frames::{FrameReport, Origin, forward_slashes};
use crate::study::{DeviceStudy, Study};

/// Files and functions of `DataParallel`.
const DATA_PARALLEL_FILES: [&str; 2] = ["torch/nn/parallel/data_parallel.py", "torch/nn/parallel/parallel_apply.py"];
const DATA_PARALLEL_FUNCTION: &str = "parallel_apply";
/// The device is an outlier if its peak is at least `MIN_RATIO.0 / MIN_RATIO.1` of any other's.
const MIN_RATIO: (u64, u64) = (3, 2);

/// Marks the device of `devices` on which `torch.nn.DataParallel` gathers, if its peak is far above the others'.
pub(super) fn mark_imbalance(study: &Study<'_>, devices: &mut [DeviceReport]) {
    let peaks: Vec<u64> = devices.iter().map(|device| device.peak.allocated_bytes).collect();
    let highest = (0..peaks.len()).rev().max_by_key(|device| peaks[*device]);
    let others = |highest: usize| (0..peaks.len()).filter(|other| *other != highest).map(|other| peaks[other]).max();
    let Some((highest, others_peak_bytes)) = highest.and_then(|highest| Some((highest, others(highest)?))) else {
        return;
    };
    let peak_bytes = peaks[highest];
    let is_outlier = peak_bytes.saturating_mul(MIN_RATIO.1) >= others_peak_bytes.saturating_mul(MIN_RATIO.0);
    if others_peak_bytes == 0 || !is_outlier {
        return;
    }
    let mut calls = find_calls(study).peekable();
    if calls.peek().is_none() {
        return;
    }
    let called_at = calls.flatten().next();
    let (device, imbalance) =
        (&mut devices[highest], DataParallelImbalance { called_at, peak_bytes, others_peak_bytes });
    let is_full =
        device.ooms.last().is_some_and(|oom| matches!(oom.verdict, Verdict::Capacity | Verdict::Fragmentation));
    // Growth and the like would fill a device with an equal share, too.
    let is_only_load = matches!(
        device.advice.first(),
        Some(
            Advice::NothingHelps(..)
                | Advice::Guess(..)
                | Advice::LimitInput(_)
                | Advice::Change(..)
                | Advice::GoOn(_)
                | Advice::Try(..)
                | Advice::Standard(_)
                | Advice::UnknownCapacity(_)
        )
    );
    if is_full && is_only_load {
        device.advice.insert(0, Advice::Balance(imbalance.clone()));
    }
    device.data_parallel = Some(imbalance);
}

/// For each stack of `DataParallel`, the line outside PyTorch that calls the model, if the stack shows it.
fn find_calls<'s>(study: &'s Study<'_>) -> impl Iterator<Item = Option<FrameReport>> + 's {
    let snapshot = study.snapshot();
    let is_data_parallel = |frame: FrameId| {
        let frame = snapshot.stacks.frame(frame);
        let file = forward_slashes(snapshot.text(frame.file));
        snapshot.text(frame.name) == DATA_PARALLEL_FUNCTION
            || DATA_PARALLEL_FILES.iter().any(|known| file.ends_with(known))
    };
    let readers = study.devices().next().map(DeviceStudy::stacks);
    readers.into_iter().flat_map(move |reader| {
        (0..snapshot.stacks.len()).map(StackId::from_index).filter_map(move |stack| {
            let frames = snapshot.stacks.frames(stack);
            let outside = frames.iter().rposition(is_data_parallel)? + 1;
            let is_code = |frame: &FrameId| matches!(reader.origin(*frame), Origin::User | Origin::Package);
            Some(frames.iter().skip(outside).find(is_code).map(|frame| reader.frame_report(frame)))
        })
    })
}
