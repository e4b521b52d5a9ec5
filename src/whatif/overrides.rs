//! The conditions that a replay changes: settings, device memory, release.

use crate::allocator::conf::{self, ConfChange, Settings, UnknownKeys, find_option};
use crate::allocator::device::GpuModel;
use crate::replay::model::Hypothesis;
use crate::snapshot::Snapshot;
use crate::study::DeviceStudy;

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
    let recorded_fraction = recorded.last_settings().per_process_memory_fraction;
    let new_fraction = hypothesis.last_settings().per_process_memory_fraction;
    let is_fraction_changed = recorded_fraction < 1.0 && new_fraction.total_cmp(&recorded_fraction).is_ne();
    if overrides.capacity.is_none() && !is_fraction_changed {
        // The lower bound of the limit that the recording shows: a remedy must not rely on more than that.
        let recorded_limit = recorded.limit.or_else(|| device.inferred_limit().map(|limits| *limits.start()));
        hypothesis.limit = [hypothesis.limit, recorded_limit].into_iter().flatten().min();
    }
    hypothesis
}

/// The hypothesis under `overrides` on a device of `capacity` bytes.
pub(crate) fn hypothesis_on(device: DeviceStudy<'_, '_>, capacity: u64, overrides: &Overrides) -> Hypothesis {
    hypothesis_with(device, &Overrides { capacity: Some(capacity), ..overrides.clone() })
}
