//! The requests of each source line by step, for comparison of a rank with its peers in the same step.

use std::collections::BTreeMap;

use crate::base::ids::StackId;
use crate::base::intern::SeededMap;
use crate::snapshot::{Action, TraceEntry};
use crate::stacks::frames::{CodeLocation, LineId};
use crate::study::DeviceStudy;

/// The maximum number of lines: data comes first.
const MAX_LINES: usize = 64;
/// Earlier steps are not compared.
const MAX_STEPS: usize = 32;
/// Smaller requests are for numbers about the data, unless a line makes no others.
const MIN_BYTES: u64 = 4096;

/// The requests of a device.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct StepRequests {
    /// The step of its failure, or else of its peak, counted from the start of the recording.
    pub(super) step: usize,
    /// The number of recorded steps that are compared.
    pub(super) steps: usize,
    /// In the order of the first requests of that step; then lines that it does not have.
    pub(super) lines: Vec<LineRequests>,
}

/// The requests of a line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LineRequests {
    pub(super) location: CodeLocation,
    /// The line is called by a module, so it does not load data.
    pub(super) in_module: bool,
    /// By step, the size of the first request that is not tiny: workspaces and buckets come later.
    pub(super) bytes: BTreeMap<usize, u64>,
}

impl LineRequests {
    /// The bytes in `step`; without such a step, in the last one.
    pub(super) fn bytes_in(&self, step: usize) -> Option<u64> {
        self.bytes.get(&step).or_else(|| Some(self.bytes.last_key_value()?.1)).copied()
    }

    /// Whether at least half of the steps run the line.
    pub(super) fn is_usual(&self, requests: &StepRequests) -> bool {
        self.bytes.len() * 2 >= requests.steps
    }
}

impl StepRequests {
    /// `entry` is that of the failure or the peak.
    pub(super) fn new(device: DeviceStudy<'_, '_>, entry: u64) -> Self {
        let ends: Vec<usize> = device.phases().steps.ends().iter().map(|end| *end as usize).collect();
        let window = device.window();
        let step = usize::try_from(entry).map_or(0, |entry| ends.partition_point(|end| *end < entry));
        let bounds = [vec![window.start], ends.iter().map(|end| end + 1).collect(), vec![window.end]].concat();
        let mut found = Self { step, steps: ends.len().min(MAX_STEPS) + 1, lines: Vec::new() };
        let (mut row_of_line, mut row_of_stack) = (BTreeMap::new(), SeededMap::default());
        let others = (0..=ends.len()).rev().filter(|other| *other != step).take(MAX_STEPS);
        for step in std::iter::once(step).chain(others) {
            let mut bytes_of_row = [None; MAX_LINES];
            for entry in bounds[step]..bounds[step + 1] {
                if !matches!(device.device().action(entry), Some(Action::Alloc | Action::Oom)) {
                    continue;
                }
                let TraceEntry { size, extended_stack: stack, .. } = device.device().entry(entry);
                let row = *row_of_stack.entry(stack).or_insert_with(|| found.row(device, stack, &mut row_of_line));
                if let Some(bytes) = row.and_then(|row| bytes_of_row.get_mut(row)) {
                    *bytes = bytes.filter(|bytes| *bytes >= MIN_BYTES).or_else(|| (*bytes).max(Some(size)));
                }
            }
            for (line, bytes) in found.lines.iter_mut().zip(bytes_of_row) {
                line.bytes.extend(bytes.map(|bytes| (step, bytes)));
            }
        }
        found
    }

    /// The row of the line of `stack`, added if it is new; `None` if there are too many.
    fn row(
        &mut self,
        device: DeviceStudy<'_, '_>,
        stack: StackId,
        row_of_line: &mut BTreeMap<LineId, usize>,
    ) -> Option<usize> {
        let (stacks, new) = (device.stacks(), self.lines.len());
        let line = stacks.line_id(stack);
        let row = row_of_line.get(&line).copied().or_else(|| (new < MAX_LINES).then_some(new))?;
        if row == new {
            let model_call = stacks.model_call(stack);
            // A wrapper such as DistributedDataParallel moves data to the device within its own call.
            let is_inner = model_call != line.frame || stacks.module_calls(stack) > 1;
            let in_module = line.is_backward || (model_call.is_some() && is_inner);
            self.lines.push(LineRequests { location: stacks.code_location(line), in_module, bytes: BTreeMap::new() });
            row_of_line.insert(line, row);
        }
        Some(row)
    }
}
