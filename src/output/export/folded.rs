//! Folded stacks: `outermost;..;innermost bytes`, one stack per line, for flame graphs.

use std::collections::BTreeMap;
use std::io::{self, Write};

use itertools::Itertools as _;

use super::recording::Recording;
use crate::base::ids::StackId;
use crate::stacks::frames::FrameReport;
use crate::study::PositionSelector;
use crate::study::lifetimes::is_live;

/// Collects the live memory of each recording at a position.
#[derive(Debug)]
pub struct FoldedWriter {
    at: PositionSelector,
    /// Whether the root frame is the snapshot.
    has_snapshots: bool,
    lines: BTreeMap<String, u64>,
}

impl FoldedWriter {
    /// The root frame is the device, or the rank or path of the snapshot if `has_snapshots`.
    pub fn new(at: PositionSelector, has_snapshots: bool) -> Self {
        Self { at, has_snapshots, lines: BTreeMap::new() }
    }

    /// Adds the devices of a snapshot that have the position; returns false if none has.
    pub fn add(&mut self, recording: &Recording<'_, '_>) -> bool {
        let stacks = recording.study.stacks();
        let mut has_position = false;
        for device in &recording.devices {
            let Some(position) = device.position(self.at) else { continue };
            has_position = true;
            let position = position as usize;
            let mut by_stack: BTreeMap<StackId, u64> = BTreeMap::new();
            let allocations = device.lives.allocations.iter();
            for one in allocations.filter(|one| is_live(one.start, one.freed_at(), &(position..position))) {
                let bytes = by_stack.entry(one.made_by).or_default();
                *bytes = bytes.saturating_add(device.lives.kind_of(one).bytes);
            }
            let snapshot = self.has_snapshots.then(|| snapshot_frame(recording));
            let root = snapshot.into_iter().chain([format!("device_{}", device.device.id())]).join(";");
            for (stack, live_bytes) in by_stack {
                let frames = stacks.frames_with_callers(stack).into_iter().rev();
                let mut labels = frames.map(|frame| folded_label(&stacks.frame_report(frame))).collect_vec();
                if labels.is_empty() {
                    labels.push(NO_STACK.to_owned());
                }
                let bytes = self.lines.entry(format!("{root};{}", labels.join(";"))).or_default();
                *bytes = bytes.saturating_add(live_bytes);
            }
        }
        has_position
    }

    /// Writes the lines, sorted.
    pub fn finish(self, out: &mut dyn Write) -> io::Result<()> {
        self.lines.iter().try_for_each(|(stack, bytes)| writeln!(out, "{stack} {bytes}"))
    }
}

fn snapshot_frame(recording: &Recording<'_, '_>) -> String {
    recording.rank.map_or_else(|| recording.path.replace([';', ' ', '\n', '\t'], "_"), |rank| format!("rank_{rank}"))
}

/// The frame of memory without a stack.
const NO_STACK: &str = "no_stack_recorded";

/// `model.py:88:forward`. Replaces `;`, which ends a frame, and whitespace, which ends a stack.
fn folded_label(frame: &FrameReport) -> String {
    let file = frame.file.rsplit(['/', '\\']).next().unwrap_or(&frame.file);
    let label = match (file, frame.line) {
        ("" | "??", _) => frame.name.clone(),
        (file, 0) => format!("{file}:{}", frame.name),
        (file, line) => format!("{file}:{line}:{}", frame.name),
    };
    label.replace(';', ":").replace(char::is_whitespace, "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_no_separators() {
        for (file, line, name, label) in [
            ("/app/model.py", 88, "forward", "model.py:88:forward"),
            ("??", 0, "at::bmm(at::Tensor const&)", "at::bmm(at::Tensor_const&)"),
            ("/app/my file;1.py", 3, "<module>", "my_file:1.py:3:<module>"),
        ] {
            assert_eq!(folded_label(&FrameReport::new(file.to_owned(), line, name.to_owned())), label);
        }
    }
}
