//! Settings that were asked for and are not in effect are named, whichever option it is.

use oomscope::analysis::{Options, analyze};
use oomscope::snapshot::Snapshot;
use serde_json::{Value, json};

/// What is said of a snapshot with this string and these settings in effect.
fn said(string: &str, effective: &[(&str, Value)]) -> Vec<String> {
    let mut settings = json!({
        "PYTORCH_CUDA_ALLOC_CONF": string,
        "max_split_size": -1,
        "garbage_collection_threshold": 0.0,
        "expandable_segments": false,
        "roundup_power2_divisions": {"1": 0, "2": 0},
    });
    for (key, value) in effective {
        settings[*key] = value.clone();
    }
    let file = json!({"segments": [], "device_traces": [[]], "allocator_settings": settings});
    let snapshot = Snapshot::read(file.to_string().as_bytes(), &|_| {}).unwrap();
    let report = analyze(&snapshot, "a", 0, Options::default());
    let warnings = report.warnings.into_iter();
    warnings.filter(|w| w.code.word() == "settings-not-in-effect").map(|w| w.message).collect()
}

#[test]
fn each_option_that_is_recorded_is_compared() {
    for (string, expected) in [
        ("expandable_segments:True", "False"),
        ("max_split_size_mb:64", "no limit"),
        ("garbage_collection_threshold:0.8", "0"),
        ("roundup_power2_divisions:4", "0"),
    ] {
        let said = said(string, &[]);
        assert_eq!(said, [format!("{string} was set but is not in effect; the effective value is {expected}")]);
    }
}

#[test]
fn settings_in_effect_are_not_advised() {
    let all: Vec<(String, Value)> = (0..16).map(|bucket| ((1u64 << bucket).to_string(), json!(4))).collect();
    let divisions = Value::Object(all.into_iter().collect());
    let string =
        "expandable_segments:True,max_split_size_mb:64,garbage_collection_threshold:0.8,roundup_power2_divisions:4";
    let effective = [
        ("expandable_segments", json!(true)),
        ("max_split_size", json!(64 << 20)),
        ("garbage_collection_threshold", json!(0.8)),
        ("roundup_power2_divisions", divisions),
    ];
    assert_eq!(said(string, &effective), [""; 0]);
    assert_eq!(said("", &[]), [""; 0]);
}
