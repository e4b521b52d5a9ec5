//! The recordings that a fit starts from.

use super::reduction::{LaunchConditions, Scratch};
use crate::allocator::device::GpuModel;
use crate::base::ids::StackId;
use crate::replay::ops::Script;
use crate::stacks::frames::{CodeLocation, LineId, UNKNOWN_NODE};
use crate::stacks::phases::Phase;
use crate::study::{DeviceStudy, Study};

/// A snapshot, and the size at which the program ran.
#[derive(Debug, Clone, Copy)]
pub struct FitInput<'s, 'a> {
    /// The batch or length of this run.
    pub size: u64,
    /// Path of the snapshot, for messages.
    pub path: &'s str,
    /// The recording.
    pub study: &'s Study<'a>,
}

/// The recording of one device.
#[derive(Debug)]
pub(in crate::whatif) struct SizedRecording<'s, 'a> {
    pub(super) size: u64,
    pub(in crate::whatif) device: DeviceStudy<'s, 'a>,
    /// Has the block of each request after those from before the recording.
    pub(super) script: Script,
    /// In the order of the program's requests.
    pub(super) requests: Vec<SizedRequest>,
    /// The GPU, if the recorder named it and it is known.
    pub(super) gpu: Option<&'static GpuModel>,
    /// The conditions under which reductions are launched, if they are known.
    pub(super) conditions: Option<LaunchConditions>,
}

/// One request of the program.
#[derive(Debug, Clone, Copy)]
pub(super) struct SizedRequest {
    pub(super) entry_index: usize,
    pub(super) stack: StackId,
    pub(super) bytes: u64,
    /// Number of requests made before its block was freed; `None` if the free is not recorded.
    pub(super) requests_before_free: Option<usize>,
    /// The buffers of the reduction that has this output. The next two requests are theirs.
    pub(super) scratch: Option<Scratch>,
    /// A buffer of a reduction.
    pub(super) is_scratch: bool,
}

impl<'s, 'a> SizedRecording<'s, 'a> {
    /// The recording of device `id`, if it has a trace.
    pub(super) fn from_input(input: &FitInput<'s, 'a>, id: u64) -> Option<Self> {
        let device = input.study.device(id).filter(|device| !device.device().is_empty())?;
        let script = Script::from_program(device.program());
        let requests = script.blocks.iter().filter_map(|block| {
            Some(SizedRequest {
                entry_index: device.program().operations[block.allocated_at? as usize].entry_index as usize,
                stack: block.stack,
                bytes: block.bytes,
                requests_before_free: block.freed_at.map(|op| script.requests_before(op)),
                scratch: None,
                is_scratch: false,
            })
        });
        Some(Self { size: input.size, gpu: None, conditions: None, device, requests: requests.collect(), script })
    }

    /// The source line `line`; `request` is one of its requests.
    pub(super) fn code_location(&self, line: LineId, request: Option<&SizedRequest>) -> CodeLocation {
        let location = self.device.stacks().code_location(line);
        let phase = request.map(|request| self.device.phases().phase_at(request.entry_index));
        let is_backward = phase == Some(Phase::Backward) && location.frame.is_none() && location.backward.is_none();
        let backward = if is_backward { Some(UNKNOWN_NODE.to_owned()) } else { location.backward };
        CodeLocation { backward, ..location }
    }

    /// Whether the last request failed, so that later ones are not recorded.
    pub(super) fn ends_in_failure(&self) -> bool {
        let last = self.requests.last().map(|request| request.entry_index);
        last.is_some() && self.device.device().failed_requests().last() == last
    }
}

/// The sizes, the device and the settings of a prediction.
#[derive(Debug, Clone, Copy)]
pub struct FitOptions<'o> {
    /// Sizes to predict; if empty, the recorded ones, some larger ones, and those around the largest that fits.
    pub sizes: &'o [u64],
    /// Device memory in bytes.
    pub capacity: Option<u64>,
    /// The GPU to predict for, if it is known: how its kernels are launched.
    pub gpu: Option<&'static GpuModel>,
    /// Options that override the recorded settings.
    pub settings: Option<&'o str>,
    /// Only multiples of this are searched.
    pub multiple: u64,
}
