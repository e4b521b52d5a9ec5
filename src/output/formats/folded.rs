//! Differential folded stacks: `outermost;..;innermost before after`, one stack per line.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::compare::diff::DiffReport;
use crate::stacks::frames::FrameReport;

/// The two-column form of `difffolded.pl` and `inferno-diff-folded`, in bytes. The root frame is the device.
pub fn diff_folded(report: &DiffReport) -> String {
    let mut folded: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for device in &report.devices {
        for stack in &device.all_stacks {
            let mut line = format!("device_{}", device.device);
            if stack.frames.is_empty() {
                line.push(';');
                line.push_str(NO_STACK);
            }
            for frame in stack.frames.iter().rev() {
                line.push(';');
                line.push_str(&folded_label(frame));
            }
            let (before, after) = folded.entry(line).or_default();
            *before = before.saturating_add(stack.held.before_bytes);
            *after = after.saturating_add(stack.held.after_bytes);
        }
    }
    let mut out = String::new();
    for (stack, (before, after)) in folded {
        let _ = writeln!(out, "{stack} {before} {after}");
    }
    out
}

/// The frame of memory without a stack.
pub(crate) const NO_STACK: &str = "no_stack_recorded";

/// `model.py:88:forward`. Replaces `;`, which ends a frame, and whitespace, which ends a stack.
pub(crate) fn folded_label(frame: &FrameReport) -> String {
    let file = frame.file.rsplit(['/', '\\']).next().unwrap_or(&frame.file);
    let label = match (file, frame.line) {
        ("" | "??", _) => frame.name.clone(),
        (file, 0) => format!("{file}:{}", frame.name),
        (file, line) => format!("{file}:{line}:{}", frame.name),
    };
    label
        .chars()
        .map(|c| {
            if c == ';' {
                ':'
            } else if c.is_whitespace() {
                '_'
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_no_separators() {
        let frame = |file: &str, line, name: &str| {
            folded_label(&FrameReport { file: file.to_owned(), line, name: name.to_owned() })
        };
        assert_eq!(frame("/app/model.py", 88, "forward"), "model.py:88:forward");
        assert_eq!(frame("??", 0, "at::bmm(at::Tensor const&)"), "at::bmm(at::Tensor_const&)");
        assert_eq!(frame("/app/my file;1.py", 3, "<module>"), "my_file:1.py:3:<module>");
    }
}
