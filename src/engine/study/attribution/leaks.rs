//! The source lines whose memory grows from iteration to iteration.

use std::cmp::Reverse;

use rustc_hash::FxHashSet;
use serde::Serialize;

use super::kept_graphs::KeptGraphs;
use crate::base::ids::to_u32;
use crate::stacks::frames::{CodeLocation, LineId};
use crate::study::DeviceStudy;
use crate::study::iterations::{GrowingLine, Growth, GrowthKind};
use crate::study::memory::{sorted_by_bytes, sum_by_key};
use crate::study::variables::KeptByVariable;

/// A source line whose live memory grows with every iteration.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LeakSuspect {
    /// The line; one suspect gathers all stacks without a line.
    #[serde(flatten)]
    pub location: CodeLocation,
    /// The operation of one of its stacks; null if the stack shows none.
    pub operation: Option<String>,
    /// The first step of the growth, counted from 0.
    pub since_step: u32,
    /// Number of iterations that ended with more memory than the previous one.
    pub steps: u32,
    /// Number of steps from one growth to the next; 1 if every step grows.
    pub every_steps: u32,
    /// Average growth per step in bytes.
    pub bytes_per_step: u64,
    /// Average growth per step in blocks; 0 if the number of blocks does not grow with the bytes.
    pub blocks_per_step: f64,
    /// Live bytes of the line at the end.
    pub bytes: u64,
    /// Live blocks of the line at the end.
    pub blocks: u64,
}

/// Growth from iteration to iteration of the last loop. A step is a training step, or an iteration of a loop without any.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Leaks {
    /// The kind of growth; absent if nothing grows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<GrowthKind>,
    /// Growth per step of what is live between iterations, in bytes.
    pub bytes_per_step: u64,
    /// Device memory in bytes that is not allocated when the last iteration needs most, as the one before it did; absent
    /// if nothing grows or the device's capacity is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_bytes: Option<u64>,
    /// Number of steps until `remaining_bytes` is used up at this rate; absent without `remaining_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_left: Option<u64>,
    /// Graphs that stay after their backward pass; absent if no such graphs grow.
    #[serde(skip)]
    pub kept_graphs: Option<KeptGraphs>,
    /// The variable that keeps most of the growing memory; absent if that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<Box<KeptByVariable>>,
    /// The lines, by growth per step, descending, `--top` of them.
    pub suspects: Vec<LeakSuspect>,
    /// Number of suspects that are not listed.
    pub other_suspects: u64,
}

impl Leaks {
    /// Whether the growth covers the `missing` bytes, and the remaining memory lasts for fewer steps than it has grown.
    pub fn explain_shortfall(&self, missing: u64) -> bool {
        let (mut grown, mut longest) = (0_u64, 0);
        for suspect in &self.suspects {
            let steps = u64::from(suspect.steps).saturating_mul(suspect.every_steps.into());
            grown = grown.saturating_add(suspect.bytes_per_step.saturating_mul(steps));
            longest = longest.max(steps);
        }
        missing > 0 && grown >= missing && self.steps_left.is_none_or(|left| left < longest)
    }

    /// The growth per step on `device` in bytes; 0 if nothing grows.
    pub fn bytes_per_step(device: DeviceStudy<'_, '_>) -> u64 {
        device.growth().map_or(0, Growth::bytes_per_step)
    }

    /// The growth on `device`, whose memory has `capacity` bytes; the `top` lines that grow most.
    pub fn from_device(device: DeviceStudy<'_, '_>, top: usize, capacity: Option<u64>) -> Self {
        let Some(growth) = device.growth() else { return Self::default() };
        let mut by_line: Vec<(LineId, LeakSuspect)> = Vec::new();
        for growing in &growth.lines {
            let line = line_of_entry(device, growing.last_entry);
            match by_line.iter_mut().find(|(known, _)| *known == line) {
                Some((_, suspect)) => suspect.add(growing, growth),
                None => by_line.push((line, LeakSuspect::new(device, line, growing, growth))),
            }
        }
        let lines: FxHashSet<LineId> = by_line.iter().map(|(line, _)| *line).collect();
        let mut suspects: Vec<LeakSuspect> = by_line.into_iter().map(|(_, suspect)| suspect).collect();
        suspects.sort_by_key(|suspect| Reverse(suspect.bytes_per_step)); // stable: ties as they first appeared
        let other_suspects = suspects.len().saturating_sub(top) as u64;
        suspects.truncate(top);
        let bytes_per_step = growth.bytes_per_step();
        let remaining_bytes = capacity
            .map(|capacity| capacity.saturating_sub(growth.allocated_bytes).saturating_sub(growth.needed_bytes));
        let steps_left = remaining_bytes.and_then(|left| left.checked_div(bytes_per_step));
        Self {
            kind: Some(growth.kind),
            bytes_per_step,
            remaining_bytes,
            steps_left,
            kept_graphs: KeptGraphs::from_device(device),
            variable: growing_variable(device, &lines).map(Box::new),
            suspects,
            other_suspects,
        }
    }
}

impl LeakSuspect {
    fn new(device: DeviceStudy<'_, '_>, line: LineId, growing: &GrowingLine, growth: &Growth) -> Self {
        let stack = device.device().entry(growing.last_entry).extended_stack;
        let since =
            device.phases().steps.step_at(growing.first_entry).unwrap_or_else(|| to_u32(growing.first_iteration));
        let mut suspect = Self {
            location: device.stacks().code_location(line),
            operation: device.stacks().operation(stack),
            since_step: since,
            steps: u32::try_from(growing.iterations).unwrap_or(u32::MAX),
            every_steps: u32::try_from(growth.steps_per_iteration * growing.every_iterations).unwrap_or(u32::MAX),
            ..Self::default()
        };
        suspect.add(growing, growth);
        suspect
    }

    fn add(&mut self, growing: &GrowingLine, growth: &Growth) {
        let steps = growth.steps_per_iteration;
        self.bytes_per_step = self.bytes_per_step.saturating_add(growing.bytes_per_iteration / steps);
        #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
        let blocks = growing.blocks as f64 / (steps * growing.every_iterations) as f64;
        self.blocks_per_step += blocks;
        self.bytes = self.bytes.saturating_add(growing.live_bytes);
        self.blocks = self.blocks.saturating_add(growing.live_blocks);
    }
}

/// The source lines of `device` whose memory grows from iteration to iteration.
pub(super) fn growing_lines(device: DeviceStudy<'_, '_>) -> Vec<LineId> {
    let lines = device.growth().map(|growth| growth.lines.as_slice()).unwrap_or_default();
    lines.iter().map(|line| line_of_entry(device, line.last_entry)).collect()
}

/// The variable that keeps most of the memory that `lines` hold at the end of the trace.
fn growing_variable(device: DeviceStudy<'_, '_>, lines: &FxHashSet<LineId>) -> Option<KeptByVariable> {
    let variables = device.variables().filter(|_| device.window().end == device.device().len())?;
    let blocks = device.device().segments().flat_map(|segment| device.snapshot().blocks_of(segment));
    let grown = blocks.filter(|block| lines.contains(&device.stacks().line_id(block.extended_stack)));
    let sums = sorted_by_bytes(sum_by_key(grown.map(|block| (variables.of_block(block.address), block.size))));
    let all = sums.iter().fold(0, |all: u64, (_, sum)| all.saturating_add(sum.bytes));
    let (most, sum) = *sums.first()?;
    let variable = variables.row(most?, device.stacks());
    (variable.name.is_some() && sum.bytes > all / 2).then_some(variable)
}

fn line_of_entry(device: DeviceStudy<'_, '_>, entry: usize) -> LineId {
    device.stacks().line_id(device.device().entry(entry).extended_stack)
}
