//! `oomscope-baseline.json`: what each test or command needed, in a small file that can be committed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The schema of the file.
const SCHEMA: &str = "oomscope/baseline/1";

/// The entries of the file, by the name of a test or command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct BaselineEntries {
    /// Each test or command, by name.
    entries: BTreeMap<String, BaselineEntry>,
    /// `oomscope/baseline/1`
    schema: String,
}

/// The memory that one test or command needed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaselineEntry {
    /// Name of the GPU, which may be an assumed one; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// `torch.__version__`, or the releases that write such files; absent in older baselines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torch: Option<String>,
    /// Each device of each process.
    pub devices: Vec<MeasuredDevice>,
}

/// The memory that one device of a test or command needed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredDevice {
    /// The process, such as `rank 3`; absent if there is only one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub process: String,
    /// Device number.
    pub device: u64,
    /// Totals of the run.
    #[serde(flatten)]
    pub totals: DeviceTotals,
    /// Allocated bytes at the recorded peak.
    pub at_peak_bytes: u64,
    /// The lines that hold most at the recorded peak, by file and line.
    pub lines: Vec<MeasuredLine>,
}

/// The totals of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceTotals {
    /// Peak of allocated bytes in a replay from an empty pool.
    pub peak_allocated_bytes: u64,
    /// Peak of reserved bytes in a replay from an empty pool.
    pub peak_reserved_bytes: u64,
    /// Number of requests for memory.
    pub requests: u64,
    /// Growth per training step in bytes; 0 if nothing grows.
    pub growth_per_step_bytes: u64,
}

/// Memory that one line of code holds at the peak, of one category and variable.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MeasuredLine {
    /// The file, relative to the repository if it is in it.
    pub file: String,
    /// Line number.
    pub line: u32,
    /// Name of the function.
    pub function: String,
    /// Category of the memory.
    pub category: String,
    /// The variable that keeps it until the end; absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// Bytes at the peak.
    pub bytes: u64,
}

impl BaselineEntries {
    /// Parses the file.
    ///
    /// # Errors
    /// A sentence fragment that follows the file's name.
    pub fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        match serde_json::from_str::<Head>(text) {
            Ok(head) if head.schema != SCHEMA => Err(format!("is {}, no baseline", head.schema)),
            _ => {
                let read: Self = serde_json::from_str(text).map_err(|error| format!("is no baseline: {error}"))?;
                for (name, entry) in &read.entries {
                    if let Some(row) = entry.repeated_row() {
                        let process = if row.process.is_empty() { "one process" } else { &row.process };
                        return Err(format!("has GPU {} of {process} twice in the entry {name:?}", row.device));
                    }
                }
                Ok(read)
            }
        }
    }

    /// The entry with this name.
    pub fn get(&self, name: &str) -> Option<&BaselineEntry> {
        self.entries.get(name)
    }

    /// Replaces the entry with this name, or adds it.
    pub fn set(&mut self, name: &str, entry: BaselineEntry) {
        self.entries.insert(name.to_owned(), entry);
    }

    /// The text of the file: sorted, with one line of text for each line of code, so that changes are easy to review.
    ///
    /// # Errors
    /// Never: all keys are strings.
    pub fn to_text(&self) -> serde_json::Result<String> {
        let mut text = String::from("{\n  \"entries\": {");
        for (index, (name, entry)) in self.entries.iter().enumerate() {
            text.push_str(if index == 0 { "\n" } else { ",\n" });
            text.extend(["    ", &serde_json::to_string(name)?, ": "]);
            entry.write(&mut text)?;
        }
        text.push_str(if self.entries.is_empty() { "},\n" } else { "\n  },\n" });
        text.extend(["  \"schema\": ", &serde_json::to_string(SCHEMA)?, "\n}\n"]);
        Ok(text)
    }
}

impl BaselineEntry {
    /// Sorts the devices and lines, so that equal entries are equal text.
    pub fn sort(&mut self) {
        self.devices.sort_by(|a, b| (&a.process, a.device).cmp(&(&b.process, b.device)));
        self.devices.iter_mut().for_each(|device| device.lines.sort());
    }

    /// A device that has more than one row, which could be compared with either.
    fn repeated_row(&self) -> Option<&MeasuredDevice> {
        let mut seen = BTreeSet::new();
        self.devices.iter().find(|row| !seen.insert((&row.process, row.device)))
    }

    /// A row that `other` lacks.
    pub fn row_missing_in(&self, other: &Self) -> Option<&MeasuredDevice> {
        let is_only = self.has_single_process();
        self.devices.iter().find(|row| other.device(&row.process, is_only, row.device).is_none())
    }

    /// Whether all devices are of one process.
    pub fn has_single_process(&self) -> bool {
        let process = self.devices.first().map(|first| &first.process);
        self.devices.iter().all(|row| Some(&row.process) == process)
    }

    /// The device with this number of `process`. If both this and the other side have a single process (`is_only`), its
    /// name need not match.
    pub fn device(&self, process: &str, is_only: bool, device: u64) -> Option<&MeasuredDevice> {
        let is_any = is_only && self.has_single_process();
        self.devices.iter().find(|row| (is_any || row.process == process) && row.device == device)
    }

    /// Writes all fields of the entry and its devices on a line, and each line of code on one of its own.
    fn write(&self, text: &mut String) -> serde_json::Result<()> {
        let head = serde_json::to_string(&Self { devices: Vec::new(), ..self.clone() })?;
        text.push_str(head.strip_suffix("]}").unwrap_or(&head));
        for (index, device) in self.devices.iter().enumerate() {
            let head = serde_json::to_string(&MeasuredDevice { lines: Vec::new(), ..device.clone() })?;
            text.push_str(if index == 0 { "\n      " } else { ",\n      " });
            text.push_str(head.strip_suffix("]}").unwrap_or(&head));
            for (index, line) in device.lines.iter().enumerate() {
                text.push_str(if index == 0 { "\n        " } else { ",\n        " });
                text.push_str(&serde_json::to_string(line)?);
            }
            text.push_str("]}");
        }
        text.push_str("]}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(line: u32, bytes: u64) -> MeasuredLine {
        MeasuredLine { file: "a.py".to_owned(), line, bytes, ..MeasuredLine::default() }
    }

    #[test]
    fn a_file_is_sorted_and_read_back() {
        let device = MeasuredDevice { lines: vec![line(9, 1), line(2, 5)], ..MeasuredDevice::default() };
        let other = MeasuredDevice { device: 1, process: "rank 1".to_owned(), ..MeasuredDevice::default() };
        let mut entry = BaselineEntry { devices: vec![other, device], gpu: Some("T4".to_owned()), torch: None };
        entry.sort();
        let mut entries = BaselineEntries::default();
        assert_eq!(BaselineEntries::parse(&entries.to_text().unwrap()).unwrap().entries.len(), 0);
        entries.set("b \"test\"", entry.clone());
        entries.set("a", BaselineEntry::default());
        let text = entries.to_text().unwrap();
        assert!(text.find("\"a\"") < text.find("\"b \\\"test\\\"\""), "{text}");
        assert!(text.contains("\n        {\"file\":\"a.py\",\"line\":2,"), "{text}");
        let read = BaselineEntries::parse(&text).unwrap();
        assert_eq!(read.entries, entries.entries);
        assert_eq!(read.to_text().unwrap(), text);
        assert!(BaselineEntries::parse("{\"schema\":\"oomscope/check/1\"}").is_err());
    }
}
