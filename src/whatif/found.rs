//! Settings that a replay found out, where the release does not record them.

use crate::conf::Settings;
use crate::snapshot::Snapshot;
use crate::units::MIB;

/// Options in effect that the file does not record, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`.
pub(crate) fn found_settings(snapshot: &Snapshot, found: &Settings) -> Vec<String> {
    let mut options = Vec::new();
    if snapshot.settings.is_some() {
        return options;
    }
    if found.max_split_size != u64::MAX {
        options.push(format!("max_split_size_mb:{}", found.max_split_size / MIB));
    }
    let divisions = found.roundup_power2_divisions;
    if divisions.iter().any(|d| *d != divisions[0]) {
        let bucket = |(bucket, d): (usize, &u64)| format!("{}:{d}", 1u64 << bucket);
        let buckets: Vec<String> = divisions.iter().enumerate().map(bucket).collect();
        options.push(format!("roundup_power2_divisions:[{}]", buckets.join(",")));
    } else if divisions[0] > 0 {
        options.push(format!("roundup_power2_divisions:{}", divisions[0]));
    }
    options
}
