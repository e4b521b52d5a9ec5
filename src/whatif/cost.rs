//! What calls to a device cost, by size: `oomscope/cost/1`.

use serde::{Deserialize, Serialize};

use crate::allocator::terms::Action;

/// The file that `oomscope live --calibrate` writes.
pub const COST_SCHEMA: &str = "oomscope/cost/1";

/// What calls cost on one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Costs {
    /// [`COST_SCHEMA`]
    pub schema: String,
    /// The GPU's name.
    pub gpu: String,
    /// The newest CUDA that its driver serves, such as `12.8`.
    pub cuda_version: String,
    /// Of each kind of call the measured sizes.
    pub calls: CostsByCall,
}

/// Of each kind of call the measured sizes, in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostsByCall {
    /// `cudaMalloc`
    pub malloc: Vec<Cost>,
    /// `cudaFree`
    pub free: Vec<Cost>,
    /// Memory put behind a part of an expandable segment.
    pub map: Vec<Cost>,
    /// Memory taken away from there.
    pub unmap: Vec<Cost>,
}

/// One measured size. In nanoseconds, since many such calls are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Bytes taken or given back.
    pub bytes: u64,
    /// Half of the calls took no longer.
    pub median_ns: u64,
    /// Calls measured.
    pub samples: u64,
}

impl Costs {
    /// Reads the file's text.
    ///
    /// # Errors
    /// One sentence, when it is no such file or lacks a kind of call.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut costs: Self = serde_json::from_str(text)
            .map_err(|error| format!("is not a file of 'oomscope live --calibrate': {error}"))?;
        if costs.schema != COST_SCHEMA {
            return Err(format!("has the schema '{}', not {COST_SCHEMA}", costs.schema));
        }
        let CostsByCall { malloc, free, map, unmap } = &mut costs.calls;
        let kinds = [("malloc", malloc), ("free", free), ("map", map), ("unmap", unmap)];
        for (kind, costs) in kinds {
            costs.sort_unstable_by_key(|cost| cost.bytes);
            costs.dedup_by_key(|cost| cost.bytes);
            if costs.is_empty() {
                return Err(format!("has no cost of the call '{kind}'"));
            }
        }
        Ok(costs)
    }

    /// The GPU that they are of.
    pub fn measured_on(&self) -> String {
        format!("{}, driver for CUDA {}", self.gpu, self.cuda_version)
    }

    /// Nanoseconds that the device call behind a trace entry takes; none for other entries. Between two
    /// measured sizes, and beyond the largest, costs lie on the line through two; below the smallest
    /// they are its own.
    pub fn of(&self, action: Action, bytes: u64) -> u64 {
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
            (Some(a), Some(b)) => line(*a, *b, bytes),
            (None, Some(only)) => only.median_ns,
            (_, None) => 0,
        }
    }
}

/// The line through `a` and `b` at `bytes`, not below 0. They differ in size.
fn line(a: Cost, b: Cost, bytes: u64) -> u64 {
    let [rise, run, along] = [(a.median_ns, b.median_ns), (a.bytes, b.bytes), (a.bytes, bytes)]
        .map(|(from, to)| i128::from(to) - i128::from(from));
    let cost = i128::from(a.median_ns) + rise.saturating_mul(along) / run.max(1);
    u64::try_from(cost.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(points: &[(u64, u64)]) -> Costs {
        let of = points.iter().map(|(bytes, median_ns)| Cost {
            bytes: *bytes,
            median_ns: *median_ns,
            samples: 1,
        });
        let malloc: Vec<Cost> = of.collect();
        let calls = CostsByCall {
            free: vec![malloc[0]],
            map: vec![malloc[0]],
            unmap: vec![malloc[0]],
            malloc,
        };
        let costs = Costs {
            schema: COST_SCHEMA.to_owned(),
            gpu: "a".to_owned(),
            cuda_version: "12.8".to_owned(),
            calls,
        };
        Costs::parse(&serde_json::to_string(&costs).unwrap()).unwrap()
    }

    #[test]
    fn costs_lie_on_lines_between_what_was_measured() {
        let costs = costs(&[(400, 5_000), (100, 2_000), (200, 3_000)]);
        for (bytes, ns) in
            [(1, 2_000), (100, 2_000), (150, 2_500), (200, 3_000), (300, 4_000), (600, 7_000)]
        {
            assert_eq!(costs.of(Action::SegmentAlloc, bytes), ns, "{bytes}");
        }
        assert_eq!(costs.of(Action::SegmentUnmap, 1 << 40), 5_000, "one size is all that is known");
        assert_eq!(costs.of(Action::Alloc, 100), 0);
    }

    #[test]
    fn costs_that_fall_do_not_fall_below_nothing() {
        let costs = costs(&[(100, 3_000), (200, 1_000)]);
        assert_eq!(costs.of(Action::SegmentAlloc, 225), 500);
        assert_eq!(costs.of(Action::SegmentAlloc, u64::MAX), 0);
    }

    #[test]
    fn what_is_no_cost_file_is_refused() {
        let whole = serde_json::to_string(&costs(&[(1, 1)])).unwrap();
        for (text, words) in [
            ("{", "is not a file of"),
            (&whole.replace("cost/1", "cost/2"), "has the schema 'oomscope/cost/2'"),
            (
                &whole.replace(
                    "\"unmap\":[{\"bytes\":1,\"median_ns\":1,\"samples\":1}]",
                    "\"unmap\":[]",
                ),
                "has no cost of the call 'unmap'",
            ),
        ] {
            let error = Costs::parse(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
