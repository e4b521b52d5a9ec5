//! Folded stacks: `outermost;..;innermost bytes`, one stack per line, for flame graphs.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::holders::live_at;
use super::recording::{NoPosition, Recording};
use crate::output::formats::{NO_STACK, folded_label};
use crate::study::PositionSelector;

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

    /// Adds a snapshot.
    ///
    /// # Errors
    /// If the snapshot does not have the position.
    pub fn add(&mut self, recording: &Recording<'_, '_>) -> Result<(), NoPosition> {
        let positions = recording.positions(self.at)?;
        let stacks = recording.study.stacks();
        for (device, position) in recording.devices.iter().zip(positions) {
            let Some(position) = position else { continue }; // its trace does not have it
            for (key, held) in live_at(device, position) {
                let mut line = if self.has_snapshots { snapshot_frame(recording) + ";" } else { String::new() };
                line.push_str("device_");
                line.push_str(&device.device.id().to_string());
                let frames = stacks.frames_with_callers(key.stack);
                if frames.is_empty() {
                    line.push(';');
                    line.push_str(NO_STACK);
                }
                for frame in frames.into_iter().rev() {
                    line.push(';');
                    line.push_str(&folded_label(&stacks.frame_report(frame)));
                }
                let bytes = self.lines.entry(line).or_default();
                *bytes = bytes.saturating_add(held.bytes);
            }
        }
        Ok(())
    }

    /// Writes the lines, sorted.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(self, out: &mut dyn Write) -> io::Result<()> {
        self.lines.iter().try_for_each(|(stack, bytes)| writeln!(out, "{stack} {bytes}"))
    }
}

fn snapshot_frame(recording: &Recording<'_, '_>) -> String {
    recording.rank.map_or_else(|| recording.path.replace([';', ' ', '\n', '\t'], "_"), |rank| format!("rank_{rank}"))
}
