//! The same as Markdown, for a step summary or a comment on a pull request.

use super::super::markdown::{Markdown, code, text};
use super::super::words::{place, place_in, telling_frames};
use super::cells::{
    self, FIGURES, PHASES, RANKS, SETTINGS, SPACES, blocks, compared, figures, moved, phases,
    pools, remarks, settings, share, steps, streams, word,
};
use crate::diff::{At, DeviceDiff, DiffReport, Held, LineChange, StackChange};
use crate::units::{signed_size, size};

/// The diff as GitHub-flavoured Markdown.
pub fn diff_markdown(report: &DiffReport) -> String {
    let mut page = Markdown::default();
    page.paragraph(&format!("**{}**", text(&report.summary)));
    if let Some(fail_on) = &report.fail_on {
        for failure in &fail_on.failures {
            page.paragraph(&format!("**FAILED**: {}", text(&failure.message)));
        }
    }
    page.paragraph(&format!("{} → {}", code(&report.before), code(&report.after)));
    if let Some(ranks) = &report.ranks {
        let moment = ranks.rows.first().map_or("", |row| row.moment.as_str());
        page.paragraph(&format!("### Ranks, the worst first (allocated {moment})"));
        let rows = cells::ranks(ranks, "→").into_iter().map(|mut row| {
            if let Some(name) = row.first_mut() {
                *name = code(name);
            }
            row
        });
        page.table(&RANKS, 1, &rows.collect::<Vec<_>>());
        if let Some(worst) = ranks.rows.first() {
            page.paragraph(&format!("### The worst in full: {}", code(&worst.name)));
        }
    }
    if !report.settings_changed.is_empty() {
        let rows: Vec<Vec<String>> = settings(&report.settings_changed)
            .into_iter()
            .map(|row| row.iter().map(|cell| text(cell)).collect())
            .collect();
        page.table(&SETTINGS, SETTINGS.len(), &rows);
    }
    for device in &report.devices {
        page.paragraph(&format!("### Device {}", device.device));
        if report.devices.len() > 1 {
            page.paragraph(&text(&device.summary));
        }
        device_tables(&mut page, device, report.at);
    }
    for remark in remarks(report) {
        page.line(&format!("- {}", text(&remark)));
    }
    page.out
}

fn device_tables(page: &mut Markdown, device: &DeviceDiff, at: At) {
    if let Some(compared) = compared(device) {
        page.paragraph(&text(&compared));
    }
    if let Some(moved) = moved(device) {
        page.paragraph(&text(&moved));
    }
    page.table(&FIGURES, 1, &figures(device, at));
    if !device.lines.is_empty() {
        let mut rows: Vec<Vec<String>> = device.lines.iter().map(line).collect();
        let others = &device.other_lines;
        if others.count > 0 {
            rows.push(row("everything else".to_owned(), "", &others.held));
        }
        page.table(&["allocated by", "", "change", "", "before", "after", "blocks"], 2, &rows);
    }
    if device.stacks.iter().any(|stack| !stack.frames.is_empty()) {
        page.line("<details><summary>by stack</summary>");
        page.line("");
        page.line("```");
        for stack in &device.stacks {
            stack_lines(page, stack);
        }
        page.paragraph("```\n\n</details>");
    }
    if device.at == at && !device.by_phase.is_empty() {
        page.table(&PHASES, 1, &phases(device));
        if let Some(steps) = steps(device) {
            page.paragraph(&text(&steps));
        }
    }
    for (first, rows) in [("pool", pools(device)), ("stream", streams(device))] {
        if !rows.is_empty() {
            let mut header = SPACES;
            header[0] = first;
            page.table(&header, 1, &rows);
        }
    }
}

fn row(name: String, status: &str, held: &Held) -> Vec<String> {
    vec![
        name,
        status.to_owned(),
        signed_size(held.delta_bytes),
        share(held.before_bytes, held.delta_bytes),
        size(held.before_bytes),
        size(held.after_bytes),
        blocks(held, "→"),
    ]
}

fn line(line: &LineChange) -> Vec<String> {
    let name = match (&line.frame, &line.operation) {
        (Some(frame), _) => code(&place_in(frame)),
        (None, Some(operation)) => format!("(no line of the user's code) {}", code(operation)),
        (None, None) => "(no stack recorded)".to_owned(),
    };
    let moved = match &line.moved_from {
        Some(from) => format!("{name}, was {}", code(&place(from))),
        None => name,
    };
    row(moved, word(line.status), &line.held)
}

fn stack_lines(page: &mut Markdown, stack: &StackChange) {
    let held = &stack.held;
    page.line(&format!(
        "{} {}: {} → {}, blocks {}",
        signed_size(held.delta_bytes),
        word(stack.status),
        size(held.before_bytes),
        size(held.after_bytes),
        blocks(held, "→")
    ));
    for frame in telling_frames(&stack.frames).0 {
        page.line(&format!("    {} {}", place(frame), frame.name).replace("```", "'''"));
    }
}
