//! Advice for a failed request.

use std::fmt;

use super::outcome::{count_of, describe_unknown, outcome_clause, settings_action, settings_label};
use super::variables::{describe_keeper, keeper_aside};
use crate::allocator::conf::shell_assignment;
use crate::allocator::verdict::Verdict;
use crate::analysis::failure::OomReport;
use crate::analysis::{Advice, NoSettingHelps, OversizedRequest};
use crate::base::units::{count, counted, percent, size, times};
use crate::explain::{Snippet, StandardAdvice};
use crate::snapshot::RootKind;
use crate::stacks::engines::Engine;
use crate::stacks::frames::{CodeLocation, FrameReport};
use crate::study::attribution::{KeptGraphs, UnusedGraphs};
use crate::study::iterations::{GrowthKind, InputChange, UnusualInput};
use crate::study::variables::KeptByVariable;
use crate::whatif::JobOutcome;

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Self::Cure(cure) => cure.to_string(),
            Self::Shapes(cure, _) if cure.has_line() => cure.to_string(),
            Self::Shapes(cure, location) => format!("{cure} ({})", location.brief_label()),
            Self::Detach(graphs, variable) => detach(graphs, variable.as_deref()),
            Self::FreeGrowth(line, kind, variable) => free_growth(line.as_ref(), *kind, variable.as_deref()),
            Self::LimitInput(input) => limit_input(input),
            Self::GoOn(remedy) => {
                let later = outcome_clause(&remedy.then);
                format!("{}: in a replay {later}", settings_action(&remedy.settings_change()))
            }
            Self::Try(settings, why) => {
                let (settings, why) = (settings_label(settings), describe_unknown(*why));
                format!("try {settings}: in a replay it serves this request, and what follows is not known ({why})")
            }
            Self::Change(label, _, then) => {
                let served = if then.goes_on() { "" } else { "this request is then served; " };
                format!("{label}: in a replay {served}{}", outcome_clause(then))
            }
            Self::Guess(label, _, then) if then.goes_on() => {
                format!("try: {label}; in a replay the job goes on, but its sizes are a guess")
            }
            Self::Guess(label, ..) => format!(
                "try: {label}; in a replay it serves this request, but its sizes are a guess, and what follows is not known"
            ),
            Self::NothingHelps(why, may_help) => {
                let lets = if *may_help { "is sure to let" } else { "lets" };
                format!("nothing that was tried {lets} the job go on: {}", describe_replays(why))
            }
            Self::NoGrad(graphs) => no_grad(graphs),
            Self::RequestLess(request) => format!("request less at once at {}", describe_oversized(request)),
            Self::LoadOnHost(location) => {
                let line = location.brief_label();
                format!("load the checkpoint into host memory: torch.load(.., map_location=\"cpu\") at {line}")
            }
            Self::SmallerModel(location, bytes, Some(reach)) => format!(
                "make the model of {} smaller, divide it among GPUs, or use an optimizer with less state: parameters, gradients \
                 and optimizer state need {} before any activation, and {} is within reach",
                location.brief_label(),
                size(*bytes),
                size(*reach)
            ),
            Self::SmallerModel(location, bytes, None) => format!(
                "make the model of {} smaller (bfloat16 or quantized parameters), or divide it among GPUs: {} of parameters \
                 are on this one, and more follow",
                location.brief_label(),
                size(*bytes)
            ),
            Self::SleepEngine(engine) => describe_sleep(engine),
            Self::Standard(verdict) => StandardAdvice::for_verdict(*verdict).text.to_owned(),
            Self::UnknownCapacity(advice) => format!(
                "{}; if other processes hold the missing memory, the GPU's size shows it: analyze with --capacity 80GiB",
                advice.to_string().trim_end_matches('.')
            ),
        })
    }
}

/// How to avoid the graphs.
pub(super) fn no_grad(graphs: &UnusedGraphs) -> String {
    let (line, size, share) = (graphs.called_at.brief_label(), size(graphs.bytes), percent(graphs.share_ratio));
    let (before, after) = if graphs.after_backward {
        ("", ", and no backward pass follows")
    } else {
        ("if the program does not train, ", "")
    };
    format!(
        "{before}run the model at {line} under torch.no_grad() or torch.inference_mode(): {size} of its activations \
         are kept ({share}){after}"
    )
}

/// How to keep a result without its graph.
pub(super) fn detach(graphs: &KeptGraphs, variable: Option<&KeptByVariable>) -> String {
    let line = graphs.result_at.as_ref().map_or_else(String::new, |line| format!(" of {}", line.brief_label()));
    let value = if graphs.is_scalar { ".item() or .detach()" } else { ".detach()" };
    let keep = match variable {
        Some(variable) => {
            let (verb, to) = if variable.is_list() { ("append", "to") } else { ("keep", "in") };
            format!("{verb} {value} of the result{line} {to} {} instead of the result", keeper_aside(variable))
        }
        // Nothing shows what the program still does with it.
        None => format!(
            "keep {value} of the result{line} instead of the result, or, if a backward() of it follows, call that for each"
        ),
    };
    format!("{keep}: its graph stays, {} a step", size(graphs.bytes_per_step))
}

/// How to stop the growth of what `line` allocates and `variable` keeps.
fn free_growth(line: Option<&CodeLocation>, kind: GrowthKind, variable: Option<&KeptByVariable>) -> String {
    let line = line.map(CodeLocation::brief_label);
    let is_cycle = variable.is_some_and(|variable| variable.root == Some(RootKind::Cycle));
    let variable = variable.map(describe_keeper);
    let action = match (kind, line, variable) {
        (GrowthKind::Kept, Some(line), Some(cycle)) if is_cycle => {
            format!("break {cycle}, which keeps what {line} makes in each step; until then gc.collect() frees it")
        }
        (GrowthKind::Kept, line, variable) => {
            let place = variable.map_or_else(String::new, |variable| format!(" in {variable}"));
            let kept = line.map_or_else(|| "is kept".to_owned(), |line| format!("{line} keeps"));
            format!("free what {kept} after each step{place}")
        }
        (GrowthKind::Replaced, Some(line), Some(variable)) => {
            format!("limit {variable}, which {line} makes larger in each step")
        }
        (GrowthKind::Replaced, Some(line), None) => format!("limit what {line} makes larger in each step"),
        (GrowthKind::Replaced, None, _) => "limit what becomes larger in each step".to_owned(),
    };
    action + ": no setting helps for long"
}

impl Advice {
    /// Text to copy for this advice on `oom`: a setting, a command or a source line.
    pub(crate) fn copy(&self, oom: &OomReport, settings_string: Option<&str>) -> Option<String> {
        match self {
            Self::Detach(graphs, variable) => {
                let filled = variable.as_ref().and_then(|variable| variable.container.as_ref()?.filled_at.as_ref());
                filled.or(graphs.result_at.as_ref()).map(FrameReport::file_line)
            }
            Self::FreeGrowth(location, ..) => location.as_ref().and_then(file_line),
            Self::Change(_, location, _)
            | Self::Guess(_, location, _)
            | Self::Shapes(_, location)
            | Self::SmallerModel(location, ..) => file_line(location),
            Self::LimitInput(input) => file_line(&input.location),
            Self::GoOn(remedy) => Some(shell_assignment(&remedy.settings_change(), settings_string)),
            Self::Try(settings, _) => Some(shell_assignment(settings, settings_string)),
            Self::NothingHelps(..) => None,
            Self::Cure(cure) => cure.changed_line().map(FrameReport::file_line),
            Self::NoGrad(graphs) => Some(graphs.called_at.file_line()),
            Self::RequestLess(request) => file_line(&request.location),
            Self::LoadOnHost(_) => Some("map_location=\"cpu\"".to_owned()),
            Self::SleepEngine(engine) => Some(engine.sleep_calls[0].to_owned()),
            Self::UnknownCapacity(advice) => advice.copy(oom, settings_string),
            Self::Standard(verdict) => match StandardAdvice::for_verdict(*verdict).snippet {
                Snippet::AllocConf(option) => Some(shell_assignment(option, settings_string)),
                Snippet::Command(words) => Some(words.to_owned()),
                Snippet::CodeLine => {
                    let line = match verdict {
                        Verdict::Capacity => oom.holder(),
                        Verdict::PendingFree => oom.pending.iter().find_map(|line| file_line(&line.location)),
                        _ => None,
                    };
                    line.or_else(|| file_line(&oom.location))
                }
                Snippet::Nothing => None,
            },
        }
    }
}

fn file_line(location: &CodeLocation) -> Option<String> {
    location.frame.as_ref().map(FrameReport::file_line)
}

fn describe_replays(why: &NoSettingHelps) -> String {
    match why {
        NoSettingHelps::ExceedsReach => "no allocator setting helps".to_owned(),
        NoSettingHelps::AllFail => "under every replayed setting the request fails".to_owned(),
        NoSettingHelps::AllPostpone(remedy) => match &remedy.then {
            JobOutcome::FailsAgain { after_requests: after_requests @ 1.., sure, .. } => {
                let requests = count_of(*after_requests, "request", *sure);
                format!("{} only postpones the failure, by {requests}", settings_label(&remedy.settings_change()))
            }
            _ => "the replayed settings serve this request, not the next one".to_owned(),
        },
    }
}

fn describe_sleep(engine: &Engine) -> String {
    let [sleep, wake, option] = engine.sleep_calls;
    format!("let {} sleep while other code runs: {sleep}, {wake}, {option}", engine.name)
}

fn describe_oversized(request: &OversizedRequest) -> String {
    let (line, bytes) = (request.location.brief_label(), size(request.bytes));
    if request.bytes > request.reach_bytes {
        format!("{line}: {bytes} is more than the {} that this process can have in all", size(request.reach_bytes))
    } else {
        format!("{line}: {bytes} is many times the {} that the program holds", size(request.allocated_bytes))
    }
}

/// The memory that the iteration adds to what stays allocated, for the first line.
pub(super) fn describe_input(input: &UnusualInput) -> String {
    let step = input.step.map_or_else(|| "this step".to_owned(), |step| format!("step {}", count(step)));
    let before = if input.iterations == 1 {
        "the one before it".to_owned()
    } else {
        format!("the {} before it", count(input.iterations))
    };
    let how = match input.change {
        InputChange::Single => {
            return format!("{step} adds {} what {before} added", times(input.needed_bytes, input.most_bytes));
        }
        InputChange::Growing => "grow",
        InputChange::Varying => "vary",
    };
    format!("inputs {how}: {step} adds {}, {before} at most {}", size(input.needed_bytes), size(input.most_bytes))
}

/// How to avoid the failure.
pub(super) fn limit_input(input: &UnusualInput) -> String {
    let (line, now, most) = (input.location.brief_label(), size(input.input_bytes), size(input.most_input_bytes));
    let (usual, ratio) = (size(input.usual_input_bytes), times(input.input_bytes, input.usual_input_bytes));
    let action = match input.change {
        InputChange::Single => return format!("cut or skip the input of {now} at {line}: {ratio} the usual {usual}"),
        InputChange::Growing => format!("stop the inputs at {line} from growing"),
        InputChange::Varying => format!("limit the inputs at {line}"),
    };
    format!("{action}: {now} now, up to {most} in the {} before", counted(input.iterations, "step"))
}
