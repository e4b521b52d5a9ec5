//! The conditions that a replay changes: settings, device memory, release; the settings that every search tries; and warnings
//! about settings and about the limits of a what-if.

use crate::allocator::conf::{self, ConfChange, EXPANDABLE_SEGMENTS, Settings, UnknownKeys, find_option};
use crate::allocator::device::GpuModel;
use crate::base::units::{MIB, count, counted};
use crate::base::warning::{Code, Warning};
use crate::replay::model::Hypothesis;
use crate::snapshot::Snapshot;
use crate::study::{DeviceStudy, LostHistory};

/// Conditions to replay under in place of the recorded ones.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// The settings, and the string that they were parsed from.
    pub settings: Option<(Settings, String)>,
    /// Bytes of device memory.
    pub capacity: Option<u64>,
    /// The minor release of PyTorch 2 whose rules to follow.
    pub minor: Option<u32>,
    /// The GPU on which kernels are launched, for predictions at other sizes.
    pub gpu: Option<&'static GpuModel>,
}

impl Overrides {
    /// Settings for one replay: `options` in the syntax of `PYTORCH_CUDA_ALLOC_CONF` change the recorded ones of `device`,
    /// by the rules of release `minor` if it is given. Without options the settings stay as recorded.
    ///
    /// # Errors
    /// One sentence, in PyTorch's words.
    pub fn for_device(
        device: DeviceStudy<'_, '_>,
        options: &str,
        capacity: Option<u64>,
        minor: Option<u32>,
    ) -> Result<Self, String> {
        if options.is_empty() {
            return Ok(Self { capacity, minor, ..Self::default() });
        }
        let mut recorded = device.inferred().hypothesis.clone();
        recorded.minor = minor.unwrap_or(recorded.minor);
        let settings = apply_option(device.snapshot(), &recorded, options)?;
        Ok(Self { settings: Some(settings), capacity, minor, gpu: None })
    }

    /// Whether everything stays as recorded.
    pub fn is_none(&self) -> bool {
        self.settings.is_none() && self.capacity.is_none() && self.minor.is_none()
    }
}

/// Applies `option` to the recorded settings, to the last ones if they changed at run time. Returns the resulting
/// settings and their string. `default` resets all recorded options, `key:default` resets one.
///
/// # Errors
/// One sentence, in PyTorch's words.
pub fn apply_option(snapshot: &Snapshot, recorded: &Hypothesis, option: &str) -> Result<(Settings, String), String> {
    let (minor, change) = (recorded.minor, ConfChange::parse(option));
    let mut start =
        if change.resets_all { Settings::defaults_for_release(minor) } else { recorded.last_settings().clone() };
    for key in &change.reset {
        start = start.with_default(key, minor).map_err(|error| format!("{option}: {error}"))?;
    }
    // Unknown keys are refused in `option`, which the user typed, but not in the recorded string, which PyTorch
    // accepted.
    conf::parse(&change.set, &start, minor, UnknownKeys::Refuse).map_err(|error| format!("{option}: {error}"))?;
    if find_option(&change.set, "backend").is_some_and(|backend| backend != "native") {
        return Err(format!("{option}: only the native backend can be replayed"));
    }
    let recorded_string = snapshot.settings.as_ref().map_or("", |raw| raw.string.as_str());
    let string = change.apply_to(recorded_string);
    let mut settings = conf::parse(&string, &start, minor, UnknownKeys::Warn)
        .map_err(|error| format!("{option}, with the recorded settings {recorded_string:?}: {error}"))?
        .settings;
    if snapshot.settings.is_none() && !change.resets_all {
        // These two were inferred from the trace, so no string holds them and parsing has reset them.
        let inferred = recorded.last_settings();
        if find_option(option, "max_split_size_mb").is_none() {
            settings.max_split_size = inferred.max_split_size;
        }
        if find_option(option, "roundup_power2_divisions").is_none() {
            settings.roundup_power2_divisions = inferred.roundup_power2_divisions;
        }
    }
    Ok((settings, string))
}

/// The hypothesis inferred for `device`, with `overrides` applied.
pub(crate) fn hypothesis_with(device: DeviceStudy<'_, '_>, overrides: &Overrides) -> Hypothesis {
    let recorded = &device.inferred().hypothesis;
    let mut hypothesis = recorded.clone();
    if let Some((settings, _)) = &overrides.settings {
        hypothesis.settings = settings.clone();
        // Overriding settings apply to the whole trace, so recorded changes at run time no longer do.
        hypothesis.settings_changes.clear();
    }
    if let Some(minor) = overrides.minor {
        hypothesis.minor = minor;
    }
    let capacity = overrides.capacity.or(recorded.capacity);
    hypothesis.capacity = capacity.or_else(|| device.inferred_capacity());
    hypothesis.limit = hypothesis.limit_from_settings();
    // A limit that the program sets by a call holds on the recorded device under any settings. A limit from the
    // recorded settings is dropped with them. On another device only the new settings limit the process.
    let fraction = |settings: &Settings| settings.per_process_memory_fraction;
    let (recorded_fraction, new_fraction) = (fraction(recorded.last_settings()), fraction(hypothesis.last_settings()));
    let is_fraction_changed = recorded_fraction < 1.0 && new_fraction.total_cmp(&recorded_fraction).is_ne();
    if overrides.capacity.is_none() && !is_fraction_changed {
        // The lower bound of the limit that the recording shows: a remedy must not rely on more than that.
        let shown_limit = || device.inferred_limit().map(|limits| *limits.start());
        let recorded_limit = recorded.limit.or_else(shown_limit);
        hypothesis.limit = [hypothesis.limit, recorded_limit].into_iter().flatten().min();
    }
    hypothesis
}

/// The hypothesis under `overrides` on a device of `capacity` bytes.
pub(crate) fn hypothesis_on(device: DeviceStudy<'_, '_>, capacity: u64, overrides: &Overrides) -> Hypothesis {
    hypothesis_with(device, &Overrides { capacity: Some(capacity), ..overrides.clone() })
}

/// Options that are tried at their default first: where one is recorded, it may be what wastes memory.
const REMOVED: [&str; 2] = ["max_split_size_mb", "roundup_power2_divisions"];

/// The first of those that lead to equal settings is tried.
const TRIED: [&str; 21] = [
    EXPANDABLE_SEGMENTS,
    "expandable_segments:True,roundup_power2_divisions:4",
    "expandable_segments:True,roundup_power2_divisions:8",
    "expandable_segments:False",
    "max_split_size_mb:32",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
    "max_split_size_mb:1024",
    "max_split_size_mb:64,roundup_power2_divisions:8",
    "max_split_size_mb:128,roundup_power2_divisions:8",
    "max_split_size_mb:256,roundup_power2_divisions:8",
    "roundup_power2_divisions:2",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:16",
    "garbage_collection_threshold:0.6,per_process_memory_fraction:0.98",
    "garbage_collection_threshold:0.8,per_process_memory_fraction:0.98",
    "max_split_size_mb:128,garbage_collection_threshold:0.8,per_process_memory_fraction:0.98",
    "default",
];

/// Settings to try.
pub(crate) struct Candidate {
    /// The change to the recorded settings, in the syntax of `oomscope whatif --set`.
    pub(crate) option: String,
    /// The settings, and their string.
    pub(crate) settings: (Settings, String),
}

/// The settings that the release of `device` has, each once, if they differ from the recorded ones, are neither harmful nor
/// idle, and affect requests of the program's sizes.
pub(crate) fn candidates(device: DeviceStudy<'_, '_>) -> Vec<Candidate> {
    let recorded = &device.inferred().hypothesis;
    let last = recorded.last_settings();
    let removed = REMOVED.iter().map(|key| format!("{key}:default"));
    let tried = TRIED.iter().map(|option| {
        let mut option = (*option).to_owned();
        if option.starts_with(EXPANDABLE_SEGMENTS) {
            // Expandable segments are tried without the options that are harmful or idle beside them.
            let beside = [
                ("max_split_size_mb", last.max_split_size != u64::MAX),
                ("garbage_collection_threshold", last.garbage_collection_threshold > 0.0),
            ];
            let recorded = beside.iter().filter(|(_, is_recorded)| *is_recorded);
            option.extend(recorded.map(|(key, _)| format!(",{key}:default")));
        }
        option
    });
    let mut candidates: Vec<Candidate> = Vec::new();
    for option in removed.chain(tried) {
        let Ok(settings) = apply_option(device.snapshot(), recorded, &option) else { continue };
        let is_new = candidates.iter().all(|known| known.settings.0 != settings.0);
        if is_new && has_use(&settings.0, device) {
            candidates.push(Candidate { option, settings });
        }
    }
    candidates
}

fn has_use(settings: &Settings, device: DeviceStudy<'_, '_>) -> bool {
    let max_split_size = settings.max_split_size;
    let recorded = &device.inferred().hypothesis;
    (!recorded.settings_changes.is_empty() || *settings != recorded.settings)
        && settings_warning(settings, true).is_none()
        && (max_split_size == u64::MAX || device.program().largest_request() >= max_split_size)
}

/// Warns if `settings` are harmful together, or if one of them has no effect. `is_limited`: the process may not
/// reserve the whole device.
pub(crate) fn settings_warning(settings: &Settings, is_limited: bool) -> Option<Warning> {
    let collects = settings.garbage_collection_threshold > 0.0;
    // A free block of the maximum split size or more is neither split nor handed to a smaller request, so an expandable
    // segment maps new memory instead (pytorch/pytorch#123548).
    if settings.expandable_segments && settings.max_split_size != u64::MAX {
        let limit = settings.max_split_size / MIB;
        return Some(Warning::new(
            Code::HarmfulSettings,
            format!(
                "expandable_segments:True with max_split_size_mb:{limit}: reserved memory can grow \
                 without bound from step to step, because a free block that large serves no \
                 smaller request; set only one of the two"
            ),
        ));
    }
    let why = match (collects, settings.expandable_segments, is_limited) {
        (true, true, _) => "expandable segments are never collected",
        (true, false, false) => {
            "nothing is collected unless the process has a limit \
             (per_process_memory_fraction, torch.cuda.set_per_process_memory_fraction)"
        }
        _ => return None,
    };
    let threshold = settings.garbage_collection_threshold;
    let message = format!("garbage_collection_threshold:{threshold} has no effect: {why}");
    Some(Warning::new(Code::IdleSetting, message))
}

/// Warns if the trace of `device` is a single entry, so that a replay shows almost nothing.
pub(super) fn single_entry_warning(device: DeviceStudy<'_, '_>) -> Option<Warning> {
    let lost = device.lost_history().filter(|lost| *lost == LostHistory::RingOfOne)?;
    let id = device.id();
    let message = format!("GPU {id}: {lost}; the rows below replay only that entry");
    Some(Warning::new(Code::HistoryLost, message))
}

/// Warns if the model does not reproduce the recording of `device`.
pub(super) fn divergence_warning(device: DeviceStudy<'_, '_>) -> Option<Warning> {
    let verification = &device.inferred().verification;
    let (matched, recorded) = (verification.matched as u64, verification.recorded as u64);
    let message = format!(
        "GPU {}: the model reproduces only {} of {}: estimates (`oomscope replay` says where and why)",
        device.id(),
        count(matched),
        counted(recorded, "entry")
    );
    verification.divergence.is_some().then(|| Warning::new(Code::ModelParted, message))
}

/// Warns if the settings of `device` changed while the program ran.
pub(super) fn settings_changed_warning(device: DeviceStudy<'_, '_>) -> Option<Warning> {
    let recorded = &device.inferred().hypothesis;
    let changes = counted(recorded.settings_changes.len() as u64, "time");
    (!recorded.settings_changes.is_empty()).then(|| {
        let message = format!(
            "GPU {}: the replay shows that settings changed {changes} at run time; the run as recorded follows \
             each change, other settings extend the last ones and apply from the first entry to the last",
            device.id()
        );
        Warning::new(Code::SettingsChanged, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::conf::{UnknownKeys, parse};

    fn parsed(string: &str) -> Settings {
        parse(string, &Settings::default(), 15, UnknownKeys::Refuse).unwrap().settings
    }

    #[test]
    fn harmful_and_idle_settings_are_warned_about() {
        let code = |string: &str, is_limited| settings_warning(&parsed(string), is_limited).map(|c| c.code);
        let pair = "expandable_segments:True,max_split_size_mb:64";
        assert_eq!(code(pair, true), Some(Code::HarmfulSettings));
        assert_eq!(code("garbage_collection_threshold:0.8", false), Some(Code::IdleSetting));
        assert_eq!(code("garbage_collection_threshold:0.8", true), None);
        let both = "garbage_collection_threshold:0.8,expandable_segments:True";
        assert_eq!(code(both, true), Some(Code::IdleSetting));
        for harmless in ["", "expandable_segments:True", "max_split_size_mb:64"] {
            assert_eq!(code(harmless, false), None, "{harmless}");
        }
    }
}
