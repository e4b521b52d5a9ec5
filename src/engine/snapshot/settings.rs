//! `allocator_settings` as recorded.

use serde_json::{Map, Value};

/// The allocator settings in effect when the snapshot was taken (PyTorch 2.3 and later).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RawSettings {
    /// The whole `PYTORCH_CUDA_ALLOC_CONF` string that was parsed last.
    pub string: String,
    /// Every other key: the value in effect.
    pub effective: Map<String, Value>,
}

impl RawSettings {
    /// The flag `key`, if recorded.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.effective.get(key)?.as_bool()
    }

    /// The integer `key`, if recorded and not negative (-1 means unlimited).
    pub fn bytes(&self, key: &str) -> Option<u64> {
        self.effective.get(key)?.as_u64()
    }
}
