//! The page of `oomscope diff`: the answer first, then the figures, then who it was.

use super::super::sheet::Page;
use super::super::style::{Style, tail, wrap};
use super::super::words::{place, telling_frames};
use super::cells::{
    self, FIGURES, PHASES, RANKS, SETTINGS, SPACES, blocks, compared, figures, moments, moved,
    phases, pools, remarks, settings, share, steps, streams, word,
};
use crate::diff::{At, DeviceDiff, DiffReport, LineChange, Others, StackChange};
use crate::frames::FrameReport;
use crate::units::{count, counted, plain, signed_size, size};

/// Frames of a stack that are shown.
const FRAMES: usize = 5;

/// The page for a person.
pub fn diff_page(report: &DiffReport, style: Style) -> String {
    let mut page = Page::new(style);
    page.text(&style.strong(&report.summary));
    if let Some(fail_on) = &report.fail_on {
        for failure in &fail_on.failures {
            page.text(&style.alarm(&format!("FAILED: {}", plain(&failure.message))));
        }
    }
    page.line("");
    page.line(&format!("  before  {}", plain(&report.before)));
    page.line(&format!("  after   {}", plain(&report.after)));
    if let Some(ranks) = &report.ranks {
        page.heading(&format!(
            "{} in both, the worst first (allocated {})",
            counted(ranks.rows.len() as u64, "device"),
            ranks.rows.first().map_or("", |row| row.moment.as_str())
        ));
        let room = style.width.saturating_sub(75).max(14);
        let rows = cells::ranks(ranks, style.pick("→", "->")).into_iter().map(|mut row| {
            if let Some(name) = row.first_mut() {
                *name = tail(name, room, style);
            }
            row
        });
        page.table(&RANKS, &[0], rows.collect());
        if let Some(worst) = ranks.rows.first() {
            page.heading(&format!("The worst in full: {}", plain(&worst.name)));
        }
    }
    if !report.settings_changed.is_empty() {
        page.heading("Settings that differ");
        page.table(&SETTINGS, &[0, 1, 2], settings(&report.settings_changed));
    }
    for device in &report.devices {
        page.device_diff(device, report.at, report.devices.len() > 1);
    }
    let remarks = remarks(report);
    if !remarks.is_empty() {
        page.heading("Notes");
        for remark in remarks {
            let wrapped = wrap(&remark, style.width.saturating_sub(4), "    ");
            page.line(&format!("  {} {wrapped}", style.pick("•", "-")));
        }
    }
    page.out
}

impl Page {
    fn device_diff(&mut self, device: &DeviceDiff, at: At, is_one_of_several: bool) {
        self.heading(&format!("Device {}", device.device));
        if is_one_of_several {
            self.text(&device.summary);
        }
        if let Some(compared) = compared(device) {
            self.text(&compared);
        }
        if device.at == At::Peak {
            self.text(&format!("The peak: {}", moments(device)));
        }
        if let Some(moved) = moved(device) {
            self.text(&moved);
        }
        self.table(&FIGURES, &[0], figures(device, at));
        self.lines(device);
        if device.at == at {
            self.phases(device);
        }
        self.stacks(device);
        for (title, first, rows) in
            [("Pools", "pool", pools(device)), ("Streams", "stream", streams(device))]
        {
            if !rows.is_empty() {
                self.heading(title);
                let mut header = SPACES;
                header[0] = first;
                self.table(&header, &[0], rows);
            }
        }
    }

    fn phases(&mut self, device: &DeviceDiff) {
        if device.by_phase.is_empty() {
            return;
        }
        self.heading("Peak allocated in each phase");
        self.table(&PHASES, &[0], phases(device));
        if let Some(steps) = steps(device) {
            let wrapped = wrap(&steps, self.style.width.saturating_sub(2), "  ");
            self.line(&format!("  {wrapped}"));
        }
    }

    fn lines(&mut self, device: &DeviceDiff) {
        /// Below so many columns the numbers of blocks are left out.
        const NARROW: usize = 90;
        const BLOCKS: usize = 4;
        if device.lines.is_empty() {
            return;
        }
        self.heading(&format!("Who holds more or less {}, by line", device.moment));
        let is_narrow = self.style.width < NARROW;
        let other_columns = if is_narrow { 48 } else { 56 };
        let room = self.style.width.saturating_sub(other_columns).max(24);
        let mut rows: Vec<Vec<String>> =
            device.lines.iter().map(|line| self.line_cells(line, room)).collect();
        rows.extend(self.rest(&device.other_lines, "everything else"));
        let all = device.delta.allocated_bytes;
        let (before, after) = (device.before.unwrap_or_default(), device.after.unwrap_or_default());
        rows.push(vec![
            signed_size(all),
            share(before.allocated_bytes, all),
            size(before.allocated_bytes),
            size(after.allocated_bytes),
            String::new(),
            "all of it".to_owned(),
        ]);
        let mut header = vec!["change", "", "before", "after", "blocks", "allocated by"];
        if is_narrow {
            header.remove(BLOCKS);
            for row in &mut rows {
                row.remove(BLOCKS);
            }
        }
        self.table(&header, &[header.len() - 1], rows);
    }

    fn rest(&self, others: &Others, name: &str) -> Option<Vec<String>> {
        let held = &others.held;
        (others.count > 0).then(|| {
            vec![
                signed_size(held.delta_bytes),
                share(held.before_bytes, held.delta_bytes),
                size(held.before_bytes),
                size(held.after_bytes),
                blocks(held, self.arrow()),
                name.to_owned(),
            ]
        })
    }

    fn arrow(&self) -> &'static str {
        self.style.pick("→", "->")
    }

    fn line_cells(&self, line: &LineChange, room: usize) -> Vec<String> {
        let held = &line.held;
        let shown = |frame: &FrameReport| {
            let name = format!(" in {}", frame.name);
            let left = room.saturating_sub(name.chars().count()).max(16);
            format!("{}{name}", tail(&place(frame), left, self.style))
        };
        let mut cell = match (&line.frame, &line.operation) {
            (Some(frame), _) => shown(frame),
            (None, None) => "no stack recorded".to_owned(),
            (None, Some(_)) => "no line of the user's code".to_owned(),
        };
        if let Some(from) = &line.moved_from {
            cell =
                format!("{cell}\n  was {}", tail(&place(from), room.saturating_sub(6), self.style));
        }
        if let Some(operation) = &line.operation {
            cell = format!("{cell}\n  {}", tail(operation, room.saturating_sub(2), self.style));
        }
        let share = match share(held.before_bytes, held.delta_bytes) {
            share if held.before_blocks > 0 && held.after_blocks > 0 => share,
            _ => word(line.status).to_owned(),
        };
        vec![
            signed_size(held.delta_bytes),
            share,
            size(held.before_bytes),
            size(held.after_bytes),
            blocks(held, self.arrow()),
            cell,
        ]
    }

    fn stacks(&mut self, device: &DeviceDiff) {
        let with_frames = device.stacks.iter().filter(|stack| !stack.frames.is_empty());
        if with_frames.count() == 0 {
            return;
        }
        let counts = &device.stack_counts;
        self.heading(&format!(
            "By stack: {} new, {} gone, {} grown, {} shrunk, {} unchanged",
            count(counts.new),
            count(counts.gone),
            count(counts.grown),
            count(counts.shrunk),
            count(counts.unchanged)
        ));
        for stack in &device.stacks {
            self.stack(stack);
        }
        let others = &device.other_stacks;
        if others.count > 0 {
            let held = &others.held;
            self.line(&format!(
                "  {}  everything else: {}, {} {} {}",
                signed_size(held.delta_bytes),
                counted(others.count, "stack"),
                size(held.before_bytes),
                self.arrow(),
                size(held.after_bytes)
            ));
        }
    }

    fn stack(&mut self, stack: &StackChange) {
        let held = &stack.held;
        let arrow = self.arrow();
        self.line(&format!(
            "  {}  {}: {} {arrow} {}, blocks {}",
            signed_size(held.delta_bytes),
            word(stack.status),
            size(held.before_bytes),
            size(held.after_bytes),
            blocks(held, arrow)
        ));
        let (frames, _) = telling_frames(&stack.frames);
        let room = self.style.width.saturating_sub(8);
        if frames.is_empty() {
            let text = match stack.frames.first() {
                None => "no stack recorded".to_owned(),
                Some(frame) => tail(&frame.name, room, self.style),
            };
            self.line(&format!("      {text}"));
        }
        for frame in frames.iter().take(FRAMES) {
            let name = format!(" in {}", frame.name);
            let left = room.saturating_sub(name.chars().count()).max(16);
            self.line(&format!("      {}{name}", tail(&place(frame), left, self.style)));
        }
        if frames.len() > FRAMES {
            self.line(&format!(
                "      ({} more)",
                counted((frames.len() - FRAMES) as u64, "frame")
            ));
        }
    }
}
