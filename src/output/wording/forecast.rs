//! The fate of a program whose failed request a setting serves.

use std::fmt;

use crate::analysis::failure::Remedy;
use crate::base::units::{counted, size};
use crate::whatif::{FailsIn, ForecastVerdict, NOTICEABLE_PARTS, WhyUnknown};

/// The fate of the request and of the program.
impl fmt::Display for ForecastVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let later = describe_later(self);
        match self {
            Self::GoesOn { .. } => f.write_str(&later),
            Self::FailsAgain { .. } => write!(f, "this request is served, and {later}"),
            Self::Unknown { .. } => write!(f, "this request is served; {later}"),
        }
    }
}

/// The fate of the program after the request.
pub(super) fn describe_later(verdict: &ForecastVerdict) -> String {
    match verdict {
        ForecastVerdict::GoesOn { headroom_bytes, sizes_vary } => {
            let until = if *sizes_vary { " until a larger input comes" } else { "" };
            format!("the job goes on{until}, with {} headroom", size(*headroom_bytes))
        }
        ForecastVerdict::FailsAgain { after_requests, fails_in, iterations_later, sure, location } => {
            let requests = match after_requests {
                0 => "at the next request".to_owned(),
                requests => format!("after {}", count_of(*requests, "request", *sure)),
            };
            let steps = match fails_in {
                FailsIn::ThisIteration => String::new(),
                FailsIn::NextIteration => ", in the next step".to_owned(),
                FailsIn::LaterIteration => format!(", {} later", count_of(*iterations_later, "step", *sure)),
            };
            let is_known = location.frame.is_some() || location.backward.is_some();
            let line = if is_known { format!(", at {}", location.label()) } else { String::new() };
            format!("the job fails again {requests}{steps}{line}")
        }
        ForecastVerdict::Unknown { why } => format!("what follows is not known: {}", describe_unknown(*why)),
    }
}

/// How many devices fail again, or may, after a setting that serves every recorded request.
pub(super) fn describe_devices_later(failing: u64, unknown: u64) -> String {
    let fails = if failing == 1 { "fails" } else { "fail" };
    let failing = (failing > 0).then(|| format!("; {} {fails} again later", counted(failing, "device")));
    let unknown = (unknown > 0).then(|| format!("; for {} what follows is not known", counted(unknown, "device")));
    [failing, unknown].into_iter().flatten().collect()
}

/// `17,711 requests`, or `about 18,000 requests` if that is an estimate.
pub(super) fn count_of(number: u64, noun: &str, is_sure: bool) -> String {
    if is_sure {
        return counted(number, noun);
    }
    let scale = 10u64.pow(number.max(1).ilog10().saturating_sub(1));
    format!("about {}", counted((number + scale / 2) / scale * scale, noun))
}

pub(super) fn describe_unknown(why: WhyUnknown) -> &'static str {
    match why {
        WhyUnknown::NoLoop => "nothing before was like it",
        WhyUnknown::FirstIteration => "no step was complete before it",
        WhyUnknown::SingleIteration => "only one earlier step is recorded",
        WhyUnknown::NewSizes => "the sizes in this step are new",
        WhyUnknown::NewRequests => "this step makes requests that no earlier one made",
        WhyUnknown::LongTrace => "the trace is too long to replay it further",
        WhyUnknown::IrregularSizes => "sizes vary from step to step",
    }
}

impl Remedy {
    /// The fate of the request and of the program under these settings, with `reach_bytes` of device memory within reach.
    pub(crate) fn outcome(&self, reach_bytes: u64) -> String {
        let fate = match (&self.forecast, self.serves_later) {
            _ if !self.avoids_oom => return "this request fails".to_owned(),
            (Some(forecast), _) => forecast.to_string(),
            (None, Some(true)) => "this request and all recorded after it succeed".to_owned(),
            (None, Some(false)) => "this request succeeds, but a later one fails that did not fail before".to_owned(),
            (None, None) => "this request succeeds; what follows is not known".to_owned(),
        };
        // A forecast of success or failure says more than the headroom at this request.
        let is_open =
            matches!((&self.forecast, self.serves_later), (None, None) | (Some(ForecastVerdict::Unknown { .. }), _));
        match self.spare_bytes {
            Some(bytes) if is_open && is_negligible(bytes, reach_bytes) => {
                format!("{fate}; it leaves almost no headroom")
            }
            _ => fate,
        }
    }
}

/// Whether `bytes` are too few of `capacity` to count on.
pub(super) fn is_negligible(bytes: u64, capacity: u64) -> bool {
    bytes < capacity / NOTICEABLE_PARTS
}

/// The setting to change: `expandable_segments:True`, `no max_split_size_mb`.
pub(super) fn remedy_label(remedy: &Remedy) -> String {
    match (remedy.settings.as_str(), remedy.without) {
        (settings, None) => settings.to_owned(),
        ("", Some(option)) => format!("no {option}"),
        (settings, Some(option)) => format!("{settings} and no {option}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::MIB;
    use crate::stacks::frames::CodeLocation;

    #[test]
    fn each_fate_has_a_clause() {
        let fails = |after_requests, fails_in, iterations_later, sure| ForecastVerdict::FailsAgain {
            after_requests,
            fails_in,
            iterations_later,
            sure,
            location: Box::<CodeLocation>::default(),
        };
        let goes_on = |sizes_vary| ForecastVerdict::GoesOn { headroom_bytes: 3 * MIB, sizes_vary };
        for (verdict, text) in [
            (goes_on(false), "the job goes on, with 3 MiB headroom"),
            (goes_on(true), "the job goes on until a larger input comes, with 3 MiB headroom"),
            (
                fails(0, FailsIn::ThisIteration, 0, true),
                "this request is served, and the job fails again at the next request",
            ),
            (
                fails(24, FailsIn::NextIteration, 1, true),
                "this request is served, and the job fails again after 24 requests, in the next step",
            ),
            (
                fails(11_911, FailsIn::LaterIteration, 119, false),
                "this request is served, and the job fails again after about 12,000 requests, about 120 steps later",
            ),
            (
                ForecastVerdict::Unknown { why: WhyUnknown::FirstIteration },
                "this request is served; what follows is not known: no step was complete before it",
            ),
        ] {
            assert_eq!(verdict.to_string(), text);
        }
    }
}
