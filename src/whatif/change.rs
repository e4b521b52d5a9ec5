//! What a replay changes of the recording: its settings, the device, the release.

use crate::conf::{self, Settings, Unknown, option_in};
use crate::model::Hypothesis;
use crate::snapshot::Snapshot;
use crate::study::DeviceStudy;

/// What to replay otherwise than it was recorded.
#[derive(Debug, Clone, Default)]
pub struct WhatIf {
    /// The settings, and the string they come from.
    pub settings: Option<(Settings, String)>,
    /// Bytes of device memory.
    pub capacity: Option<u64>,
    /// The minor release of PyTorch 2 whose rules to follow.
    pub minor: Option<u32>,
}

/// The recorded settings with the options in `option` in place of their own, and the string that says so.
///
/// # Errors
/// One sentence, in PyTorch's words.
pub fn option_change(
    snapshot: &Snapshot,
    recorded: &Hypothesis,
    option: &str,
) -> Result<(Settings, String), String> {
    // What is typed must be right; what is recorded was accepted once.
    conf::parse(option, &recorded.settings, recorded.minor, Unknown::Refuse)
        .map_err(|error| format!("{option}: {error}"))?;
    if option_in(option, "backend").is_some_and(|backend| backend != "native") {
        return Err(format!("{option}: only the native backend is replayed"));
    }
    let base = snapshot.settings.as_ref().map_or("", |raw| raw.string.as_str());
    let string = conf::overlay(base, option);
    let mut settings = conf::parse(&string, &recorded.settings, recorded.minor, Unknown::Warn)
        .map_err(|error| format!("{option}, with the recorded settings {base:?}: {error}"))?
        .settings;
    if snapshot.settings.is_none() {
        // A parse sets these back, and there is no string that says what was found.
        let found = &recorded.settings;
        if option_in(option, "max_split_size_mb").is_none() {
            settings.max_split_size = found.max_split_size;
        }
        if option_in(option, "roundup_power2_divisions").is_none() {
            settings.roundup_power2_divisions = found.roundup_power2_divisions;
        }
    }
    Ok((settings, string))
}

/// The hypothesis of a what-if: as recorded, less what is changed.
pub(crate) fn changed(device: DeviceStudy<'_, '_>, change: &WhatIf) -> Hypothesis {
    let recorded = &device.inferred().hypothesis;
    let mut hypothesis = recorded.clone();
    if let Some((settings, _)) = &change.settings {
        hypothesis.settings = settings.clone();
    }
    if let Some(minor) = change.minor {
        hypothesis.minor = minor;
    }
    let capacity = change.capacity.or(recorded.capacity);
    hypothesis.capacity = capacity.or_else(|| device.shown_capacity());
    hypothesis.limit = hypothesis.recorded_limit();
    // On another device the process may use all of it, save what its settings say. On its own, what
    // the program sets by a call holds, whatever its settings say.
    if change.capacity.is_none() {
        // What is sure to have been allowed: a remedy that needs more is not claimed to help.
        let shown = || device.shown_limit().map(|limits| *limits.start());
        let known = recorded.limit.or_else(shown);
        hypothesis.limit = [hypothesis.limit, known].into_iter().flatten().min();
    }
    hypothesis
}
