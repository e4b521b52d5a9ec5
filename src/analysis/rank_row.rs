//! A row of the table of ranks: one device of one snapshot, with what it holds and how it ended.

use serde::Serialize;

use super::device::DeviceReport;
use super::names::{host_in_path, rank_in_path};
use super::snapshot::SnapshotReport;
use crate::allocator::verdict::Verdict;
use crate::base::units::ratio;
use crate::stacks::phases::Phase;
use crate::study::attribution::Category;

/// A row is an outlier if its peak differs from the median by more than this share.
pub(super) const OUTLIER_RATIO: f64 = 0.1;
/// Equal ranks differ by at most this share in what they hold.
pub(super) const EQUAL_RATIO: f64 = 0.02;

/// One device of one snapshot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankRow {
    /// Path of the snapshot as given.
    pub path: String,
    /// Rank in the job as `oomscope run` recorded it, or else the number behind `rank` in the path; absent without either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<String>,
    /// Host as `oomscope run` recorded it, or the directory of a host in the path; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Device number.
    pub device: u64,
    /// The number of the device on its host, if `CUDA_VISIBLE_DEVICES` or the list of visible devices shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_device: Option<u64>,
    /// The training step of its last failure, else of its peak, counted from 0; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// The phase of the program then; absent without a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Whether the process used no other device more.
    #[serde(skip)]
    pub is_own_device: bool,
    /// The line of its last failure.
    #[serde(skip)]
    pub failed_line: Option<String>,
    /// The request that failed last.
    #[serde(skip)]
    pub requested_bytes: Option<u64>,
    /// Parameters and optimizer state at the last failure, else at the peak.
    #[serde(skip)]
    pub(crate) state_bytes: [u64; 2],
    /// When the last request failed: the step in a dry run, whose ranks do not wait for each other, else the time.
    #[serde(skip)]
    pub(super) failed_at: u64,
    /// Number of failed requests.
    pub oom_count: u64,
    /// Whether the recorder saw a request fail, with or without a history.
    #[serde(skip)]
    pub has_recorded_failure: bool,
    /// Why the last of them failed, by free bytes alone; null if none failed.
    pub verdict: Option<Verdict>,
    /// Why it failed, after what was replayed and what grows; absent if none failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conclusion: Option<Verdict>,
    /// Device memory in bytes, as given or recorded; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// Reserved plus free bytes at the last failure: the memory within reach; absent if none failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach_bytes: Option<u64>,
    /// Peak of allocated bytes.
    pub peak_allocated_bytes: u64,
    /// Peak of reserved bytes.
    pub peak_reserved_bytes: u64,
}

/// The median: of an even number the mean of both middle values; 0 without any.
pub(super) fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    let middle = [values.len().saturating_sub(1) / 2, values.len() / 2];
    let [low, high] = middle.map(|index| values.get(index).copied().unwrap_or(0));
    low.midpoint(high)
}

/// Whether the difference is at most this part of the larger number.
fn is_near(a: u64, b: u64, most: f64) -> bool {
    ratio(a.abs_diff(b), a.max(b).max(1)) <= most
}

/// The rows of one snapshot.
pub(super) fn rows_of(snapshot: &SnapshotReport) -> impl Iterator<Item = (RankRow, &DeviceReport)> {
    let most = snapshot.devices.iter().max_by_key(|device| (device.oom_count > 0, device.peak.allocated_bytes));
    let own = most.map(|device| device.device);
    snapshot.devices.iter().map(move |device| (RankRow::new(snapshot, device, own == Some(device.device)), device))
}

impl RankRow {
    /// Whether a request failed, with or without a history.
    pub fn has_failed(&self) -> bool {
        self.oom_count > 0 || self.has_recorded_failure
    }

    /// The GPU among those of all hosts; `None` if it is not known.
    pub(super) fn gpu(&self) -> Option<(Option<&str>, u64)> {
        Some((self.host.as_deref(), self.host_device?))
    }

    fn ending(&self) -> (bool, Option<Verdict>, Option<&str>, Option<u64>) {
        let shared_device = (!self.is_own_device).then_some(self.device);
        (self.has_failed(), self.conclusion, self.failed_line.as_deref(), shared_device)
    }

    pub(super) fn is_equal(&self, other: &Self) -> bool {
        self.ending() == other.ending()
            && is_near(self.peak_reserved_bytes, other.peak_reserved_bytes, EQUAL_RATIO)
            && is_near(self.peak_allocated_bytes, other.peak_allocated_bytes, OUTLIER_RATIO)
            && std::iter::zip(self.state_bytes, other.state_bytes).all(|(a, b)| is_near(a, b, EQUAL_RATIO))
    }

    fn new(snapshot: &SnapshotReport, device: &DeviceReport, is_own_device: bool) -> Self {
        let (recorder, oom) = (snapshot.recorder.as_ref(), device.ooms.last());
        let held = device.held();
        Self {
            path: snapshot.path.clone(),
            rank: recorder.and_then(|it| it.rank.clone()).or_else(|| Some(rank_in_path(&snapshot.path)?.to_string())),
            host: recorder.and_then(|it| it.host.clone()).or_else(|| host_in_path(&snapshot.path)),
            device: device.device,
            host_device: recorder.and_then(|it| it.host_device(device.device)),
            step: held.and_then(|held| held.step),
            phase: held.map(|held| held.phase),
            is_own_device,
            failed_at: oom.map_or(0, |oom| match (&snapshot.dry_run, oom.held.as_ref()) {
                (Some(_), held) => held.and_then(|held| held.step).map_or(0, u64::from),
                (None, _) => oom.time_us.unwrap_or(0),
            }),
            failed_line: oom.map(|oom| oom.location.label()),
            requested_bytes: oom.map(|oom| oom.requested_bytes),
            state_bytes: [Category::Parameters, Category::OptimizerState]
                .map(|category| device.category_bytes(category)),
            oom_count: device.oom_count,
            has_recorded_failure: recorder.is_some_and(|it| it.failure_on(device.device).is_some()),
            verdict: oom.map(|oom| oom.verdict),
            conclusion: device.conclusion,
            capacity_bytes: device.capacity_bytes,
            reach_bytes: oom.map(|oom| oom.reserved_bytes.saturating_add(oom.device_free_bytes)),
            peak_allocated_bytes: device.peak.allocated_bytes,
            peak_reserved_bytes: device.peak.reserved_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl RankRow {
        /// A rank on the GPU of its number, which holds nothing.
        pub(in crate::analysis) fn of_rank(rank: u64) -> Self {
            Self {
                path: format!("rank{rank}.pickle"),
                rank: Some(rank.to_string()),
                host: None,
                device: 0,
                host_device: Some(rank),
                step: None,
                phase: None,
                is_own_device: true,
                failed_line: None,
                requested_bytes: None,
                state_bytes: [0; 2],
                failed_at: 0,
                oom_count: 0,
                has_recorded_failure: false,
                verdict: None,
                conclusion: None,
                capacity_bytes: None,
                reach_bytes: None,
                peak_allocated_bytes: 0,
                peak_reserved_bytes: 0,
            }
        }
    }

    /// Whether a row with 1000 bytes everywhere is equal to itself after `change`.
    fn is_equal(change: fn(&mut RankRow)) -> bool {
        let sizes = RankRow { peak_reserved_bytes: 1000, peak_allocated_bytes: 1000, ..RankRow::of_rank(0) };
        let row = RankRow { state_bytes: [1000; 2], ..sizes };
        let mut changed = row.clone();
        change(&mut changed);
        assert_eq!(row.is_equal(&changed), changed.is_equal(&row));
        row.is_equal(&changed)
    }

    #[test]
    fn rows_are_equal_with_the_same_ending_and_nearly_the_same_memory() {
        assert!(is_equal(|row| (row.failed_at, row.device, row.step) = (7, 7, Some(7))));
        let endings: [fn(&mut RankRow); 5] = [
            |row| row.oom_count = 1,
            |row| row.has_recorded_failure = true,
            |row| row.conclusion = Some(Verdict::Capacity),
            |row| row.failed_line = Some(String::new()),
            |row| row.is_own_device = false,
        ];
        assert!(!endings.into_iter().any(is_equal));
        assert!(is_equal(|row| row.peak_reserved_bytes = 980) && !is_equal(|row| row.peak_reserved_bytes = 979));
        assert!(is_equal(|row| row.peak_allocated_bytes = 900) && !is_equal(|row| row.peak_allocated_bytes = 899));
        assert!(is_equal(|row| row.state_bytes[1] = 980) && !is_equal(|row| row.state_bytes[1] = 979));
    }
}
