//! Replays of one device, for the panel of the page: requests and answers are JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::allocator::device::{GPUS, GpuModel, parse_replay_capacity};
use crate::allocator::releases::{NEWEST, OLDEST, parse_release};
use crate::analysis::{AnalyzeReport, Options, analyze_study};
use crate::base::input::Source;
use crate::output::document::html;
use crate::output::page::{SnapshotData, device_json};
use crate::output::report;
use crate::snapshot::Snapshot;
use crate::study::{Scope, Study};
use crate::whatif::{Conditions, Explorer, Tries, WhatIfOptions, compare_settings, replay_with, verify_study};

/// A request of the page.
#[derive(Debug, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
enum Request {
    /// The conditions that the recording offers to change.
    Recorded,
    /// The outcome under `conditions`.
    Replay { conditions: PageConditions },
    /// The page of `oomscope whatif` or `oomscope replay` under `conditions`.
    Describe { conditions: PageConditions },
    /// The changes to the program.
    Changes { conditions: PageConditions },
    /// The replayed run as a device of the page.
    Show { conditions: PageConditions },
}

/// Conditions as a user writes them; empty text leaves something as recorded.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PageConditions {
    /// A size, or the name of a GPU.
    capacity: String,
    options: String,
    release: String,
    change: String,
}

impl PageConditions {
    fn parse(&self) -> Result<Conditions, String> {
        let parse = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        Ok(Conditions {
            capacity: parse(&self.capacity).map(|text| parse_replay_capacity(&text)).transpose()?,
            options: self.options.trim().to_owned(),
            minor: parse(&self.release).map(|text| parse_release(&text)).transpose()?,
            change: parse(&self.change),
        })
    }
}

/// The keys of `part`, and `more`.
fn with(part: &impl Serialize, more: Value) -> Value {
    match (serde_json::to_value(part), more) {
        (Ok(Value::Object(mut keys)), Value::Object(more)) => {
            keys.extend(more);
            Value::Object(keys)
        }
        (_, more) => more,
    }
}

/// Answers requests for replays of one device.
#[derive(Debug)]
pub struct Replayer<'s, 'a> {
    study: &'s Study<'a>,
    name: String,
    explorer: Explorer<'s, 'a>,
}

impl<'s, 'a> Replayer<'s, 'a> {
    /// For the device of `study`, whose scope is one device of the file `name`.
    ///
    /// # Errors
    /// If there is nothing to replay.
    pub fn new(study: &'s Study<'a>, name: &str) -> Result<Self, String> {
        let mut traced = study.devices().filter(|device| !device.device().is_empty());
        let device = traced.next().ok_or("this device has no trace to replay")?;
        Ok(Self { study, name: name.to_owned(), explorer: Explorer::new(device) })
    }

    /// The answer to `request`, both JSON.
    pub fn answer(&self, request: &str) -> String {
        let parsed = serde_json::from_str(request).map_err(|error| error.to_string());
        let answer =
            parsed.and_then(|request| self.respond(&request)).unwrap_or_else(|error| json!({ "error": error }));
        answer.to_string()
    }

    fn respond(&self, request: &Request) -> Result<Value, String> {
        Ok(match request {
            Request::Recorded => json!({ "recorded": self.offer() }),
            Request::Replay { conditions } => {
                let run = self.explorer.replay(&conditions.parse()?)?;
                json!({ "replay": with(&run, json!({ "outcome": run.outcome() })) })
            }
            // HTML without a script, every text escaped.
            Request::Describe { conditions } => json!({ "describe": self.describe(&conditions.parse()?)? }),
            Request::Changes { conditions } => json!({ "changes": self.changes(conditions.parse()?.capacity)? }),
            Request::Show { conditions } => json!({ "show": self.show(&conditions.parse()?)? }),
        })
    }

    /// The settings and changes to try, and the outcome as recorded, in a sentence.
    fn offer(&self) -> Value {
        let conditions = self.explorer.recorded(self.study);
        let [first, last] = conditions.minors;
        let cannot_have_recorded = |minor: &u32| !(first..=last).contains(minor);
        let releases = (OLDEST..=NEWEST).filter(cannot_have_recorded).map(|minor| format!("2.{minor}"));
        let gpus: BTreeMap<_, _> = GPUS.iter().map(|gpu| (gpu.name, GpuModel::usable_bytes(gpu))).collect();
        let more = json!({
            "outcome": conditions.recorded.outcome(),
            "gpus": gpus,
            "releases": releases.collect::<Vec<String>>(),
        });
        with(&conditions, more)
    }

    fn describe(&self, conditions: &Conditions) -> Result<String, String> {
        let Conditions { capacity, options, minor, .. } = conditions;
        if minor.is_none() && !options.is_empty() {
            let options = WhatIfOptions {
                options: std::slice::from_ref(options),
                capacity: *capacity,
                ..WhatIfOptions::default()
            };
            let report = compare_settings(self.study, &self.name, options, &|_, _| ())?;
            return Ok(html(&report::whatif(&report)));
        }
        let overrides = self.explorer.overrides(conditions)?;
        let report = if overrides.is_none() {
            verify_study(self.study, &self.name)
        } else {
            replay_with(self.study, &self.name, &overrides, false).0
        };
        Ok(html(&report::replay(&report)))
    }

    /// The changes, and the page of `oomscope whatif --program`.
    fn changes(&self, capacity: Option<u64>) -> Result<Value, String> {
        let options = WhatIfOptions { capacity, tries: Tries::Program, ..WhatIfOptions::default() };
        let report = compare_settings(self.study, &self.name, options, &|_, _| ())?;
        let rows = report.program.iter().flatten().flat_map(|device| &device.rows);
        let changes = rows.map(|row| with(row, json!({ "key": row.key(), "label": row.label() })));
        Ok(json!({ "html": html(&report::whatif(&report)), "changes": changes.collect::<Vec<Value>>() }))
    }

    fn show(&self, conditions: &Conditions) -> Result<Value, String> {
        let mut pickle = Vec::new();
        self.explorer.write_snapshot(self.study, conditions, &mut pickle)?;
        let source = Source::from_plain(pickle);
        let snapshot = Snapshot::read(&source, &|_| ()).map_err(|error| error.to_string())?;
        let scope = Scope { minor: conditions.minor, ..Scope::default() };
        let study = Study::new(&snapshot, scope);
        let options = Options { top: super::TABLE_ROWS, minor: conditions.minor, ..Options::default() };
        let analysis = analyze_study(&study, &self.name, source.stored_bytes(), options);
        let data = SnapshotData::from_study(&study, &analysis, 1).map_err(|error| error.to_string())?;
        let report = AnalyzeReport::new(vec![analysis], Vec::new(), super::TABLE_ROWS);
        device_json(&report, &data).map_err(|error| error.to_string())
    }
}
