//! The change of a device since its baseline, line by line.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use itertools::Itertools as _;
use serde::Serialize;

use super::entries::{BaselineEntry, DeviceTotals, MeasuredDevice, MeasuredLine};
use super::measure::min_line_bytes;
use crate::analysis::group;
use crate::base::units::{count, escape_text, saturated, signed_size, size};

/// Maximum number of changed lines in the text.
const MAX_LINES: usize = 5;

/// The comparison with an entry of a baseline.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BaselineComparison {
    /// The file, as given; with `--base` the directory.
    pub path: String,
    /// The name of the entry.
    pub entry: String,
    /// `added` or `updated` if the file was written; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<&'static str>,
    /// Why this run may not replace the entry; absent if it may, or need not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_written: Option<String>,
    /// The devices of this run.
    pub devices: Vec<DeviceChange>,
    /// The changes in sentences: first the lines, then the totals. Empty if nothing changed.
    pub text: Vec<String>,
    /// The largest change and the totals of the device whose peak grew most; `None` if nothing changed.
    #[serde(skip)]
    pub headline: Option<String>,
}

/// One device before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceChange {
    /// The process, such as `rank 3`; absent if there is only one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub process: String,
    /// Device number.
    pub device: u64,
    /// The totals in the baseline; null if it lacks the device.
    pub before: Option<DeviceTotals>,
    /// The totals of this run.
    pub after: DeviceTotals,
    /// The lines that hold more or less at the peak, largest change first; empty without `before`.
    pub changes: Vec<LineDelta>,
}

/// A line of code that holds more or less than before at the peak.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LineDelta {
    /// The file, relative to the repository if it is in it; empty for the sum of all lines that are not listed.
    pub file: String,
    /// Line number, or that of before if the line is gone.
    pub line: u32,
    /// Name of the function.
    pub function: String,
    /// Category of the memory.
    pub category: String,
    /// The variable that keeps it until the end; absent if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// Bytes at the peak before.
    pub before_bytes: u64,
    /// Bytes at the peak after.
    pub after_bytes: u64,
}

impl LineDelta {
    /// Bytes gained; negative if lost.
    pub(super) fn change(&self) -> i128 {
        i128::from(self.after_bytes) - i128::from(self.before_bytes)
    }
}

impl BaselineComparison {
    /// Compares `after` with `before`, the entry of the baseline if there is one.
    pub fn new(path: String, entry: String, before: Option<&BaselineEntry>, after: &BaselineEntry) -> Self {
        let is_only = after.has_single_process();
        let devices = after.devices.iter().map(|device| {
            let before = before.and_then(|entry| entry.device(&device.process, is_only, device.device));
            DeviceChange::new(before, device)
        });
        let devices: Vec<DeviceChange> = devices.collect();
        let text: Vec<String> = devices.iter().flat_map(|device| device.describe(devices.len() > 1)).collect();
        let most =
            devices.iter().max_by_key(|device| (device.peak_growth(), Reverse((&device.process, device.device))));
        let headline = most.and_then(|device| match device.describe(devices.len() > 1).as_slice() {
            [] => None,
            [only] => Some(only.clone()),
            [first, .., _] => Some(format!("{first}; {}", device.describe_totals()?)),
        });
        Self { path, entry, written: None, not_written: None, devices, text, headline }
    }
}

impl DeviceChange {
    pub(super) fn new(before: Option<&MeasuredDevice>, after: &MeasuredDevice) -> Self {
        Self {
            process: after.process.clone(),
            device: after.device,
            before: before.map(|before| before.totals),
            after: after.totals,
            changes: before.map(|before| line_deltas(before, after)).unwrap_or_default(),
        }
    }

    /// The changes in sentences. `is_named`: with the device.
    fn describe(&self, is_named: bool) -> Vec<String> {
        let lines = describe_lines(&self.changes).into_iter().chain(self.describe_totals());
        let place = match (is_named, self.process.is_empty()) {
            (false, _) => return lines.collect(),
            (true, true) => format!("GPU {}", self.device),
            (true, false) => format!("{}, GPU {}", self.process, self.device),
        };
        lines.map(|line| format!("{place}: {line}")).collect()
    }

    /// Growth of the peak of allocated memory; negative if it shrank.
    fn peak_growth(&self) -> i128 {
        let before = self.before.map_or(0, |before| before.peak_allocated_bytes);
        i128::from(self.after.peak_allocated_bytes) - i128::from(before)
    }

    /// The totals that changed, in one sentence.
    fn describe_totals(&self) -> Option<String> {
        let before = self.before.as_ref()?;
        let after = &self.after;
        let totals = [
            describe_total("peak allocated", before.peak_allocated_bytes, after.peak_allocated_bytes, size),
            describe_total("peak reserved", before.peak_reserved_bytes, after.peak_reserved_bytes, size),
            describe_total("growth per step", before.growth_per_step_bytes, after.growth_per_step_bytes, size),
            describe_total("requests", before.requests, after.requests, count),
        ];
        Some(totals.iter().flatten().join("; ")).filter(|totals| !totals.is_empty())
    }
}

/// One total before and after; `None` if it is the same.
fn describe_total(what: &str, before: u64, after: u64, unit: fn(u64) -> String) -> Option<String> {
    (before != after).then(|| format!("{what} {} -> {}", unit(before), unit(after)))
}

/// One sentence for each changed line, such as `+412 MiB at model.py:57 in forward: activations +412 MiB`.
fn describe_lines(changes: &[LineDelta]) -> Vec<String> {
    let lines = group(changes, |a: &&LineDelta, b: &&LineDelta| {
        (&a.file, a.line, &a.function) == (&b.file, b.line, &b.function)
    });
    let lines = lines.into_iter().map(|line| (line.iter().map(|change| change.change()).sum::<i128>(), line));
    let lines = lines.sorted_by_key(|(sum, _)| Reverse(sum.unsigned_abs())); // stable
    let more = lines.len().saturating_sub(MAX_LINES);
    let rest: i128 = lines.clone().skip(MAX_LINES).map(|(sum, _)| sum).sum();
    let rest = (more > 0).then(|| format!("{} at {} more", signed(rest), count(more as u64)));
    let described = lines.take(MAX_LINES).map(|(sum, changes)| {
        let sums = changes.iter().map(|change| {
            let variable = change.variable.as_ref().map(|name| format!(" in {name}")).unwrap_or_default();
            format!("{} {}{variable}", change.category, signed(change.change()))
        });
        let (line, by, parts) = (changes[0], signed(sum), sums.format(", "));
        let text = match (line.file.is_empty(), line.line) {
            (true, _) => format!("{by} at lines below 1% of the peak"),
            (false, 0) => format!("{by} by {}: {parts}", line.file),
            (false, number) => format!("{by} at {}:{number} in {}: {parts}", line.file, line.function),
        };
        escape_text(&text)
    });
    described.chain(rest).collect()
}

fn signed(bytes: i128) -> String {
    signed_size(saturated(bytes))
}

/// The changed lines, largest change first. `before` has its main lines only, `after` all.
fn line_deltas(before: &MeasuredDevice, after: &MeasuredDevice) -> Vec<LineDelta> {
    let mut pairs = pair_lines(&before.lines, &after.lines);
    let minimum = min_line_bytes(before.at_peak_bytes);
    // A line that the baseline lacks may have been there with less than the minimum.
    pairs.retain(|(before, after)| before.is_some() || after.is_some_and(|after| after.bytes >= minimum));
    let mut deltas: Vec<LineDelta> =
        pairs.into_iter().filter_map(|(before, after)| line_delta(before, after)).collect();
    let listed: i128 = deltas.iter().map(LineDelta::change).sum();
    let other = i128::from(after.at_peak_bytes) - i128::from(before.at_peak_bytes) - listed;
    deltas.retain(|delta| delta.change() != 0);
    if other != 0 {
        let bytes = u64::try_from(other.unsigned_abs()).unwrap_or(u64::MAX);
        let (before_bytes, after_bytes) = if other < 0 { (bytes, 0) } else { (0, bytes) };
        deltas.push(LineDelta { before_bytes, after_bytes, ..LineDelta::default() });
    }
    deltas.sort_by_key(|delta| Reverse(delta.change().unsigned_abs())); // stable
    deltas
}

fn line_delta(before: Option<&MeasuredLine>, after: Option<&MeasuredLine>) -> Option<LineDelta> {
    let row = after.or(before)?;
    Some(LineDelta {
        file: row.file.clone(),
        line: row.line,
        function: row.function.clone(),
        category: row.category.clone(),
        variable: row.variable.clone(),
        before_bytes: before.map_or(0, |before| before.bytes),
        after_bytes: after.map_or(0, |after| after.bytes),
    })
}

type Pair<'l> = (Option<&'l MeasuredLine>, Option<&'l MeasuredLine>);

/// Pairs equal lines of both sides, also if they moved: then they have the same function and order.
fn pair_lines<'l>(before: &'l [MeasuredLine], after: &'l [MeasuredLine]) -> Vec<Pair<'l>> {
    type Key<'l> = (&'l str, &'l str, &'l str, Option<&'l str>);
    let mut groups: BTreeMap<Key<'_>, [VecDeque<&MeasuredLine>; 2]> = BTreeMap::new();
    for (side, lines) in [before, after].into_iter().enumerate() {
        for line in lines {
            groups.entry((&line.file, &line.function, &line.category, line.variable.as_deref())).or_default()[side]
                .push_back(line);
        }
    }
    let mut pairs: Vec<Pair<'l>> = Vec::new();
    for [mut before, mut after] in groups.into_values() {
        if before.len() != after.len() {
            // Lines that did not move first, so that a new one between others is the new one.
            before.retain(|line| match after.iter().position(|other| other.line == line.line) {
                Some(index) => {
                    pairs.push((Some(line), after.remove(index)));
                    false
                }
                None => true,
            });
            // Then the largest with the largest.
            before.make_contiguous().sort_by_key(|line| Reverse(line.bytes));
            after.make_contiguous().sort_by_key(|line| Reverse(line.bytes));
        }
        while !before.is_empty() || !after.is_empty() {
            pairs.push((before.pop_front(), after.pop_front()));
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn line(number: u32, function: &str, category: &str, mib: u64) -> MeasuredLine {
        MeasuredLine {
            file: "model.py".to_owned(),
            line: number,
            function: function.to_owned(),
            category: category.to_owned(),
            variable: None,
            bytes: mib * MIB,
        }
    }

    fn device(lines: Vec<MeasuredLine>, rest_mib: u64) -> MeasuredDevice {
        let bytes = lines.iter().map(|line| line.bytes).sum::<u64>() + rest_mib * MIB;
        let totals = DeviceTotals { peak_allocated_bytes: bytes, ..DeviceTotals::default() };
        MeasuredDevice { at_peak_bytes: bytes, totals, lines, ..MeasuredDevice::default() }
    }

    fn text(before: MeasuredDevice, after: MeasuredDevice) -> Vec<String> {
        let [before, after] =
            [before, after].map(|device| BaselineEntry { devices: vec![device], ..BaselineEntry::default() });
        BaselineComparison::new(String::new(), String::new(), Some(&before), &after).text
    }

    #[test]
    fn a_grown_line_is_named_also_after_it_moved() {
        let before = device(vec![line(50, "forward", "activations", 500), line(90, "step", "gradients", 512)], 0);
        let after = device(vec![line(57, "forward", "activations", 912), line(97, "step", "gradients", 512)], 0);
        assert_eq!(
            text(before.clone(), after),
            ["+412 MiB at model.py:57 in forward: activations +412 MiB", "peak allocated 0.99 GiB -> 1.39 GiB"]
        );
        assert_eq!(text(before.clone(), before), Vec::<String>::new());
    }

    #[test]
    fn categories_of_a_line_are_in_one_sentence_and_small_lines_in_another() {
        let before = device(vec![line(5, "f", "activations", 500)], 4);
        let after = device(
            vec![line(5, "f", "activations", 600), line(5, "f", "temporaries", 50), line(9, "g", "other", 3)],
            4,
        );
        assert_eq!(
            text(before, after)[..2],
            [
                "+150 MiB at model.py:5 in f: activations +100 MiB, temporaries +50 MiB",
                "+3 MiB at lines below 1% of the peak"
            ]
        );
    }

    #[test]
    fn a_new_line_between_others_is_the_new_one() {
        let before = device(vec![line(1, "f", "activations", 100), line(3, "f", "activations", 200)], 0);
        let mut lines = before.lines.clone();
        lines.insert(1, line(2, "f", "activations", 50));
        assert_eq!(text(before, device(lines, 0))[0], "+50 MiB at model.py:2 in f: activations +50 MiB");
    }
}
