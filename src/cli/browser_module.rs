//! The analyzer for browsers that this program carries.

use anyhow::bail;

/// Compressed by gzip; empty in a build without it (`build.rs`).
const MODULE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/viewer.wasm.gz"));

/// The analyzer for browsers, compressed by gzip.
pub(super) fn browser_module() -> anyhow::Result<&'static [u8]> {
    if MODULE.is_empty() {
        bail!(
            "this build has no analyzer for browsers: releases have it, viewer.html among them, and docs/viewer.md builds it"
        );
    }
    Ok(MODULE)
}
