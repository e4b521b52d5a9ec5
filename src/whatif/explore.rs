//! One recording, replayed again and again while a user changes the conditions.
//!
//! The figures are those of `oomscope whatif` and `oomscope replay` under the same conditions, from the same functions,
//! without the search for the smallest capacity, which takes several replays.

use std::io;
use std::sync::OnceLock;

use serde::Serialize;

use super::emit::{Journal, ModelRun, write_snapshot};
use super::forecast::{Forecast, ForecastLength};
use super::grid::candidates;
use super::outcome::{JobOutcome, free_of};
use super::overridden_run::OverriddenRun;
use super::overrides::{Overrides, hypothesis_with};
use super::program::{ChangeCatalog, ProgramRow};
use super::replay::{capacity_warning, release_range};
use super::reports::FailedRequest;
use super::run_figures::RunFigures;
use super::warnings::settings_warning;
use crate::allocator::conf::Settings;
use crate::allocator::{AllocatorEntry, CachingAllocator};
use crate::base::warning::Warning;
use crate::replay::literal::Sampler;
use crate::replay::model::{Hypothesis, Simulation};
use crate::stacks::frames::CodeLocation;
use crate::study::{DeviceStudy, SERIES_ALLOCATED, SERIES_RESERVED, Study};

/// Maximum number of buckets of a curve.
const MAX_BUCKETS: usize = 1024;
/// Maximum number of failed requests to list.
const MAX_FAILURES: usize = 200;

/// The conditions of one replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Bytes of device memory, in place of what the recording shows.
    pub capacity: Option<u64>,
    /// Changes to the recorded settings, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`.
    pub options: String,
    /// The minor release of PyTorch 2 whose rules to follow, in place of the recorded one.
    pub minor: Option<u32>,
    /// [`ProgramRow::key`] of a change to the program, which is replayed under the recorded settings and release.
    pub change: Option<String>,
}

/// The conditions that a recording offers to change.
#[derive(Debug, Clone, Serialize)]
pub struct RecordedConditions {
    /// Device index.
    pub device: u64,
    /// Number of trace entries.
    pub entries: usize,
    /// Memory within reach, as the recording shows it; null if it does not.
    pub capacity_bytes: Option<u64>,
    /// Peak of the live bytes: no setting needs less.
    pub lower_bound_bytes: u64,
    /// Bytes reserved before the first entry: no smaller device is claimed to be enough.
    pub reserved_before_bytes: u64,
    /// The recorded settings; null if the release does not record them.
    pub settings_string: Option<String>,
    /// The releases whose rules a replay follows.
    pub torch_version: String,
    /// The first and the last of these.
    pub minors: [u32; 2],
    /// Changes to the settings that are worth trying.
    pub options: Vec<String>,
    /// Whether the model reproduces the recording; if not, every replay is an estimate.
    pub exact: bool,
    /// The run as recorded.
    pub recorded: TriedRun,
}

/// The outcome of one replay.
#[derive(Debug, Clone, Serialize)]
pub struct TriedRun {
    /// Device memory of the replay; null if unbounded.
    pub capacity_bytes: Option<u64>,
    /// The most bytes that the process may reserve; null if nothing shows a limit.
    pub limit_bytes: Option<u64>,
    /// Whether the model reproduces the recording; if not, the replay is an estimate.
    pub exact: bool,
    /// Number of requests that fail.
    pub ooms: usize,
    /// The first of them.
    pub failed: Vec<FailedRequest>,
    /// The source line of the first one; null if none fails.
    pub location: Option<CodeLocation>,
    /// Number of requests that failed as recorded, and are served here.
    pub avoided: usize,
    /// The outcome of the job.
    pub then: JobOutcome,
    /// Peaks and numbers of device calls.
    #[serde(flatten)]
    pub figures: RunFigures,
    /// The row of the change to the program, if there is one.
    pub change: Option<ProgramRow>,
    /// Limits of the replay.
    pub warnings: Vec<Warning>,
    /// Memory over time, by entry index of the recording.
    pub curve: MemoryCurve,
}

/// Memory over time, in buckets of trace entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MemoryCurve {
    /// Index of the first entry of each bucket.
    pub first: Vec<usize>,
    /// Peak of reserved bytes in each bucket.
    pub reserved: Vec<u64>,
    /// Peak of allocated bytes in each bucket.
    pub allocated: Vec<u64>,
}

impl MemoryCurve {
    fn from_sampler<const N: usize>(samples: &Sampler<N>, [reserved, allocated]: [usize; 2]) -> Self {
        let series = |index: usize| samples.buckets().iter().map(|bucket| bucket.max[index]).collect();
        Self {
            first: samples.buckets().iter().map(|bucket| bucket.first).collect(),
            reserved: series(reserved),
            allocated: series(allocated),
        }
    }
}

/// Replays one device of a recording under [`Conditions`].
pub struct Explorer<'s, 'a> {
    device: DeviceStudy<'s, 'a>,
    /// Found when the first change is replayed.
    changes: OnceLock<ChangeCatalog<'s, 'a>>,
}

impl std::fmt::Debug for Explorer<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Explorer").field("device", &self.device.id()).finish_non_exhaustive()
    }
}

impl<'s, 'a> Explorer<'s, 'a> {
    /// `device` has a trace.
    pub fn new(device: DeviceStudy<'s, 'a>) -> Self {
        Self { device, changes: OnceLock::new() }
    }

    /// Index of the device.
    pub fn device(&self) -> u64 {
        self.device.id()
    }

    /// The conditions that can be changed, and the run as recorded.
    pub fn recorded(&self, study: &Study<'_>) -> RecordedConditions {
        let (device, inference) = (self.device, study.inference());
        RecordedConditions {
            device: device.id(),
            entries: device.device().len(),
            capacity_bytes: device.inferred_capacity(),
            lower_bound_bytes: device.program().peak_bytes(&Settings::default()),
            reserved_before_bytes: device.reserved_before(),
            settings_string: device.snapshot().settings_string().map(str::to_owned),
            torch_version: release_range(study.snapshot(), inference),
            minors: [*inference.releases.start(), *inference.releases.end()],
            options: candidates(device).into_iter().map(|candidate| candidate.option).collect(),
            exact: device.inferred().verification.is_exact(),
            recorded: self.recorded_run(),
        }
    }

    /// The outcome under `conditions`.
    ///
    /// # Errors
    /// One sentence, for invalid options or an unknown change.
    pub fn replay(&self, conditions: &Conditions) -> Result<TriedRun, String> {
        if let Some(key) = &conditions.change {
            return self.replay_change(key, conditions.capacity);
        }
        let overrides = self.overrides(conditions)?;
        if overrides.is_none() {
            return Ok(self.recorded_run());
        }
        let device = self.device;
        let mut samples = self.sampler();
        let run = OverriddenRun::with_observer(device, &overrides, &mut |entry, allocator| {
            samples.add(entry, totals(allocator));
        });
        let reach = ForecastLength::UntilFull(overrides.capacity);
        let then = run.fate(device, Forecast::from_device(device, reach).as_ref()).then;
        let OverriddenRun { hypothesis, simulation } = run;
        let is_limited = hypothesis.limit.is_some();
        let warnings = overrides.settings.as_ref().and_then(|(settings, _)| settings_warning(settings, is_limited));
        let figures = RunFigures::new(simulation.allocator.statistics());
        let curve = MemoryCurve::from_sampler(&samples, [0, 1]);
        Ok(TriedRun {
            avoided: simulation.avoided.len(),
            warnings: capacity_warning(device, overrides.capacity).into_iter().chain(warnings).collect(),
            ..self.run(&hypothesis, figures, &simulation.ooms, (then, curve))
        })
    }

    /// Writes the model's trace and final state under `conditions` as a snapshot of `study`.
    ///
    /// # Errors
    /// One sentence, for invalid options or an unknown change, and those of `out`.
    pub fn write_snapshot(
        &self,
        study: &Study<'_>,
        conditions: &Conditions,
        out: &mut dyn io::Write,
    ) -> Result<(), String> {
        let mut journal = Journal::new();
        let mut push = |entry: &AllocatorEntry, time: u64| journal.push((*entry, time));
        let mut overrides = Overrides { capacity: conditions.capacity, ..Overrides::default() };
        let Simulation { allocator, .. } = if let Some(key) = &conditions.change {
            self.catalog().simulate(key, conditions.capacity, &mut push).ok_or_else(|| unknown_change(key))?
        } else {
            overrides = self.overrides(conditions)?;
            OverriddenRun::new(self.device, &overrides, Some(&mut push)).simulation
        };
        let run = ModelRun { device: self.device.id(), journal, allocator };
        write_snapshot(study, &overrides, &[run], out).map_err(|error| error.to_string())
    }

    fn catalog(&self) -> &ChangeCatalog<'s, 'a> {
        self.changes.get_or_init(|| ChangeCatalog::new(self.device))
    }

    /// The conditions of a replay of the unchanged program.
    ///
    /// # Errors
    /// One sentence, for invalid options.
    pub fn overrides(&self, conditions: &Conditions) -> Result<Overrides, String> {
        Overrides::for_device(self.device, &conditions.options, conditions.capacity, conditions.minor)
    }

    fn sampler(&self) -> Sampler<2> {
        Sampler::new(self.device.device().len(), MAX_BUCKETS)
    }

    /// The figures of the recording, which the model may not reproduce.
    fn recorded_run(&self) -> TriedRun {
        let device = self.device;
        let figures = RunFigures::recorded(device);
        let hypothesis = hypothesis_with(device, &Overrides::default());
        let failed: Vec<(usize, u64)> =
            device.device().failed_requests().map(|event| (event, device.device().entry(event).size)).collect();
        let history = device.history().map(|history| &history.samples);
        let curve = history.map_or_else(MemoryCurve::default, |samples| {
            MemoryCurve::from_sampler(samples, [SERIES_RESERVED, SERIES_ALLOCATED])
        });
        let then = JobOutcome::recorded(device, free_of(&hypothesis, figures.peak_reserved_bytes));
        self.run(&hypothesis, figures, &failed, (then, curve))
    }

    fn replay_change(&self, key: &str, capacity: Option<u64>) -> Result<TriedRun, String> {
        let mut samples = self.sampler();
        let mut observe = |entry: usize, allocator: &CachingAllocator| {
            samples.add(entry, totals(allocator));
        };
        let replayed = self.catalog().replay(key, capacity, &mut observe);
        let (row, failed, figures) = replayed.ok_or_else(|| unknown_change(key))?;
        let hypothesis = hypothesis_with(self.device, &Overrides { capacity, ..Overrides::default() });
        let curve = MemoryCurve::from_sampler(&samples, [0, 1]);
        Ok(TriedRun {
            change: Some(row.clone()),
            warnings: capacity_warning(self.device, capacity).into_iter().collect(),
            ..self.run(&hypothesis, figures, &failed, (row.then.clone(), curve))
        })
    }

    /// A run in which the requests of `failed` (entry index and bytes) fail.
    fn run(
        &self,
        hypothesis: &Hypothesis,
        figures: RunFigures,
        failed: &[(usize, u64)],
        (then, curve): (JobOutcome, MemoryCurve),
    ) -> TriedRun {
        let device = self.device;
        let line_of = |(entry, _): &(usize, u64)| {
            let stack = (*entry < device.device().len()).then(|| device.device().entry(*entry).extended_stack)?;
            Some(device.stacks().code_location(device.stacks().line_id(stack)))
        };
        let listed = failed.iter().take(MAX_FAILURES);
        TriedRun {
            capacity_bytes: hypothesis.capacity,
            limit_bytes: hypothesis.limit,
            exact: device.inferred().verification.is_exact(),
            ooms: failed.len(),
            failed: listed.map(|(event, bytes)| FailedRequest { event: *event, requested_bytes: *bytes }).collect(),
            location: failed.first().and_then(line_of),
            avoided: 0,
            then,
            figures,
            change: None,
            warnings: Vec::new(),
            curve,
        }
    }
}

fn totals(allocator: &CachingAllocator) -> [u64; 2] {
    let statistics = allocator.statistics();
    [statistics.reserved_bytes.all.current, statistics.allocated_bytes.all.current]
}

fn unknown_change(key: &str) -> String {
    format!("this recording suggests no change '{key}'")
}
