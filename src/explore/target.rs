//! A moment as a user types it after `:`.

use crate::study::DeviceStudy;

/// Where to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// Before the first entry.
    Start,
    /// After the last entry.
    End,
    /// Where most is allocated.
    Peak,
    /// The next failed request.
    Failure,
    /// After the entry with this index.
    Entry(u64),
    /// The end of a training step.
    Step(u32),
    /// A number of microseconds after the first entry.
    Time(u64),
}

impl Target {
    /// Parses `12345`, `step 7`, `peak`, `failure`, `start`, `end`, and times such as `12.5s`, `3m`, `1:30`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let parsed = match text {
            "start" => Some(Self::Start),
            "end" => Some(Self::End),
            "peak" => Some(Self::Peak),
            "failure" => Some(Self::Failure),
            _ => match text.strip_prefix("step") {
                Some(number) => number.trim().parse().ok().map(Self::Step),
                None => text.replace(',', "").parse().ok().map(Self::Entry).or_else(|| parse_time(text)),
            },
        };
        parsed.ok_or_else(|| {
            "give an entry (12345), a time (12.5s, 1:30), step 7, peak, failure, start or end".to_owned()
        })
    }
}

/// `250ms`, `12.5s`, `3m`, `1:30`, `1:02:03`.
fn parse_time(text: &str) -> Option<Target> {
    let seconds = |text: &str| text.parse::<f64>().ok().filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    let total = if text.contains(':') {
        text.split(':').try_fold(0.0, |sum, part| Some(sum * 60.0 + seconds(part)?))?
    } else {
        let (number, unit) = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)]
            .into_iter()
            .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
        seconds(number)? * unit
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    Some(Target::Time((total * 1e6) as u64))
}

/// The number of entries up to the last one within `us` microseconds of the first; `None` without times.
pub(super) fn moment_at(device: DeviceStudy<'_, '_>, us: u64) -> Option<usize> {
    let trace = device.device();
    let start = trace.time_us(0)?;
    let (mut low, mut high) = (0, trace.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        // An entry without a time counts as within.
        if trace.time_us(middle).is_none_or(|time| time.saturating_sub(start) <= us) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_times_steps_and_names_are_told_apart() {
        for (text, target) in [
            ("12,345", Target::Entry(12345)),
            ("step 7", Target::Step(7)),
            (" peak ", Target::Peak),
            ("12.5s", Target::Time(12_500_000)),
            ("250ms", Target::Time(250_000)),
            ("1:30", Target::Time(90_000_000)),
            ("1:00:01", Target::Time(3_601_000_000)),
        ] {
            assert_eq!(Target::parse(text), Ok(target), "{text}");
        }
        for text in ["", "x", "-1", "step", "1:x", "infs", "nans"] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
    }
}
