//! Limits the number of devices of a page so that browsers open it quickly: it shows the worst.

use std::collections::HashMap;

use super::{PageData, SnapshotData};
use crate::analysis::{AnalyzeReport, SnapshotReport};
use crate::base::units::count;

/// Maximum number of devices on a page.
const MAX_DEVICES: usize = 1000;

/// The order of the devices in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageOrder {
    /// The device with the worst failure or the highest peak first.
    WorstFirst,
    /// As given: the page opens with a comparison of the first snapshot with the second.
    Compared,
}

/// The devices on a page, in its order.
pub(super) struct ShownDevices<'a> {
    /// Index of the snapshot in the report, and the data of the device.
    pub(super) devices: Vec<(usize, &'a PageData)>,
    /// The report without the others, if there are too many for one page.
    pub(super) report: Option<AnalyzeReport>,
    /// The snapshots that have a shown device, in the order of the report.
    pub(super) snapshots: Vec<&'a SnapshotData>,
    left_out: usize,
}

impl<'a> ShownDevices<'a> {
    pub(super) fn new(report: &AnalyzeReport, data: &'a [SnapshotData], order: PageOrder) -> Self {
        Self::with_limit(report, data, order, MAX_DEVICES)
    }

    fn with_limit(report: &AnalyzeReport, data: &'a [SnapshotData], order: PageOrder, limit: usize) -> Self {
        let mut devices = in_order(report, data, order);
        let left_out = devices.len().saturating_sub(limit);
        if left_out == 0 {
            return Self { devices, report: None, snapshots: data.iter().collect(), left_out };
        }
        devices.truncate(limit);
        let mut kept: Vec<usize> = devices.iter().map(|(snapshot, _)| *snapshot).collect();
        kept.sort_unstable();
        kept.dedup();
        let snapshots = kept.iter().map(|index| {
            let is_shown = |id: u64| devices.iter().any(|(snapshot, page)| snapshot == index && page.device == id);
            let snapshot = &report.snapshots[*index];
            let devices = snapshot.devices.iter().filter(|device| is_shown(device.device)).cloned().collect();
            SnapshotReport { devices, ..snapshot.clone() }
        });
        let limited = AnalyzeReport {
            snapshots: snapshots.collect(),
            top: report.top,
            ranks: report.ranks.clone(),
            dry_run: report.dry_run.clone(),
            unreadable: report.unreadable.clone(),
        };
        let snapshots = kept.iter().map(|index| &data[*index]).collect();
        for (snapshot, _) in &mut devices {
            *snapshot = kept.partition_point(|index| index < snapshot);
        }
        Self { devices, report: Some(limited), snapshots, left_out }
    }

    /// Says how many devices the page leaves out, if any.
    pub(super) fn note(&self) -> Option<String> {
        let shown = self.devices.len();
        (self.left_out > 0).then(|| {
            format!(
                "This page shows the worst {} of {} devices, to limit its size. For others, name their snapshots or \
                 --device.",
                count(shown as u64),
                count((shown + self.left_out) as u64)
            )
        })
    }
}

/// All devices: index of the snapshot, data.
fn in_order<'a>(report: &AnalyzeReport, data: &'a [SnapshotData], order: PageOrder) -> Vec<(usize, &'a PageData)> {
    // Without the table of ranks the order is that of the snapshots.
    let ranks = report.ranks.as_ref().filter(|_| order == PageOrder::WorstFirst);
    let ranks = ranks.map(|ranks| ranks.rows.as_slice()).unwrap_or_default();
    let rank: HashMap<(&str, u64), usize> =
        ranks.iter().enumerate().map(|(at, row)| ((&*row.path, row.device), at)).collect();
    let mut all: Vec<(usize, usize, &PageData)> = Vec::new();
    for (snapshot, (analysis, of)) in report.snapshots.iter().zip(data).enumerate() {
        for page in &of.devices {
            let worse = rank.get(&(&*analysis.path, page.device)).copied().unwrap_or(usize::MAX);
            all.push((worse, snapshot, page));
        }
    }
    all.sort_by_key(|(worse, ..)| *worse);
    all.into_iter().map(|(_, snapshot, page)| (snapshot, page)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Options, analyze_study};
    use crate::snapshot::Snapshot;
    use crate::study::{Scope, Study};

    #[test]
    fn the_worst_devices_keep_their_data_and_analysis() {
        let entry = |addr: u64, size: u64| {
            serde_json::json!([
                {"action": "segment_alloc", "addr": addr, "size": size, "stream": 0, "time_us": 1, "frames": []},
                {"action": "alloc", "addr": addr, "size": size, "stream": 0, "time_us": 2, "frames": []}
            ])
        };
        let snapshot = |sizes: &[u64]| {
            let traces: Vec<_> = sizes.iter().map(|mib| entry(1 << 32, mib << 20)).collect();
            let text = serde_json::json!({"segments": [], "device_traces": traces}).to_string();
            Snapshot::read(text.as_bytes(), &|_| ()).unwrap()
        };
        let (mut reports, mut data) = (Vec::new(), Vec::new());
        for (path, sizes) in [("a", [20, 60, 40].as_slice()), ("b", [22].as_slice()), ("c", [80, 24].as_slice())] {
            let snapshot = snapshot(sizes);
            let study = Study::new(&snapshot, Scope::default());
            reports.push(analyze_study(&study, path, 0, Options::default()));
            data.push(SnapshotData::from_study(&study, &reports[reports.len() - 1], 3).unwrap());
        }
        let report = AnalyzeReport::new(reports, Vec::new(), 10);
        assert!(ShownDevices::new(&report, &data, PageOrder::WorstFirst).note().is_none());
        let shown = ShownDevices::with_limit(&report, &data, PageOrder::WorstFirst, 3);
        let limited = shown.report.as_ref().unwrap();
        let named = |(snapshot, page): &(usize, &PageData)| (limited.snapshots[*snapshot].path.clone(), page.device);
        let names: Vec<(String, u64)> = shown.devices.iter().map(named).collect();
        assert_eq!(names, [("c".to_owned(), 0), ("a".to_owned(), 1), ("a".to_owned(), 2)]);
        let analyzed =
            |index: usize| limited.snapshots[index].devices.iter().map(|device| device.device).collect::<Vec<u64>>();
        assert_eq!([analyzed(0), analyzed(1)], [vec![1, 2], vec![0]]);
        assert_eq!(shown.snapshots.len(), 2);
        assert!(shown.note().unwrap().contains("the worst 3 of 6 devices"));
    }
}
