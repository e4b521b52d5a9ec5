//! How long device calls take, by size: `oomscope/cost/1`.

use serde::{Deserialize, Serialize};

use crate::allocator::trace_action::Action;

/// The schema of the file that `oomscope live --calibrate` writes.
pub const COST_SCHEMA: &str = "oomscope/cost/1";

/// How long device calls take on one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Costs {
    /// `oomscope/cost/1`
    pub schema: String,
    /// The GPU's name, as the driver reports it.
    pub gpu: String,
    /// The newest CUDA version that the driver supports, such as `12.8`.
    pub cuda_version: String,
    /// The measured sizes of each kind of call.
    pub calls: CostsByCall,
}

/// The measured sizes of each kind of call, in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostsByCall {
    /// `cudaMalloc`
    pub malloc: Vec<Cost>,
    /// `cudaFree`
    pub free: Vec<Cost>,
    /// Mapping physical memory into an expandable segment.
    pub map: Vec<Cost>,
    /// Unmapping physical memory from an expandable segment.
    pub unmap: Vec<Cost>,
}

/// One measured size of call. In nanoseconds, because many such times are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Bytes that each call allocates, frees, maps or unmaps.
    pub bytes: u64,
    /// Median duration of a call, in nanoseconds.
    pub median_ns: u64,
    /// Number of calls measured.
    pub samples: u64,
}

impl Costs {
    /// Parses the text of a cost file.
    ///
    /// # Errors
    /// One sentence, if the text is not a cost file or lacks a kind of call.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut costs: Self = serde_json::from_str(text)
            .map_err(|error| format!("is not a cost file of 'oomscope live --calibrate': {error}"))?;
        if costs.schema != COST_SCHEMA {
            return Err(format!("has the schema '{}', not {COST_SCHEMA}", costs.schema));
        }
        let CostsByCall { malloc, free, map, unmap } = &mut costs.calls;
        let kinds = [("malloc", malloc), ("free", free), ("map", map), ("unmap", unmap)];
        for (kind, costs) in kinds {
            costs.sort_unstable_by_key(|cost| cost.bytes);
            costs.dedup_by_key(|cost| cost.bytes);
            if costs.is_empty() {
                return Err(format!("has no costs for the call '{kind}'"));
            }
        }
        Ok(costs)
    }

    /// The GPU on which they were measured.
    pub fn measured_on(&self) -> String {
        format!("{}, driver for CUDA {}", self.gpu, self.cuda_version)
    }

    /// Nanoseconds that the device call behind a trace entry takes; 0 for entries without one. Interpolates between
    /// two measured sizes, extrapolates beyond the largest, and takes the smallest size's cost below it.
    pub fn call_ns(&self, action: Action, bytes: u64) -> u64 {
        let costs = match action {
            Action::SegmentAlloc => &self.calls.malloc,
            Action::SegmentFree => &self.calls.free,
            Action::SegmentMap => &self.calls.map,
            Action::SegmentUnmap => &self.calls.unmap,
            _ => return 0,
        };
        let above = costs.partition_point(|cost| cost.bytes < bytes);
        let upper = above.min(costs.len().saturating_sub(1));
        match (upper.checked_sub(1).and_then(|lower| costs.get(lower)), costs.get(upper)) {
            (Some(lower), Some(upper)) => interpolate(*lower, *upper, bytes),
            (None, Some(smallest)) => smallest.median_ns,
            // `parse` refuses a kind of call without costs.
            (_, None) => 0,
        }
    }
}

/// The line through `lower` and `upper`, which differ in size, evaluated at `bytes`; at least 0.
fn interpolate(lower: Cost, upper: Cost, bytes: u64) -> u64 {
    let [rise, run, offset] = [(lower.median_ns, upper.median_ns), (lower.bytes, upper.bytes), (lower.bytes, bytes)]
        .map(|(from, to)| i128::from(to) - i128::from(from));
    let cost = i128::from(lower.median_ns) + rise.saturating_mul(offset) / run.max(1);
    u64::try_from(cost.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(points: &[(u64, u64)]) -> Costs {
        let points = points.iter().map(|(bytes, median_ns)| Cost { bytes: *bytes, median_ns: *median_ns, samples: 1 });
        let malloc: Vec<Cost> = points.collect();
        let calls = CostsByCall { free: vec![malloc[0]], map: vec![malloc[0]], unmap: vec![malloc[0]], malloc };
        let costs =
            Costs { schema: COST_SCHEMA.to_owned(), gpu: "a".to_owned(), cuda_version: "12.8".to_owned(), calls };
        Costs::parse(&serde_json::to_string(&costs).unwrap()).unwrap()
    }

    #[test]
    fn costs_are_interpolated_between_measured_sizes() {
        let costs = costs(&[(400, 5_000), (100, 2_000), (200, 3_000)]);
        for (bytes, ns) in [(1, 2_000), (100, 2_000), (150, 2_500), (200, 3_000), (300, 4_000), (600, 7_000)] {
            assert_eq!(costs.call_ns(Action::SegmentAlloc, bytes), ns, "{bytes}");
        }
        assert_eq!(costs.call_ns(Action::SegmentUnmap, 1 << 40), 5_000, "only one size was measured");
        assert_eq!(costs.call_ns(Action::Alloc, 100), 0);
    }

    #[test]
    fn falling_costs_end_at_zero() {
        let costs = costs(&[(100, 3_000), (200, 1_000)]);
        assert_eq!(costs.call_ns(Action::SegmentAlloc, 225), 500);
        assert_eq!(costs.call_ns(Action::SegmentAlloc, u64::MAX), 0);
    }

    #[test]
    fn other_files_are_refused() {
        let valid = serde_json::to_string(&costs(&[(1, 1)])).unwrap();
        for (text, words) in [
            ("{", "is not a cost file of"),
            (&valid.replace("cost/1", "cost/2"), "has the schema 'oomscope/cost/2'"),
            (
                &valid.replace("\"unmap\":[{\"bytes\":1,\"median_ns\":1,\"samples\":1}]", "\"unmap\":[]"),
                "has no costs for the call 'unmap'",
            ),
        ] {
            let error = Costs::parse(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
