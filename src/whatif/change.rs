//! What a replay changes of the recording: its settings, the device, the release.

use crate::allocator::conf::{self, Change, Settings, Unknown, option_in};
use crate::replay::model::Hypothesis;
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

/// The recorded settings, the last ones if they changed at run time, with the options in `option` in place of their own, and the string that says so.
/// `default` takes all recorded options back, `key:default` one.
///
/// # Errors
/// One sentence, in PyTorch's words.
pub fn option_change(
    snapshot: &Snapshot,
    recorded: &Hypothesis,
    option: &str,
) -> Result<(Settings, String), String> {
    let (minor, change) = (recorded.minor, Change::of(option));
    let mut before =
        if change.undoes_all { Settings::plain(minor) } else { recorded.last_settings().clone() };
    for key in &change.undone {
        before = before.without(key, minor).map_err(|error| format!("{option}: {error}"))?;
    }
    // What is typed must be right; what is recorded was accepted once.
    conf::parse(&change.set, &before, minor, Unknown::Refuse)
        .map_err(|error| format!("{option}: {error}"))?;
    if option_in(&change.set, "backend").is_some_and(|backend| backend != "native") {
        return Err(format!("{option}: only the native backend is replayed"));
    }
    let base = snapshot.settings.as_ref().map_or("", |raw| raw.string.as_str());
    let string = change.over(base);
    let mut settings = conf::parse(&string, &before, minor, Unknown::Warn)
        .map_err(|error| format!("{option}, with the recorded settings {base:?}: {error}"))?
        .settings;
    if snapshot.settings.is_none() && !change.undoes_all {
        // A parse sets these back, and there is no string that says what was found.
        let found = recorded.last_settings();
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
        // What is set holds from the first entry to the last.
        hypothesis.later.clear();
    }
    if let Some(minor) = change.minor {
        hypothesis.minor = minor;
    }
    let capacity = change.capacity.or(recorded.capacity);
    hypothesis.capacity = capacity.or_else(|| device.shown_capacity());
    hypothesis.limit = hypothesis.recorded_limit();
    // On another device the process may use all of it, save what its settings say. On its own, what
    // the program sets by a call holds, whatever its settings say; a limit of recorded settings goes with
    // them.
    let of = |settings: &Settings| settings.per_process_memory_fraction;
    let (was, is) = (of(recorded.last_settings()), of(hypothesis.last_settings()));
    let is_lifted = was < 1.0 && is.total_cmp(&was).is_ne();
    if change.capacity.is_none() && !is_lifted {
        // What is sure to have been allowed: a remedy that needs more is not claimed to help.
        let shown = || device.shown_limit().map(|limits| *limits.start());
        let known = recorded.limit.or_else(shown);
        hypothesis.limit = [hypothesis.limit, known].into_iter().flatten().min();
    }
    hypothesis
}
