//! Recordings of a real GPU (fixtures/gpu, by tests/gpu): the model reproduces them, the figures are those that PyTorch
//! counted, and the smallest memory is that at which the program really ran or failed.

use std::collections::BTreeMap;

use crate::support::fixtures;
use oomscope::study::{Scope, Study};
use oomscope::whatif::{WhatIfOptions, compare_settings};
use serde_json::Value;

const MIB: f64 = (1 << 20) as f64;

fn counted() -> BTreeMap<String, Value> {
    serde_json::from_slice(&std::fs::read(fixtures::directory().join("gpu/counted.json")).unwrap()).unwrap()
}

#[test]
fn the_model_and_the_figures_are_those_of_the_gpu() {
    let counted = counted();
    assert!(counted.len() >= 5);
    for (name, counted) in counted {
        let snapshot = fixtures::snapshot(&format!("gpu/{name}"));
        let study = Study::new(&snapshot, Scope::default());
        let device = study.devices().find(|device| !device.device().is_empty()).unwrap();
        assert!(device.inferred().verification.is_exact(), "{name}");
        let options: [String; 0] = [];
        let asked = WhatIfOptions { options: &options, ..WhatIfOptions::default() };
        let report = compare_settings(&study, &name, asked, &|_, _| {}).unwrap();
        let row = report.rows.iter().find(|row| row.settings.is_empty()).unwrap();
        let figures = [
            row.figures.peak_allocated_bytes,
            row.figures.peak_reserved_bytes,
            row.figures.device_allocs,
            row.figures.retries,
        ];
        let keys = ["peak_allocated", "peak_reserved", "device_allocs", "retries"];
        assert_eq!(figures, keys.map(|key| counted[key].as_u64().unwrap()), "{name}");
        let smallest = row.smallest_capacity_bytes.unwrap() as f64 / MIB;
        let limits = |key: &str| counted[key].as_array().unwrap().iter().map(|at| at.as_f64().unwrap());
        for failed in limits("failed_at_mib") {
            assert!(smallest > failed, "{name}: {smallest} MiB, but it failed with {failed} MiB");
        }
        if let Some(ran) = limits("ran_at_mib").reduce(f64::max) {
            assert!(smallest <= ran * (1.0 + 1.0 / 256.0), "{name}: {smallest} MiB, but it ran with {ran} MiB");
        }
    }
}
