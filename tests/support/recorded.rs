//! What PyTorch itself said of a recording: `fixtures/NAME.stats.json`.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

use serde_json::Value;

/// One recording's own account.
pub struct Recorded {
    pub name: String,
    /// The message of the error that ended the run.
    pub error: Option<String>,
    /// `torch.cuda.memory_stats()` of every device.
    pub stats: Vec<Value>,
}

/// The account of `fixtures/NAME`, if there is one: the C++ pickler leaves none.
pub fn of(name: &str) -> Option<Recorded> {
    let path = super::fixtures::directory().join(format!("{name}.stats.json"));
    let text = std::fs::read_to_string(path).ok()?;
    let value: Value = serde_json::from_str(&text).unwrap();
    Some(Recorded {
        name: name.to_owned(),
        error: value["error"].as_str().map(str::to_owned),
        stats: value["memory_stats"].as_array().unwrap().clone(),
    })
}

/// Every account, by name.
pub fn all() -> Vec<Recorded> {
    super::fixtures::names().iter().filter_map(|name| of(name)).collect()
}

impl Recorded {
    /// One statistic of one device. Some are newer than the oldest releases.
    pub fn stat(&self, device: usize, key: &str) -> u64 {
        let value = &self.stats[device][key];
        value.as_u64().unwrap_or_else(|| panic!("{}: {key} is {value}", self.name))
    }
}

/// A size as PyTorch's messages print it (`format_size` in c10/cuda/CUDACachingAllocator.cpp).
pub fn format_size(bytes: u64) -> String {
    let in_unit = |unit: u64| bytes as f64 / unit as f64;
    match bytes {
        0..=1024 => format!("{bytes} bytes"),
        1025..=1_048_576 => format!("{:.2} KiB", in_unit(1 << 10)),
        1_048_577..=1_073_741_824 => format!("{:.2} MiB", in_unit(1 << 20)),
        _ => format!("{:.2} GiB", in_unit(1 << 30)),
    }
}

/// What stands between `before` and `after` in `text`.
pub fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}
